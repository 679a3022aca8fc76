"""The names that SELECT gives, where GROUP BY, HAVING and QUALIFY use them.

ksqlDB knows them nowhere. Here they mean what DuckDB, PostgreSQL (GROUP BY) and others take them for: the expression in
SELECT. A column of FROM with the same name comes first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from ...sql.ast import Query, SelectColumn, unwrapped
from .over_clause import contains_over
from .relation import PlannedRelation
from .select_items import Item


def grouped_without_aliases(query: Query, items: Sequence[Item], relation: PlannedRelation) -> Query:
    """The query with GROUP BY and HAVING that have columns of FROM only."""
    having = query.having
    return replace(
        query,
        group_by=tuple(without_aliases(node, items, relation) for node in query.group_by),
        having=None if having is None else without_aliases(having, items, relation),
    )


def without_aliases(node: exp.Expression, items: Sequence[Item], relation: PlannedRelation) -> exp.Expression:
    """An expression with each alias replaced by the expression that it names.

    The alias of a function OVER … also hides a column of FROM: QUALIFY is there for these functions.
    """
    columns = {name for source in relation.scope.sources for name in source.columns}
    selected = {
        item.name: item.expression for item in items if item.name not in columns or contains_over(item.expression)
    }
    root = exp.Paren(this=node.copy())
    for reference in list(root.find_all(exp.Column)):
        meant = selected.get(reference.name)
        if meant is not None and not reference.table and not _is_parameter(reference):
            alone = reference.parent is root or isinstance(meant, exp.Window)
            reference.replace(meant.copy() if alone else exp.Paren(this=meant.copy()))
    return root.this


def aliases_of(query: Query) -> dict[str, exp.Expression]:
    """What SELECT gives a name, by that name."""
    return {item.alias: item.expression for item in query.items if isinstance(item, SelectColumn) and item.alias}


def column_number(node: exp.Expression) -> int | None:
    """The number of a selected column, from 1, if the expression of ORDER BY is one."""
    node = unwrapped(node)
    return int(node.name) if isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit() else None


def with_aliases_first(node: exp.Expression, aliases: Mapping[str, exp.Expression]) -> exp.Expression:
    """An expression of ORDER BY with each alias replaced by what it names: there an alias hides a column of FROM."""
    root = exp.Paren(this=node.copy())
    for column in list(root.find_all(exp.Column)):
        if not column.table and column.name in aliases:
            column.replace(exp.Paren(this=aliases[column.name].copy()))
    return root.this


def _is_parameter(reference: exp.Column) -> bool:
    """Whether it names a parameter of a lambda around it."""
    around = reference.find_ancestor(exp.Lambda)
    while around is not None:
        if any(parameter.name == reference.name for parameter in around.expressions):
            return True
        around = around.find_ancestor(exp.Lambda)
    return False
