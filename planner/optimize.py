"""Rewrites of the logical plan: functions from plan to plan, in one list that is their order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from .logical import (
    Aggregate,
    Explode,
    Filter,
    ForeignKeyJoin,
    LogicalPlan,
    Over,
    Project,
    Repartition,
    RowJoin,
    Scan,
    StreamStreamJoin,
    StreamTableJoin,
    TableTableJoin,
    Union,
)
from .push_filters import push_filters
from .rank_bounds import push_rank_bounds
from .typed import Typed

Rule = Callable[[LogicalPlan], LogicalPlan]


def optimize(plan: LogicalPlan) -> LogicalPlan:
    """The plan after all rules, with the same rows."""
    for rule in RULES:
        plan = rule(plan)
    return plan


# ------------------------------------------------------------------ old rows


def request_old_rows(plan: LogicalPlan) -> LogicalPlan:
    """Tables under a filter or an aggregation give the row that a change replaces, so that it can be taken back."""
    return _old_rows(plan, wanted=False)


def _old_rows(plan: LogicalPlan, *, wanted: bool) -> LogicalPlan:
    match plan:
        case Scan():
            return replace(plan, with_old_rows=wanted and plan.kind == "TABLE")
        case Filter():
            return replace(plan, input=_old_rows(plan.input, wanted=True))
        case Aggregate():
            return replace(plan, input=_old_rows(plan.input, wanted=True), emit_old=plan.emit_old or wanted)
        case Over():
            return replace(plan, input=_old_rows(plan.input, wanted=True))
        case Project() | Repartition() | Explode():
            return replace(plan, input=_old_rows(plan.input, wanted=wanted))
        case StreamTableJoin() | StreamStreamJoin():
            return replace(plan, left=_old_rows(plan.left, wanted=False), right=_old_rows(plan.right, wanted=False))
        case TableTableJoin():  # keeps the rows of both sides itself
            left, right = _old_rows(plan.left, wanted=False), _old_rows(plan.right, wanted=False)
            return replace(plan, left=left, right=right, emit_old=wanted)
        case RowJoin():  # rows may leave their tasks
            return replace(plan, left=_old_rows(plan.left, wanted=True), right=_old_rows(plan.right, wanted=True))
        case Union():
            return replace(plan, left=_old_rows(plan.left, wanted=False), right=_old_rows(plan.right, wanted=False))
        case ForeignKeyJoin():  # a left row may leave one task for another
            left, right = _old_rows(plan.left, wanted=True), _old_rows(plan.right, wanted=False)
            return replace(plan, left=left, right=right, emit_old=wanted)
        case _:
            raise AssertionError(f"unknown node {type(plan).__name__}")


# ------------------------------------------------------------------ columns


def prune_columns(plan: LogicalPlan) -> LogicalPlan:
    """Sources decode, and projections below others compute, only the columns that somebody reads."""
    return _prune(plan, frozenset(column.name for column in plan.schema))


def _read_by(expressions: Iterable[Typed]) -> frozenset[str]:
    return frozenset(name for expression in expressions for name in expression.columns())


def _prune(plan: LogicalPlan, needed: frozenset[str]) -> LogicalPlan:
    match plan:
        case Scan():
            own = needed | (plan.timestamp.columns() if plan.timestamp else frozenset())
            return replace(plan, needed=frozenset(c.name for c in plan.schema if c.name in own))
        case Filter():
            return replace(plan, input=_prune(plan.input, needed | plan.predicate.columns()))
        case Project():
            values = tuple(named for named in plan.values if named.name in needed) or plan.values[:1]
            keys = [c.name for c in plan.input.schema.key] if plan.key is None else []
            read = _read_by(named.expression for named in (*values, *(plan.key or ()))) | frozenset(keys)
            return replace(plan, values=values, input=_prune(plan.input, read))
        case Repartition():
            read = _read_by(named.expression for named in plan.key)
            return replace(plan, input=_prune(plan.input, needed | read))
        case Aggregate():
            keys = frozenset(c.name for c in plan.input.schema.key)
            read = _read_by(argument for call in plan.calls for argument in call.inputs)
            return replace(plan, input=_prune(plan.input, keys | read))
        case Over():
            keys = frozenset(c.name for c in plan.input.schema.key)
            read = _read_by((*plan.identity, *(typed for call in plan.calls for typed in call.inputs)))
            return replace(plan, input=_prune(plan.input, keys | needed | read))
        case Explode():
            return replace(plan, input=_prune(plan.input, needed | _read_by(named.expression for named in plan.arrays)))
        case Union():
            keys = frozenset(c.name for c in plan.schema.key)
            return replace(plan, left=_prune(plan.left, needed | keys), right=_prune(plan.right, needed | keys))
        case StreamTableJoin() | StreamStreamJoin() | TableTableJoin() | ForeignKeyJoin() | RowJoin():
            keys = frozenset(c.name for side in (plan.left, plan.right) for c in side.schema.key)
            if isinstance(plan, ForeignKeyJoin):
                keys |= frozenset(plan.left_key)
            if isinstance(plan, RowJoin):
                keys |= frozenset((*plan.left_key, *plan.right_key))
            return replace(plan, left=_prune(plan.left, needed | keys), right=_prune(plan.right, needed | keys))
        case _:
            raise AssertionError(f"unknown node {type(plan).__name__}")


RULES: tuple[Rule, ...] = (
    push_filters,
    request_old_rows,
    push_rank_bounds,
    prune_columns,  # last: the rules above may still change what is read
)
