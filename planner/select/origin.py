"""An origin: one member of FROM of any kind, as joins and expressions see it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...sql.ast import Query
from ..logical import LogicalPlan
from ..planning import PlanningContext
from ..schema import RECORD_PLACE, WINDOW_BOUNDS
from ..source_info import SourceInfo
from ..steps.filter import LogicalFilter
from ..steps.project import LogicalProject
from ..steps.repartition import Repartition
from ..steps.source import Scan
from .relation import Analyzed, Partitioning

Plan = Callable[[Query, PlanningContext], Analyzed]
"""Plans a subquery."""


@dataclass(frozen=True, slots=True)
class Origin:
    """`source` describes the columns that users see; `plan` computes the rows, and may have additional key columns.

    `pseudo`: the pseudo columns of its rows. `reads`: the sources of the catalog that it reads. `identity`: see
    `PlannedRelation`. `beyond`: ksqlDB does not support it in FROM.
    """

    source: SourceInfo
    plan: LogicalPlan
    pseudo: tuple[str, ...]
    partitioning: Partitioning | None
    reads: tuple[str, ...]
    identity: tuple[str, ...]
    beyond: bool = True


def place_of(plan: LogicalPlan) -> tuple[str, ...]:
    """The columns that identify a row: the key of a table; for a stream the partition and offset of the row's record,
    if known."""
    if plan.kind == "TABLE":
        return (*(c.name for c in plan.schema.key), *(WINDOW_BOUNDS if plan.key_window else ()))
    return RECORD_PLACE if keeps_place(plan) else ()


def keeps_place(plan: LogicalPlan) -> bool:
    """Whether each row comes from one record of a topic, and each record gives at most one row."""
    while isinstance(plan, LogicalFilter | LogicalProject | Repartition):
        plan = plan.input
    return isinstance(plan, Scan)


def lies_as_read(plan: LogicalPlan) -> Partitioning | None:
    """The partitioning of the rows, if nothing has moved them since they were read."""
    while isinstance(plan, LogicalFilter | LogicalProject):
        if isinstance(plan, LogicalProject) and len(plan.schema.key) != len(plan.input.schema.key):
            return None
        plan = plan.input
    return Partitioning(plan.source.partition_count, plan.source.key_format) if isinstance(plan, Scan) else None
