"""Predicates as lists of conditions that must all be true."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import exp

from .connectives import all_of_turn


def conditions_of(tree: exp.Expression) -> Iterator[exp.Expression]:
    """The conditions that must all be true for the tree to be true."""
    match tree:
        case exp.Paren():
            yield from conditions_of(tree.this)
        case exp.Coalesce() if [each.sql() for each in tree.expressions] == ["FALSE"]:
            yield from conditions_of(tree.this)
        case exp.And():
            yield from conditions_of(tree.this)
            yield from conditions_of(tree.expression)
        case _ if (operands := all_of_turn(tree)) is not None:
            for operand in operands:
                yield from conditions_of(operand)
        case _:
            yield tree


def at_once(tree: exp.Expression) -> exp.Expression:
    """The condition of a filter, with its outermost ANDs as plain ANDs instead of CASE
    (`planner/expressions/connectives.py`): a row is left out if any operand is not true, even if another one fails."""
    has_turns = any(all_of_turn(case) is not None for case in tree.find_all(exp.Case))
    return all_of(list(conditions_of(tree))) if has_turns else tree


def all_of(conditions: Sequence[exp.Expression]) -> exp.Expression:
    tree = exp.Paren(this=conditions[0].copy())
    for condition in conditions[1:]:
        tree = exp.And(this=tree, expression=exp.Paren(this=condition.copy()))
    return tree
