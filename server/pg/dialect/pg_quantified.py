"""`x = ANY(array)` and `x <> ALL(array)`, in which drivers pass lists: translated to IN, or to a search in an array
column.

| theirs | ours |
| --- | --- |
| `x = ANY($1)`, `x = ANY('{1,2}'::int[])`, `x = ANY(ARRAY[1, 2])` | `x IN (1, 2)` |
| `x <> ALL($1)` | `x NOT IN (1, 2)` |
| `x = ANY(SELECT …)` | `x IN (SELECT …)` |
| `x = ANY(tags)` | `(x IS NOT NULL AND ARRAY_LENGTH(FILTER(tags, item => item IS NOT NULL AND item = x)) > 0)` |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ....sql.printing import literal
from ..pg_parameters import NO_VALUE, text_array
from ..pg_tokens import PgToken, partners, pg_tokens

ITEM = "PG_ITEM"  # an element of the array that is searched
_SIGNS = {"ANY": ("=",), "SOME": ("=",), "ALL": ("<>", "!=")}


@dataclass(frozen=True, slots=True)
class Quantified:
    """Positions of tokens: of ANY or ALL, after its `(`, and of its `)`; and the array without parentheses and
    casts."""

    word: int
    first: int
    closing: int
    core_first: int
    core_end: int
    is_all: bool


def quantified(tokens: Sequence[PgToken], at: int, closings: Mapping[int, int]) -> Quantified | None:
    """None if no such comparison has its ANY at this token. In: `closings`: the closing bracket of each opening one."""
    signs = _SIGNS.get(tokens[at].upper, ())
    if at < 2 or at + 2 >= len(tokens) or tokens[at - 1].text not in signs or tokens[at + 1].text != "(":
        return None
    closing = closings.get(at + 1)
    if closing is None or closing == at + 2:
        return None
    return Quantified(at, at + 2, closing, *_core(tokens, at + 2, closing, closings), tokens[at].upper == "ALL")


def _core(tokens: Sequence[PgToken], first: int, end: int, closings: Mapping[int, int]) -> tuple[int, int]:
    """The array without surrounding parentheses and casts; unchanged if it contains an operator."""
    while True:  # a loop, because an untrusted client may nest thousands
        token = tokens[first]
        if token.upper == "CAST" and closings.get(first + 1) == end - 1:
            cast = next((at for at in range(end - 1, first, -1) if tokens[at].upper == "AS"), end)
            first, end = first + 2, cast
            continue
        begin = first + 1 if token.upper == "ARRAY" else first
        stop = closings.get(begin, begin) + 1
        if stop < end and tokens[stop].text != "::":
            return first, end
        if token.text != "(" or stop <= first + 2 or tokens[first + 1].upper == "SELECT":
            return first, stop
        first, end = first + 1, stop - 1


def quantified_parameters(tokens: Sequence[PgToken]) -> frozenset[int]:
    """The numbers of parameters that are the whole array of such a comparison."""
    closings = {opened: closed for closed, opened in partners(tokens).items()}
    found = [one for at in range(len(tokens)) if (one := quantified(tokens, at, closings)) is not None]
    cores = [tokens[one.core_first] for one in found if one.core_end == one.core_first + 1]
    return frozenset(int(token.text[1:]) for token in cores if token.kind == "parameter")


def listed_items(written: str) -> str | None:
    """In: an array as a literal, of ours or as PostgreSQL's text. Out: its items; None for any other text.

    >>> listed_items("ARRAY[1, 2]"), listed_items("'{a,NULL}'"), listed_items("'{}'")
    ('1, 2', "'a', NULL", 'NULL')
    """
    if written == "NULL":
        return written
    if written[:6] == "ARRAY[":
        return written[6:-1].strip() or "NULL"
    try:
        items = text_array(pg_tokens(written)[0].value, "text")
    except NO_VALUE:
        return None
    return ", ".join("NULL" if item is None else literal(item) for item in items) or "NULL"
