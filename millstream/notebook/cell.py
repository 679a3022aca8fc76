"""The text of a `%%millstream` cell: its statements with values for `:name`, and the positions of errors."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterator, Mapping
from typing import Any, Final

from millstream.errors import MillstreamError, Span
from millstream.sql.splitting import split_tokens
from millstream.sql.tokens import token_span, tokenize

from ..parameters import bind

_VALUES: Final = (bool, int, float, str, bytes, decimal.Decimal, datetime.date, datetime.time, list, tuple, dict)
_RED, _CYAN, _BOLD, _PLAIN = "\x1b[31m", "\x1b[36m", "\x1b[1m", "\x1b[0m"


class NotebookVariables(Mapping[str, Any]):
    """The notebook's variables as parameters. Iteration yields those that look like values, for messages."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names = names

    def __getitem__(self, name: str) -> Any:
        return self._names[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        values = (name for name, value in self._names.items() if isinstance(value, _VALUES))
        return (name for name in values if not name.startswith("_") and name not in ("In", "Out"))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def statements_of(cell: str, variables: Mapping[str, Any]) -> tuple[str, list[Span]]:
    """The cell with values in place of `:name`, and the positions of its statements. Lines are numbered as in the
    notebook, where the magic is line 1. Raises `InvalidStatement` for a name without a value.

    >>> text, spans = statements_of("SET 'a' = ':b';\\nSELECT * FROM t\\nWHERE id = :wanted;", {"wanted": "x"})
    >>> [text[span.start:span.end] for span in spans]
    ["SET 'a' = ':b'", "SELECT * FROM t\\nWHERE id = 'x'"]
    """
    text = "\n" + bind(cell, NotebookVariables(variables))
    groups = split_tokens(tokenize(text))
    return text, [Span(token_span(group[0]).start, token_span(group[-1]).end) for group in groups]


def placed_in_cell(error: MillstreamError, text: str, statement: Span) -> None:
    """Moves the error's span from the statement to the cell, so that its line is the cell's."""
    if error.span is None or error.text is None:
        return
    at = error.text.find(text[statement.start : statement.end])
    if at >= 0:
        moved = statement.start - at
        error.span, error.text = Span(error.span.start + moved, error.span.end + moved), text


def coloured(error: MillstreamError) -> list[str]:
    """The error for a notebook, instead of a traceback through our own code.

    >>> [line.replace(chr(27), "^") for line in coloured(MillstreamError("no", hint="Say yes."))]
    ['^[31m^[1merror: no^[0m', '^[36mhint: Say yes.^[0m']
    """
    lines = error.render().splitlines()
    painted = [f"{_RED}{_BOLD}{lines[0]}{_PLAIN}"]
    for line in lines[1:]:
        if line.startswith("hint: "):
            painted.append(f"{_CYAN}{line}{_PLAIN}")
        elif set(line) <= set(" |^"):
            painted.append(line.replace("^", f"{_RED}{_BOLD}^", 1) + _PLAIN)
        else:
            painted.append(line)
    return painted
