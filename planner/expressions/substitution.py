"""Rewrites conditions over a node's columns as conditions over the expressions that compute these columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sqlglot import exp

from ..schema import Schema
from .typed import Typed


def computed_from(condition: Typed, schema: Schema, made: Mapping[str, Typed]) -> Typed | None:
    """The condition over the input rows from which the columns of `schema` are `made`; columns not in `made` stay.

    None if it reads other columns (the pseudo columns of a joined pair are not those of its rows), or expressions whose
    value differs from call to call.
    """
    if not condition.columns() <= {column.name for column in schema}:
        return None
    read = [made[name] for name in condition.columns() if name in made]
    if any(typed.volatile for typed in read):
        return None
    total = condition.total and all(typed.total for typed in read)
    return replace(condition, tree=_substituted(condition.tree, made), total=total)


def _substituted(tree: exp.Expression, made: Mapping[str, Typed]) -> exp.Expression:
    def replaced(node: exp.Expression) -> exp.Expression:
        if not isinstance(node, exp.Column) or node.name not in made:
            return node
        expression = made[node.name]
        copy = expression.tree.copy()
        return copy if expression.column is not None else exp.Paren(this=copy)

    return tree.copy().transform(replaced)
