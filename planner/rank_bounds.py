"""Top-n: a filter such as `rn <= 3` over ROW_NUMBER tells the operator how much it has to keep.

Also which columns a filter fixes to one value: a key column that is the same in all rows need not be selected.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace

from sqlglot import exp

from ..sql.functions.over_functions import OVER_FUNCTIONS
from .logical import Filter, LogicalPlan, Over, Project, Repartition
from .typed import Typed

_MIRRORED: dict[type[exp.Expression], type[exp.Expression]] = {
    exp.EQ: exp.EQ,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
}


def push_rank_bounds(plan: LogicalPlan) -> LogicalPlan:
    """Gives an `Over` the bound that a filter above it sets for a rank. The filter stays."""
    if isinstance(plan, Filter):
        for column, largest in _upper_bounds(plan.predicate):
            plan = replace(plan, input=_bounded(plan.input, column, largest))
    inputs = {
        field.name: push_rank_bounds(getattr(plan, field.name))
        for field in fields(plan)
        if isinstance(getattr(plan, field.name), LogicalPlan)
    }
    return replace(plan, **inputs) if inputs else plan


def fixed_columns(predicate: Typed) -> frozenset[str]:
    """The columns that have one value in all rows for which the predicate is true."""
    return frozenset(column for column, operator, _ in _comparisons(predicate.tree) if operator is exp.EQ)


def _bounded(plan: LogicalPlan, column: str, largest: int) -> LogicalPlan:
    match plan:
        case Filter() | Repartition():
            return replace(plan, input=_bounded(plan.input, column, largest))
        case Project():
            named = next((n for n in (*plan.values, *(plan.key or ())) if n.name == column), None)
            if named is None or named.expression.column is None:
                return plan
            return replace(plan, input=_bounded(plan.input, named.expression.column, largest))
        case Over():
            if column not in (call.name for call in plan.calls) or not _can_be_bounded(plan):
                return plan
            known = plan.bound
            return plan if known is not None and known[1] <= largest else replace(plan, bound=(column, largest))
        case _:
            return plan


def _can_be_bounded(plan: Over) -> bool:
    """Whether rows beyond a bound never matter: no row of a stream goes, and ranks look only at what is before."""
    ranks = all(OVER_FUNCTIONS[call.function].ranks for call in plan.calls)
    return not plan.identity and ranks and len({repr(call.order) for call in plan.calls}) == 1


def _upper_bounds(predicate: Typed) -> Iterator[tuple[str, int]]:
    for column, operator, value in _comparisons(predicate.tree):
        if value.is_int and operator in (exp.EQ, exp.LTE, exp.LT):
            yield column, int(value.name) - (operator is exp.LT)


def _comparisons(tree: exp.Expr) -> Iterator[tuple[str, type[exp.Expression], exp.Literal]]:
    """(column, operator, literal) of every comparison that must hold for the tree to be true."""
    match tree:
        case exp.Paren() | exp.Coalesce():
            if isinstance(tree, exp.Paren) or [e.sql() for e in tree.expressions] == ["FALSE"]:
                yield from _comparisons(tree.this)
        case exp.And():
            yield from _comparisons(tree.left)
            yield from _comparisons(tree.right)
        case exp.EQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
            left, right = _bare(tree.left), _bare(tree.right)
            if isinstance(left, exp.Column) and isinstance(right, exp.Literal):
                yield left.name, type(tree), right
            elif isinstance(left, exp.Literal) and isinstance(right, exp.Column):
                yield right.name, _MIRRORED[type(tree)], left
        case _:
            return


def _bare(tree: exp.Expr) -> exp.Expr:
    """Without parentheses, and without the cast that brings a literal to the column's type."""
    while isinstance(tree, exp.Paren) or (isinstance(tree, exp.Cast) and isinstance(tree.this, exp.Literal)):
        tree = tree.this
    return tree
