"""The names that PostgreSQL gives to the columns of a query: a quoted alias keeps its case, and what has no alias is
named after its column or its function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...planner.schema import Column
from ...sql.identifiers import RESERVED
from .dialect.known_names import shown_name
from .dialect.pg_grouping import selected_items
from .pg_rows import PgColumn
from .pg_tokens import PgToken, partners

_NONE: Final = "?column?"
_NO_ALIAS: Final = RESERVED | {"END", "NULL", "TRUE", "FALSE", "PRECISION", "VARYING", "ZONE"}
_BEHIND_CALLS: Final = ("FILTER", "OVER")


def shown_columns(schema: Sequence[Column], tokens: Sequence[PgToken]) -> list[PgColumn]:
    """In: `tokens` of the query."""
    items = selected_items(tokens)
    names: Sequence[str | None] = [None] * len(schema)
    if len(items) == len(schema):
        names = [_named(tokens[first:end]) for first, end in items]
    both = zip(schema, names, strict=True)
    return [PgColumn(shown_name(column.name) if name is None else name, column.type) for column, name in both]


def _named(item: Sequence[PgToken]) -> str | None:
    """None for `*`, or an item that is cut off."""
    if item and item[0].upper == "DISTINCT":
        item = item[1:]
    if not item or item[-1].text in ("*", "."):
        return None
    if len(item) > 2 and item[-2].upper == "AS":
        return item[-1].named
    if _is_alias(item):
        return item[-1].named
    return _of_expression(item)


def _is_alias(item: Sequence[PgToken]) -> bool:
    """Whether its last name is an alias without AS: the token before it ends an expression."""
    if len(item) < 2 or item[-1].named is None or item[-1].upper in _NO_ALIAS:
        return False
    before = item[-2]
    if len(item) > 2 and item[-3].upper == "INTERVAL":
        return False
    return (
        before.kind in ("name", "string", "number", "parameter")
        or before.text in (")", "]")
        or (
            before.kind == "word" and (before.upper not in RESERVED or before.upper in ("END", "NULL", "TRUE", "FALSE"))
        )
    )


def _of_expression(item: Sequence[PgToken]) -> str:
    """A loop, because an untrusted client may nest thousands of parentheses."""
    closings: dict[int, int] = {}
    while item:
        closings = {opened: closed for closed, opened in partners(item).items()}
        cast = _outer_cast(item)
        if cast is not None:
            item = item[:cast]
        elif item[0].text == "(" and closings.get(0) == len(item) - 1:
            item = item[1:-1]
        elif item[0].upper == "CAST" and closings.get(1) == len(item) - 1:
            item = item[2 : next((at for at in range(len(item) - 1, 0, -1) if item[at].upper == "AS"), 2)]
        else:
            break
    return _of_core(item, closings) if item else _NONE


def _outer_cast(item: Sequence[PgToken]) -> int | None:
    """The position of the last `::`, if only a type stands behind it."""
    at = next((at for at in range(len(item) - 1, 0, -1) if item[at].text == "::"), None)
    if at is None or any(token.kind == "sign" and token.text not in "()[],." for token in item[at + 1 :]):
        return None
    depth = sum((token.text == "(") - (token.text == ")") for token in item[at + 1 :])
    return at if depth == 0 and item[at + 1 : at + 2] and item[at + 1].named is not None else None


def _of_core(item: Sequence[PgToken], closings: dict[int, int]) -> str:
    if all(token.named is not None for token in item[::2]) and all(token.text == "." for token in item[1::2]):
        last = item[-1]
        return _NONE if last.upper in ("NULL", "TRUE", "FALSE") else last.named or _NONE
    if item[0].upper == "CASE" and item[-1].upper == "END":
        return "case"
    if item[0].upper == "ARRAY" and closings.get(1) == len(item) - 1:
        return "array"
    call = next((at for at, token in enumerate(item) if token.text == "("), None)
    if call is None or call % 2 == 0 or not all(token.text == "." for token in item[1:call:2]):
        return _NONE
    end = closings.get(call, call) + 1
    while end + 1 < len(item) and item[end].upper in _BEHIND_CALLS:
        end = closings.get(end + 1, end) + 1
    return (item[call - 1].named or _NONE) if end == len(item) else _NONE
