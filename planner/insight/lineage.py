"""Column lineage of one query: which columns of which sources its results come from, and through which expressions.

`lineage_rows.py` explains the terms. `catalog_lineage.py` follows the lineage through the queries and topics of a
catalog.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..physical import PhysicalPlan
from ..steps.step import Step, schema_of
from .lineage_rows import Influence, LineageRows


@dataclass(frozen=True, slots=True)
class QueryLineage:
    """`columns`: for each column of the sink, what its values come from. `rows`: what influences all of its rows."""

    columns: Mapping[str, tuple[Influence, ...]]
    rows: tuple[Influence, ...]


def trace(plan: PhysicalPlan) -> QueryLineage:
    """The lineage of a plan, with or without a Sink."""
    rows, schema = _rows(plan.root), schema_of(plan.root)
    columns = {
        column.name: _unique(rows.values[schema.physical_name(column)].influences)
        for column in schema
        if schema.physical_name(column) in rows.values
    }
    return QueryLineage(columns, _unique(rows.influences))


def kept_keys(step: Step) -> tuple[str, ...]:
    """The expressions, over the sources' columns, by which the step stores rows."""
    return step.kept_keys(*map(_rows, step.inputs))


def kept_values(step: Step) -> tuple[str, ...]:
    """The expressions, over the sources' columns, of what the step stores."""
    return step.kept_values(*map(_rows, step.inputs))


def _rows(step: Step) -> LineageRows:
    return step.lineage(*map(_rows, step.inputs))


def _unique(influences: Iterable[Influence]) -> tuple[Influence, ...]:
    return tuple(dict.fromkeys(influences))
