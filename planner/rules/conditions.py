"""Predicates as lists of conditions that must all be true."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import exp


def conditions_of(tree: exp.Expression) -> Iterator[exp.Expression]:
    """Those that must all be true for the tree to be true."""
    match tree:
        case exp.Paren():
            yield from conditions_of(tree.this)
        case exp.Coalesce() if [each.sql() for each in tree.expressions] == ["FALSE"]:
            yield from conditions_of(tree.this)
        case exp.And():
            yield from conditions_of(tree.this)
            yield from conditions_of(tree.expression)
        case _:
            yield tree


def all_of(conditions: Sequence[exp.Expression]) -> exp.Expression:
    tree = exp.Paren(this=conditions[0].copy())
    for condition in conditions[1:]:
        tree = exp.And(this=tree, expression=exp.Paren(this=condition.copy()))
    return tree
