"""Rewrites a join of rows with the greatest or least value of their own group as RANK() = 1."""

from __future__ import annotations

from ..logical import LogicalPlan, names_of


def rank_own_extremes(plan: LogicalPlan) -> LogicalPlan:
    """The plan in which rows with the extreme of their group are read once instead of twice."""
    return _ranked(plan, names_of(plan.schema))


def _ranked(plan: LogicalPlan, needed: frozenset[str]) -> LogicalPlan:
    below = plan.giving(needed).columns_read(needed) if plan.inputs else ()
    time = needed & {"ROWTIME"}  # nodes pass the time of a row on
    inputs = (_ranked(each, read | time) for each, read in zip(plan.inputs, below, strict=True))
    return plan.with_inputs(*inputs).as_rank(needed)
