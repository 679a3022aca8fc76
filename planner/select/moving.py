"""Rows under another key: where the sides of a join have to go, so that equal keys meet in one task."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..expressions.typed import Typed, column
from ..logical import Named
from ..schema import Column
from ..steps.project import LogicalProject
from ..steps.repartition import Repartition
from .relation import Partitioning, PlannedRelation


def same_columns(columns: Iterable[Column]) -> tuple[Named, ...]:
    """The columns as they are."""
    return tuple(Named(c.name, column(c.name, c.type)) for c in columns)


def partitions_of(relation: PlannedRelation) -> int:
    """Over how many partitions the rows spread."""
    if relation.partitioning is not None:
        return relation.partitioning.partition_count
    return relation.sources[0][1].partition_count


def moved(
    relation: PlannedRelation,
    by: Sequence[Typed],
    target: Partitioning,
    *,
    names: Sequence[str],
    drop_null_key: bool = True,
) -> Repartition:
    """The rows under a new key with these names, all columns they had as values."""
    plan = relation.plan
    old = tuple(Named(f"#old{i}", column(c.name, c.type)) for i, c in enumerate(plan.schema.key))
    return Repartition(
        LogicalProject(plan, same_columns((*plan.schema.value, *plan.schema.key)), old),
        tuple(Named(name, typed) for name, typed in zip(names, by, strict=True)),
        drop_null_key,
        target.partition_count,
        target.key_format,
        keeps_window=plan.key_window is not None,
    )


def moved_under(
    relation: PlannedRelation, by: Sequence[Typed], names: Sequence[str], target: Partitioning
) -> LogicalProject:
    """The rows moved by expressions, as keys `names`; values of those names are the keys then."""
    rows = moved(relation, by, target, names=[f"#join{i}" for i in range(len(by))])
    key = tuple(Named(name, column(c.name, c.type)) for name, c in zip(names, rows.schema.key, strict=True))
    return LogicalProject(rows, same_columns(c for c in rows.schema.value if c.name not in names), key)


def with_null_keys(rows: LogicalProject) -> LogicalProject:
    """The moved rows, with those whose new key is NULL."""
    assert isinstance(rows.input, Repartition)
    return replace(rows, input=replace(rows.input, drop_null_key=False))
