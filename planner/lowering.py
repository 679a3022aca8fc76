"""Helpers to lower nodes of the analyzed plan to steps: ids, partition counts, and positions for names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from .expressions.typed import Typed, to_sql
from .schema import PSEUDO, Schema
from .specs import SqlExpression


@dataclass(frozen=True, slots=True)
class Lowering:
    """Turns one plan into steps: `plan.lower(Lowering(…))`.

    `partition_count`: the number of partitions after a change of key, if the plan does not specify it.
    """

    partition_count: int
    _numbers: Counter[str] = field(default_factory=Counter[str])

    def id(self, what: str) -> str:
        """An id for the next step of this kind: `join-2`."""
        self._numbers[what] += 1
        return f"{what}-{self._numbers[what]}"


def physical_names(schema: Schema) -> Callable[[str], str]:
    """A function from logical to physical names for rows of `schema`."""

    def name(logical_name: str) -> str:
        column = schema.find(logical_name)
        if column is not None:
            return schema.physical_name(column)
        return PSEUDO[logical_name][0] if logical_name in PSEUDO else logical_name

    return name


def sql_over(schema: Schema, typed: Typed) -> SqlExpression:
    """The expression over rows of `schema`."""
    return to_sql(typed, physical_names(schema), in_rows=True)


def is_key_column(sql: str) -> bool:
    """Whether generated SQL is just a column that a deleted row still has: a key column, or a bound of its window."""
    return sql in ("_ws", "_we") or (sql[:1] == "k" and sql[1:].isdigit())


def positions(schema: Schema, names: tuple[str, ...]) -> tuple[int, ...]:
    """The positions of the value columns with these names."""
    values = [column.name for column in schema.value]
    return tuple(values.index(name) for name in names)
