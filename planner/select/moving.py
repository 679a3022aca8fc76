"""Moves rows under another key, so that equal keys of both sides of a join are in one task."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..expressions.typed import Typed, column
from ..logical import Named
from ..schema import Column
from ..steps.project import LogicalProject, with_key_as_value
from ..steps.repartition import Repartition
from .relation import Partitioning, PlannedRelation


def same_columns(columns: Iterable[Column]) -> tuple[Named, ...]:
    """The columns unchanged."""
    return tuple(Named(c.name, column(c.name, c.type)) for c in columns)


def partitions_of(relation: PlannedRelation) -> int:
    """The number of partitions of the rows."""
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
    """The rows under a new key with these names; all previous columns become values."""
    plan = relation.plan
    return Repartition(
        with_key_as_value(plan),
        tuple(Named(name, typed) for name, typed in zip(names, by, strict=True)),
        drop_null_key,
        target.partition_count,
        target.key_format,
        keeps_window=plan.key_window is not None,
    )


def moved_under(
    relation: PlannedRelation, by: Sequence[Typed], names: Sequence[str], target: Partitioning
) -> LogicalProject:
    """The rows moved by expressions, which become keys `names`. Value columns with those names are replaced."""
    rows = moved(relation, by, target, names=[f"#join{i}" for i in range(len(by))])
    key = tuple(Named(name, column(c.name, c.type)) for name, c in zip(names, rows.schema.key, strict=True))
    return LogicalProject(rows, same_columns(c for c in rows.schema.value if c.name not in names), key)


def with_null_keys(rows: LogicalProject) -> LogicalProject:
    """The moved rows, including those whose new key is NULL."""
    assert isinstance(rows.input, Repartition)
    return replace(rows, input=replace(rows.input, drop_null_key=False))
