"""Splits input into parts: statements, and commands of the shell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..sql.tokens import TOKEN


@dataclass(frozen=True, slots=True)
class StatementText:
    """`text` begins with enough line ends and blanks that its errors give the line and column in the whole input.

    `ended`: whether it ended with `;`. The rest of a line from a backslash on is also a part.
    """

    text: str
    ended: bool

    @property
    def is_backslash(self) -> bool:
        return self.text.lstrip().startswith("\\")


def parts(text: str) -> Iterator[StatementText]:
    """
    >>> [part.text for part in parts("show streams; help\\n; SELECT 1 \\\\watch 3\\nx")]
    ['show streams;', '              help\\n;', '\\n  SELECT 1', '\\n           \\\\watch 3', '\\n\\nx']
    """
    for start, end, ended in _pieces(text):
        line_start = text.rfind("\n", 0, start) + 1
        yield StatementText("\n" * text.count("\n", 0, start) + " " * (start - line_start) + text[start:end], ended)


def _pieces(text: str) -> Iterator[tuple[int, int, bool]]:
    """The start and end of each part, and whether it ended with `;`."""
    position = 1 if text.startswith("\ufeff") else 0
    start: int | None = None
    end = 0
    while match := TOKEN.match(text, position):
        at, position = position, match.end()
        if match.lastgroup == "SKIP":
            continue
        if match.group() == "\\":
            if start is not None:
                yield start, end, False
            line_end = text.find("\n", at)
            position = len(text) if line_end < 0 else line_end
            yield at, position, True
            start = None
        elif match.group() == ";":
            if start is not None:
                yield start, position, True
            start = None
        else:
            start, end = at if start is None else start, position
    if start is not None:
        yield start, end, False


def is_finished(text: str) -> bool:
    """Whether Enter sends the text: it ends with `;` or with a backslash command, or is empty."""
    found = list(parts(text))
    return not found or found[-1].ended
