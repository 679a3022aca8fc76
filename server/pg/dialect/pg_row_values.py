"""Comparisons of rows, with which pages of a result are asked for: written out by column.

| theirs | ours |
| --- | --- |
| `(a, b) = (1, 2)` | `(a = 1 AND b = 2)` |
| `(a, b) <> (1, 2)` | `(a <> 1 OR b <> 2)` |
| `(a, b) > (1, 2)` | `(a > 1 OR (a = 1 AND b > 2))` |
| `(a, b) IN ((1, 2), (3, 4))` | `((a = 1 AND b = 2) OR (a = 3 AND b = 4))` |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ..pg_tokens import PgToken

_STRICT: Final = {"<": "<", "<=": "<", ">": ">", ">=": ">"}
_EQUAL: Final = ("=",)
_DIFFERENT: Final = ("<>", "!=")
_COLUMNS_MAX: Final = 16  # what is written grows with the square

_Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class RowComparison:
    """Positions of tokens: first and end of each value on the left, and of each row on the right. `sign`: IN or NOT IN
    for a list of rows. `end`: after the comparison."""

    left: Sequence[_Place]
    sign: str
    rows: Sequence[Sequence[_Place]]
    end: int


def row_comparison(tokens: Sequence[PgToken], at: int, closings: Mapping[int, int]) -> RowComparison | None:
    """None if no comparison of rows begins with the parenthesis at this token. In: `closings`: the closing bracket of
    each opening one."""
    left = _row(tokens, at, closings)
    if left is None:
        return None
    sign, right = _sign(tokens, closings[at] + 1)
    if not sign or right >= len(tokens) or tokens[right].text != "(" or right not in closings:
        return None
    rows = [_row(tokens, right, closings)]
    if sign in ("IN", "NOT IN"):
        rows = [_row(tokens, first, closings) for first, _ in _parts(tokens, right, closings)]
    whole = [row for row in rows if row is not None and len(row) == len(left)]
    return RowComparison(left, sign, whole, closings[right] + 1) if len(whole) == len(rows) else None


def _sign(tokens: Sequence[PgToken], at: int) -> tuple[str, int]:
    """The sign at this token, and the token after it; empty if it does not compare rows."""
    words = [token.upper or token.text for token in tokens[at : at + 2]]
    if words == ["NOT", "IN"]:
        return "NOT IN", at + 2
    known = words and words[0] in ("IN", *_EQUAL, *_DIFFERENT, *_STRICT)
    return (words[0], at + 1) if known else ("", at)


def _row(tokens: Sequence[PgToken], at: int, closings: Mapping[int, int]) -> Sequence[_Place] | None:
    """The values in the parentheses that begin here, if they are two or more."""
    if at not in closings or tokens[at].text != "(":
        return None
    parts = _parts(tokens, at, closings)
    is_row = 2 <= len(parts) <= _COLUMNS_MAX and all(first < end for first, end in parts)
    return parts if is_row and tokens[at + 1].upper != "SELECT" else None


def _parts(tokens: Sequence[PgToken], at: int, closings: Mapping[int, int]) -> list[_Place]:
    parts: list[_Place] = []
    first = place = at + 1
    while place < closings[at]:
        if tokens[place].text == ",":
            parts.append((first, place))
            first = place + 1
        place = closings.get(place, place) + 1
    return [*parts, (first, closings[at])]


def written_out(sign: str, left: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """In: the texts of the values.

    >>> written_out(">=", ["a", "b"], [["1", "2"]])
    '(a > 1 OR (a = 1 AND b >= 2))'
    >>> written_out("NOT IN", ["a", "b"], [["1", "2"]])
    '((a <> 1 OR b <> 2))'
    """
    pairs = [list(zip(left, row, strict=True)) for row in rows]
    if sign in ("IN", *_EQUAL):
        equal = " OR ".join(_each("=", "AND", pair) for pair in pairs)
        return f"({equal})" if sign == "IN" else equal
    if sign in ("NOT IN", *_DIFFERENT):  # not NOT: in ksqlDB's logic that is true where a comparison is NULL
        different = " AND ".join(_each("<>", "OR", pair) for pair in pairs)
        return f"({different})" if sign == "NOT IN" else different
    *before, (a, b) = pairs[0]
    written = f"{a} {sign} {b}"
    for a, b in reversed(before):
        written = f"({a} {_STRICT[sign]} {b} OR ({a} = {b} AND {written}))"
    return written


def _each(sign: str, between: str, pairs: Sequence[tuple[str, str]]) -> str:
    return f"({f' {between} '.join(f'{a} {sign} {b}' for a, b in pairs)})"
