"""Values for `?` and `:name` in a statement's text, written as SQL literals."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from millstream.errors import InvalidStatement
from millstream.sql.printing import literal as literal_of

from .frames import is_missing

Parameters = Sequence[Any] | Mapping[str, Any]

# Strings, quoted names and comments contain no parameters. `:=` belongs to STRUCT.
_PART = re.compile(
    r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|--[^\n]*|/\*.*?\*/|(?P<mark>\?)|(?<![:\w]):(?P<name>[A-Za-z_]\w*)""",
    re.DOTALL,
)


def bind(text: str, parameters: Parameters | None) -> str:
    """The text with each `?` replaced by the next value of a sequence, or each `:name` by a value of a mapping.

    Raises `InvalidStatement` if values are missing, left over, or have no literal.

    >>> bind("SELECT * FROM t WHERE id = ? AND name <> '?';", [7])
    "SELECT * FROM t WHERE id = 7 AND name <> '?';"
    >>> bind("INSERT INTO t VALUES (:id, :name);", {"id": None, "name": "O'Hara"})
    "INSERT INTO t VALUES (NULL, 'O''Hara');"
    """
    if parameters is None:
        return text
    if isinstance(parameters, Mapping):
        return _PART.sub(lambda found: _named(found, parameters), text)
    values = iter(parameters)
    bound = _PART.sub(lambda found: _next(found, values), text)
    left_over = sum(1 for _ in values)
    if left_over:
        raise InvalidStatement(f"{left_over} of {len(parameters)} parameters have no ? in the statement", text=text)
    return bound


def literal(value: Any) -> str:
    """The value as SQL. Raises `InvalidStatement` for a value without a literal."""
    try:
        return literal_of(None if is_missing(value) else value)
    except ValueError as error:
        raise InvalidStatement(f"{value!r} cannot be a parameter of a statement: {error}") from None


def _named(found: re.Match[str], values: Mapping[str, Any]) -> str:
    name = found["name"]
    if name is None:
        if found["mark"] is not None:
            raise InvalidStatement("a ? needs a list of parameters, and names were given", hint="Write :name instead.")
        return found[0]
    if name not in values:
        raise InvalidStatement(f"there is no value for the parameter :{name}", hint=f"Given are {', '.join(values)}.")
    return literal(values[name])


def _next(found: re.Match[str], values: Iterator[Any]) -> str:
    if found["mark"] is None:
        return found[0]
    for value in values:
        return literal(value)
    raise InvalidStatement("the statement has more ? than there are parameters")
