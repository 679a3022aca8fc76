"""Makes tables below a filter or an aggregation emit the row that a change replaces, so that it can be retracted."""

from __future__ import annotations

from ..logical import LogicalPlan


def request_old_rows(plan: LogicalPlan) -> LogicalPlan:
    return _requested(plan, wanted=False)


def _requested(plan: LogicalPlan, *, wanted: bool) -> LogicalPlan:
    of_inputs = plan.wants_old_rows(wanted)
    inputs = (_requested(child, wanted=each) for child, each in zip(plan.inputs, of_inputs, strict=True))
    return plan.giving_old_rows(wanted).with_inputs(*inputs)
