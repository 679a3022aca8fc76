"""Makes sources decode, and projections compute, only the columns that are read."""

from __future__ import annotations

from ..logical import LogicalPlan, names_of


def prune_columns(plan: LogicalPlan) -> LogicalPlan:
    return _pruned(plan, names_of(plan.schema))


def _pruned(plan: LogicalPlan, needed: frozenset[str]) -> LogicalPlan:
    plan = plan.giving(needed)
    read = plan.columns_read(needed)
    return plan.with_inputs(*(_pruned(child, columns) for child, columns in zip(plan.inputs, read, strict=True)))
