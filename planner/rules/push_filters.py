"""Pushes filters below a join that stores all rows: rows that cannot be in a result need not be stored.

It pushes filters below no other join: if stream time decides which rows a join still stores, a row that is filtered out
later must still advance stream time.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from ..expressions.conditions import all_of, conditions_of
from ..expressions.typed import Typed
from ..logical import LogicalPlan, names_of
from ..steps.filter import LogicalFilter


def push_filters(plan: LogicalPlan) -> LogicalPlan:
    """A condition that reads only one side is pushed to that side, below the repartition of its rows; others stay."""
    plan = plan.with_inputs(*map(push_filters, plan.inputs))
    if not isinstance(plan, LogicalFilter) or plan.predicate.volatile:
        return plan
    below, left = plan.input, list[exp.Expression]()
    for condition in conditions_of(plan.predicate.tree):
        pushed = _into_join(below, replace(plan.predicate, tree=condition))
        if pushed is None:
            left.append(condition)
        else:
            below = pushed
    if below is plan.input:
        return plan
    if not left:
        return below
    return LogicalFilter(below, replace(plan.predicate, tree=all_of(left)))


def _into_join(plan: LogicalPlan, condition: Typed) -> LogicalPlan | None:
    """The plan with the condition pushed to one side of a join in it; None if it cannot be pushed there."""
    if plan.keeps_sides:
        return _to_sides(plan, condition)
    before = plan.before(condition)
    if before is None:
        return None
    (input_,) = plan.inputs
    below = _into_join(input_, before)
    return None if below is None else plan.with_inputs(below)


def _to_sides(join: LogicalPlan, condition: Typed) -> LogicalPlan | None:
    """Pushes the condition to the side that has its columns; a condition on the key goes to both sides."""
    having = [condition.columns() <= names_of(side.schema) for side in join.inputs]
    if not any(having):
        return None
    sides = zip(join.inputs, having, strict=True)
    return join.with_inputs(*(_as_deep_as_can_be(side, condition) if has else side for side, has in sides))


def _as_deep_as_can_be(plan: LogicalPlan, condition: Typed) -> LogicalPlan:
    joined = _into_join(plan, condition)
    if joined is not None:
        return joined
    before = plan.before(condition)
    if before is None:
        return LogicalFilter(plan, condition)
    (input_,) = plan.inputs
    return plan.with_inputs(_as_deep_as_can_be(input_, before))
