"""A join of rows to the greatest or least value among themselves becomes RANK() = 1."""

from __future__ import annotations

from ..logical import LogicalPlan, names_of


def rank_own_extremes(plan: LogicalPlan) -> LogicalPlan:
    """Rows with the extreme of their group, read once instead of twice."""
    return _ranked(plan, names_of(plan.schema))


def _ranked(plan: LogicalPlan, needed: frozenset[str]) -> LogicalPlan:
    below = plan.giving(needed).columns_read(needed) if plan.inputs else ()
    time = needed & {"ROWTIME"}  # of a row that several nodes pass on
    inputs = (_ranked(each, read | time) for each, read in zip(plan.inputs, below, strict=True))
    return plan.with_inputs(*inputs).as_rank(needed)
