"""GROUP BY: chooses the operator that runs the step."""

from __future__ import annotations

from ...planner.steps.aggregate import Aggregate
from ..building import Building, ChainNode, builds
from .aggregate import Aggregator
from .expiring_aggregate import ExpiringAggregator
from .session import SessionAggregator


@builds(Aggregate)
def build(step: Aggregate, building: Building) -> ChainNode:
    below = building.node(step.input)
    operator = _operator_class(step)(
        building.connection,
        step,
        below.schema,
        below.extra,
        below.columns,
        building.properties,
        building.emit,
        building.guard,
    )
    return building.chain(below, operator, step)


def _operator_class(step: Aggregate) -> type[Aggregator | ExpiringAggregator | SessionAggregator]:
    if step.window is not None and step.window.type.grows:
        return SessionAggregator
    return Aggregator if step.ttl_ms is None else ExpiringAggregator
