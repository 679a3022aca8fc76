"""The statements that bring a seed's stream or table to the rows of its CSV. It knows nothing of dbt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import statements

Rows = Sequence[Sequence[Any]]


@dataclass(frozen=True)
class SeedChange:
    """`rows`: how many are written or deleted."""

    statements: list[str]
    rows: int


def seed_change(
    name: str,
    types: Mapping[str, str],
    config: Mapping[str, Any],
    wanted: Rows,
    found: Rows | None,
    create: Sequence[str],
) -> SeedChange:
    """A new seed is created with all rows. In a table, other rows are deleted and changed ones written; a stream with
    other rows is refused, because what it has cannot be taken back.

    In: `types`: of the columns, by name as in SQL. `found`: the rows that there are; None if it is to be created.
    Raises `InvalidConfiguration`.
    """
    columns, keys = list(types), statements.key_columns(config, types)
    rows = [_literals(row, types) for row in wanted]
    if keys and any(row[columns.index(key)] == "NULL" for row in rows for key in keys):
        raise statements.InvalidConfiguration(
            f"the seed {name} has a row without a value of its key ({', '.join(keys)})"
        )
    places = [columns.index(key) for key in keys]
    kept = Counter(tuple(row[place] for place in places) for row in rows)
    if keys and (twice := [key for key, count in kept.items() if count > 1]):
        raise statements.InvalidConfiguration(f"the seed {name} has several rows with the key {', '.join(twice[0])}")
    if found is None:
        return SeedChange([*create, *statements.insert(name, columns, rows)], len(rows))
    there = [_literals(row, types) for row in found]
    if not keys:
        if Counter(there) != Counter(rows):
            raise statements.InvalidConfiguration(
                f"the rows of the seed {name} have changed, and it is a stream, whose rows stay; "
                "run dbt seed --full-refresh, or give the seed the config `key`, so that it is a table"
            )
        return SeedChange([], 0)
    gone = [key for row in there if (key := tuple(row[place] for place in places)) not in kept]
    known = set(there)
    changed = [row for row in rows if row not in known]
    made = [*statements.delete(name, keys, gone), *statements.insert(name, columns, changed)]
    return SeedChange(made, len(gone) + len(changed))


def _literals(row: Sequence[Any], types: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(statements.literal(value, type_) for value, type_ in zip(row, types.values(), strict=True))
