"""The clauses that take a part of the rows: PostgreSQL has them in any order, and those of standard SQL beside them.

| theirs | ours |
| --- | --- |
| `OFFSET 20 LIMIT 10`, `OFFSET 20 ROWS FETCH NEXT 10 ROWS ONLY` | `LIMIT 10 OFFSET 20` |
| `FETCH FIRST ROW ONLY` | `LIMIT 1` |
| `LIMIT ALL` | nothing |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from ..pg_tokens import PgToken, words

_VALUES: Final = ("number", "parameter")
_ROWS: Final = ("ROW", "ROWS")


@dataclass(frozen=True, slots=True)
class RowRange:
    """`limit`, `offset`: positions of the tokens with the values; None where there is none. `is_one`: the limit is 1.
    `end`: after the clauses."""

    limit: int | None
    is_one: bool
    offset: int | None
    end: int


class _Clause(NamedTuple):
    name: Literal["LIMIT", "OFFSET"]
    value: int | None
    end: int


def row_range(tokens: Sequence[PgToken], at: int) -> RowRange | None:
    """The clauses that begin at this token; None if they are as ours are, or if there are none."""
    found: dict[str, _Clause] = {}
    end = at
    while (clause := _clause(tokens, end)) is not None and clause.name not in found:
        found[clause.name] = clause
        end = clause.end
    limit, offset = found.get("LIMIT"), found.get("OFFSET")
    in_our_order = list(found) in (["LIMIT"], ["OFFSET"], ["LIMIT", "OFFSET"])
    is_ours = in_our_order and end == at + 2 * len(found) and (limit is None or limit.value is not None)
    if not found or is_ours:
        return None
    is_one = limit is not None and limit.value is None and tokens[limit.end - 1].upper == "ONLY"
    return RowRange(None if limit is None else limit.value, is_one, None if offset is None else offset.value, end)


def _clause(tokens: Sequence[PgToken], at: int) -> _Clause | None:
    first, second, third = words(tokens[at : at + 3], 3)
    has_value = at + 1 < len(tokens) and tokens[at + 1].kind in _VALUES
    if first == "LIMIT" and (has_value or second == "ALL"):
        return _Clause("LIMIT", at + 1 if has_value else None, at + 2)
    if first == "OFFSET" and has_value:
        return _Clause("OFFSET", at + 1, at + 3 if third in _ROWS else at + 2)
    if first == "FETCH" and second in ("FIRST", "NEXT"):
        value = at + 2 if at + 2 < len(tokens) and tokens[at + 2].kind in _VALUES else None
        rest = at + 2 if value is None else at + 3
        if words(tokens[rest : rest + 2], 2) in (["ROW", "ONLY"], ["ROWS", "ONLY"]):
            return _Clause("LIMIT", value, rest + 2)
    return None
