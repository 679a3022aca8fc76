"""Rewrites of the logical plan: functions from plan to plan. One list defines their order."""

from __future__ import annotations

from collections.abc import Callable

from .logical import LogicalPlan
from .rules.prune_columns import prune_columns
from .rules.push_filters import push_filters
from .rules.rank_bounds import push_rank_bounds
from .rules.rank_own_extremes import rank_own_extremes
from .rules.request_old_rows import request_old_rows

Rule = Callable[[LogicalPlan], LogicalPlan]

RULES: tuple[Rule, ...] = (
    rank_own_extremes,  # first: both sides of the join must still be equal
    push_filters,
    push_rank_bounds,  # before the next one: a filter that is always true needs no old rows
    request_old_rows,
    prune_columns,  # last: the rules above may still change what is read
)


def optimize(plan: LogicalPlan) -> LogicalPlan:
    """The plan after all rules, with the same rows."""
    for rule in RULES:
        plan = rule(plan)
    return plan
