"""Top-n: a filter such as `rn <= 3` over ROW_NUMBER tells the operator how many rows to store.

It also finds columns that a filter fixes to one value: a key column that is the same in all rows need not be selected.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sqlglot import exp

from ..expressions.conditions import all_of, conditions_of
from ..expressions.typed import Typed
from ..logical import LogicalPlan
from ..steps.filter import LogicalFilter

_MIRRORED: dict[type[exp.Expression], type[exp.Expression]] = {
    exp.EQ: exp.EQ,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
}


def push_rank_bounds(plan: LogicalPlan) -> LogicalPlan:
    """Passes the upper bound of a filter on a rank to the node that computes the rank. Conditions that are true for all
    ranks up to the bound are removed from the filter."""
    if isinstance(plan, LogicalFilter):
        below = plan.input
        for column, largest in _upper_bounds(plan.predicate):
            below = below.bounded(column, largest)
        plan = replace(plan, input=below)
        left = [each for each in conditions_of(plan.predicate.tree) if not _always_true(below, each)]
        if not left:
            return push_rank_bounds(below)
        if len(left) < len(list(conditions_of(plan.predicate.tree))):
            plan = replace(plan, predicate=replace(plan.predicate, tree=all_of(left)))
    return plan.with_inputs(*map(push_rank_bounds, plan.inputs))


def _always_true(plan: LogicalPlan, condition: exp.Expression) -> bool:
    """Whether the condition is true for every rank that the plan emits."""
    for column, operator, value in _comparisons(condition):
        largest = plan.largest_rank(column)
        if largest is None or not value.is_int:
            return False
        bound = int(value.name)
        match operator:
            case exp.EQ:
                return bound == largest == 1
            case exp.LTE:
                return largest <= bound
            case exp.LT:
                return largest < bound
            case _:
                return False
    return False


def fixed_columns(predicate: Typed) -> frozenset[str]:
    """The columns that have one value in all rows for which the predicate is true."""
    return frozenset(column for column, operator, _ in _comparisons(predicate.tree) if operator is exp.EQ)


def _upper_bounds(predicate: Typed) -> Iterator[tuple[str, int]]:
    for column, operator, value in _comparisons(predicate.tree):
        if value.is_int and operator in (exp.EQ, exp.LTE, exp.LT):
            yield column, int(value.name) - (operator is exp.LT)


def _comparisons(tree: exp.Expression) -> Iterator[tuple[str, type[exp.Expression], exp.Literal]]:
    """(column, operator, literal) of every comparison that must be true for the tree to be true."""
    for condition in conditions_of(tree):
        match condition:
            case exp.EQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
                left, right = _bare(condition.left), _bare(condition.right)
                if isinstance(left, exp.Column) and isinstance(right, exp.Literal):
                    yield left.name, type(condition), right
                elif isinstance(left, exp.Literal) and isinstance(right, exp.Column):
                    yield right.name, _MIRRORED[type(condition)], left
            case _:
                pass


def _bare(tree: exp.Expr) -> exp.Expr:
    """The expression without parentheses, and without the cast of a literal to the column's type."""
    while isinstance(tree, exp.Paren) or (isinstance(tree, exp.Cast) and isinstance(tree.this, exp.Literal)):
        tree = tree.this
    return tree
