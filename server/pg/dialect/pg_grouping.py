"""The clauses that a PostgreSQL client's GROUP BY refers to: the selected items, and the grouping items. Only the
outermost query is examined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ..pg_tokens import PgToken

_ENDS: Final = ("HAVING", "ORDER", "LIMIT", "OFFSET", "EMIT", "WINDOW", "UNION", "EXCEPT", "INTERSECT", "FETCH")
_OTHER_MEANING: Final = ("HAVING", "EMIT", "WINDOW", "UNION", "EXCEPT", "INTERSECT", "DISTINCT")


@dataclass(frozen=True, slots=True)
class SelectedItem:
    """The positions of its expression's tokens, the end excluded; its alias as PostgreSQL folds it."""

    first: int
    end: int
    alias: str | None


@dataclass(frozen=True, slots=True)
class GroupedQuery:
    """`group`: the position of the word GROUP; `keys`: first and end of each item; `is_plain`: no clause makes GROUP BY
    mean more than DISTINCT."""

    items: Sequence[SelectedItem]
    group: int
    keys: Sequence[tuple[int, int]]
    is_plain: bool


def selected_items(tokens: Sequence[PgToken]) -> list[tuple[int, int]]:
    """First and end of each item of the outermost SELECT, with its alias; none if it has no FROM."""
    outer = _outer(tokens)
    select = next((at for at in outer if tokens[at].upper == "SELECT"), None)
    source = next((at for at in outer if tokens[at].upper == "FROM"), None)
    return [] if select is None or source is None else _parts(tokens, outer, select + 1, source)


def grouped_query(tokens: Sequence[PgToken]) -> GroupedQuery | None:
    """None if there is no GROUP BY, or if it contains more than names and expressions (ROLLUP)."""
    if not tokens or tokens[0].upper != "SELECT":
        return None
    outer = _outer(tokens)
    words = {at: tokens[at].upper for at in outer}
    source = next((at for at in outer if words[at] == "FROM"), None)
    group = next((at for at in outer if words[at] == "GROUP"), None)
    if source is None or group is None or group + 2 >= len(tokens) or tokens[group + 1].upper != "BY":
        return None
    end = next((at for at in outer if at > group and words[at] in _ENDS), len(tokens))
    items = [_item(tokens, *part) for part in _parts(tokens, outer, 1, source)]
    is_plain = not any(word in _OTHER_MEANING for word in words.values())
    return GroupedQuery(items, group, list(_parts(tokens, outer, group + 2, end)), is_plain)


def _outer(tokens: Sequence[PgToken]) -> list[int]:
    found: list[int] = []
    depth = 0
    for at, token in enumerate(tokens):
        sign = token.text if token.kind == "sign" else ""
        depth -= sign in (")", "]")
        if depth == 0:
            found.append(at)
        depth += sign in ("(", "[")
    return found


def _parts(tokens: Sequence[PgToken], outer: Sequence[int], first: int, end: int) -> list[tuple[int, int]]:
    """The parts between commas."""
    commas = [at for at in outer if first <= at < end and tokens[at].text == ","]
    return list(zip([first, *(at + 1 for at in commas)], [*commas, end], strict=True))


def _item(tokens: Sequence[PgToken], first: int, end: int) -> SelectedItem:
    if end - first > 2 and tokens[end - 2].upper == "AS" and tokens[end - 1].named is not None:
        return SelectedItem(first, end - 2, tokens[end - 1].named)
    return SelectedItem(first, end, None)
