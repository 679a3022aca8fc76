"""Filters before a join that keeps all rows for good: what no result can have need not be kept.

Only there. Where stream time decides what a join still knows, a row that is filtered out afterwards has moved it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace

from sqlglot import exp

from .logical import Filter, LogicalPlan, Project, Repartition, RowJoin, StreamStreamJoin
from .physical import UNBOUNDED_MS
from .typed import Typed


def push_filters(plan: LogicalPlan) -> LogicalPlan:
    """Every condition that reads one side only goes to that side, below what moves its rows; the others stay."""
    inputs = {
        field.name: push_filters(getattr(plan, field.name))
        for field in fields(plan)
        if isinstance(getattr(plan, field.name), LogicalPlan)
    }
    plan = replace(plan, **inputs) if inputs else plan
    if not isinstance(plan, Filter) or plan.predicate.volatile:
        return plan
    below, left = plan.input, list[exp.Expression]()
    for condition in _conditions(plan.predicate.tree):
        pushed = _into_join(below, replace(plan.predicate, tree=condition))
        if pushed is None:
            left.append(condition)
        else:
            below = pushed
    if below is plan.input:
        return plan
    if not left:
        return below
    return Filter(below, replace(plan.predicate, tree=_all_of(left)))


def _into_join(plan: LogicalPlan, condition: Typed) -> LogicalPlan | None:
    """The plan with the condition on one side of a join in it; None where it does not get there."""
    match plan:
        case Filter():
            below = _into_join(plan.input, condition)
        case Project() | Repartition():
            before = _before(plan, condition)
            below = None if before is None else _into_join(plan.input, before)
        case StreamStreamJoin() | RowJoin():
            return _to_sides(plan, condition) if _keeps_all(plan) else None
        case _:
            return None
    return None if below is None else replace(plan, input=below)


def _keeps_all(join: StreamStreamJoin | RowJoin) -> bool:
    if join.join != "INNER" or join.key_window is not None:
        return False
    return isinstance(join, RowJoin) or (join.before_ms, join.after_ms) == (UNBOUNDED_MS, UNBOUNDED_MS)


def _to_sides(join: StreamStreamJoin | RowJoin, condition: Typed) -> LogicalPlan | None:
    """A condition on the key, which both sides have, goes to both."""
    sides = {
        name: _as_deep_as_can_be(side, condition)
        for name, side in (("left", join.left), ("right", join.right))
        if _has(side, condition)
    }
    return replace(join, **sides) if sides else None


def _as_deep_as_can_be(plan: LogicalPlan, condition: Typed) -> LogicalPlan:
    joined = _into_join(plan, condition)
    if joined is not None:
        return joined
    if isinstance(plan, Project | Repartition):
        before = _before(plan, condition)
        if before is not None:
            return replace(plan, input=_as_deep_as_can_be(plan.input, before))
    return Filter(plan, condition)


def _before(plan: Project | Repartition, condition: Typed) -> Typed | None:
    """The condition over what the columns are computed from; None where it reads something else."""
    if not _has(plan, condition):
        return None
    named = (*(plan.key or ()), *(plan.values if isinstance(plan, Project) else ()))
    made = {each.name: each.expression for each in named}
    if any(made[name].volatile for name in condition.columns() if name in made):
        return None
    total = condition.total and all(made[name].total for name in condition.columns() if name in made)
    return replace(condition, tree=_substituted(condition.tree, made), total=total)


def _substituted(tree: exp.Expression, made: Mapping[str, Typed]) -> exp.Expression:
    def replaced(node: exp.Expression) -> exp.Expression:
        if not isinstance(node, exp.Column) or node.name not in made:
            return node
        expression = made[node.name]
        copy = expression.tree.copy()
        return copy if expression.column is not None else exp.Paren(this=copy)

    return tree.copy().transform(replaced)


def _has(plan: LogicalPlan, condition: Typed) -> bool:
    """Whether all that it reads are columns: the pseudo columns of a pair are not those of its rows."""
    return condition.columns() <= {column.name for column in plan.schema}


def _conditions(tree: exp.Expression) -> Iterator[exp.Expression]:
    """Those that must all be true for the tree to be true."""
    match tree:
        case exp.Paren():
            yield from _conditions(tree.this)
        case exp.Coalesce() if [each.sql() for each in tree.expressions] == ["FALSE"]:
            yield from _conditions(tree.this)
        case exp.And():
            yield from _conditions(tree.this)
            yield from _conditions(tree.expression)
        case _:
            yield tree


def _all_of(conditions: list[exp.Expression]) -> exp.Expression:
    tree = exp.Paren(this=conditions[0].copy())
    for condition in conditions[1:]:
        tree = exp.And(this=tree, expression=exp.Paren(this=condition.copy()))
    return tree
