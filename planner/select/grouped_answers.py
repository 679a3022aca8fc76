"""A grouped query with queries inside its SELECT or HAVING: its groups become a subquery.

    SELECT g, SUM(x) AS s FROM t GROUP BY g HAVING SUM(x) > (SELECT AVG(y) FROM b)

is planned as

    SELECT g, a AS s FROM (SELECT g, SUM(x) AS a FROM t GROUP BY g) t WHERE a > (SELECT AVG(y) FROM b)

The subquery has the source's name, so that queries inside can name the columns by which it is grouped.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from millstream.errors import InvalidStatement

from ...sql import ast
from ...sql.ast import Query, span_of, unwrapped
from ...sql.printing import print_expression
from ..expressions.compilation import compile_expression
from ..planning import PlanningContext
from ..schema import WINDOW_BOUNDS
from .aggregation import contains_aggregate, parts_of_window, place_in_grouping
from .answers import column_of, ordered_by, replace_outer
from .naming import bare_name
from .origin import Plan
from .relation import PlannedRelation, Target, aliases_of
from .relations import relation_of
from .select_items import Item, expand

_GROUPS = "SUBQUERY_GROUPS"
_PSEUDO = (*WINDOW_BOUNDS, "ROWTIME")


def with_groups_below(query: Query, context: PlanningContext, target: Target, plan: Plan) -> Query:
    """The query over its groups, if an expression beside its aggregates contains a query; else the query itself.

    In: `plan`: plans a query in FROM. Raises `InvalidStatement` for a column that is neither grouped nor aggregated.
    """
    selected = [item.expression for item in query.items if isinstance(item, ast.SelectColumn)]
    grouped = bool(query.group_by) or any(map(contains_aggregate, selected))
    asking = [*selected, *([] if query.having is None else [query.having])]
    if not grouped or len(selected) < len(query.items) or not any(node.find(exp.Subquery) for node in asking):
        return query
    if any(map(contains_aggregate, query.group_by)):
        return query  # which is refused
    groups = _Groups(query, relation_of(query, context, plan), target)
    above = None if query.having is None else groups.above(query.having)
    items = tuple(groups.selected(item) for item in groups.items)
    qualify = None if query.qualify is None else groups.above(query.qualify)
    order_by = tuple(ordered_by(node, groups.above(node.this)) for node in query.order_by)
    rows = replace(
        query, items=groups.columns(), group_by=groups.by, having=None, qualify=None,
        distinct=False, order_by=(), limit=None, offset=None, ctes=(), emit="FINAL" if query.emit == "FINAL" else None,
    )  # fmt: skip
    return replace(
        query, items=items, source=ast.Subquery(queries=(rows,), alias=groups.alias, span=query.source.span),
        where=above, group_by=(), having=None, window=None, qualify=qualify,
        order_by=order_by, emit="CHANGES" if query.emit == "FINAL" else query.emit,
    )  # fmt: skip


class _Groups:
    """The columns of the subquery: the grouping expressions, and each aggregate and bound of the window asked for.

    `alias`: the name that it has in the query above. `items`: what SELECT asks for. `by`: the grouping expressions,
    without aliases.
    """

    def __init__(self, query: Query, relation: PlannedRelation, target: Target) -> None:
        (self.alias,) = aliases_of(query.source)
        self.items = expand(query, relation, target)
        columns = {name for source in relation.scope.sources for name in source.columns}
        self._selected = {i.name: i.expression for i in self.items if i.aliased and i.name not in columns}
        self.by = tuple(self._meant(node) or node for node in query.group_by)
        self._scope = relation.scope
        self._compiled = [compile_expression(node, self._scope.within("GROUP BY")).tree for node in self.by]
        names = [bare_name(node) for node in self.by]
        self._keys = [name if name and names.count(name) == 1 else f"{_GROUPS}_KEY_{i}" for i, name in enumerate(names)]
        self._asked: list[exp.Expression] = []

    def columns(self) -> tuple[ast.SelectColumn, ...]:
        """What the subquery selects, after all expressions above it are known."""
        named = [
            *zip(self.by, self._keys, strict=True),
            *((node, f"{_GROUPS}_{i}") for i, node in enumerate(self._asked)),
        ]
        return tuple(ast.SelectColumn(expression=node, alias=name, span=span_of(node)) for node, name in named)

    def selected(self, item: Item) -> ast.SelectColumn:
        """The item over the columns of the subquery, under the name that it has without one."""
        return ast.SelectColumn(expression=self._above(item.expression, frozenset()), alias=item.name, span=item.span)

    def above(self, node: exp.Expression) -> exp.Expression:
        """The expression of another clause over the columns of the subquery. It may use the names that SELECT gives."""
        return self._above(node, frozenset(self._selected))

    def _above(self, node: exp.Expression, aliases: frozenset[str]) -> exp.Expression:
        root = exp.Paren(this=node.copy())
        self._replace(root.this, frozenset(), aliases)
        replace_outer(root, frozenset([self.alias]), self._outer)
        return root.this

    def _replace(self, node: exp.Expression, parameters: frozenset[str], aliases: frozenset[str]) -> None:
        """In: `parameters`: those of the lambdas around. `aliases`: the names of SELECT that may stand here."""
        key = place_in_grouping(node, self._compiled, self._scope)
        if key is not None:
            node.replace(self._column(self._keys[key], node))
        elif isinstance(node, exp.Anonymous) and contains_aggregate(node) == node.name:
            node.replace(self._column(self._name_of(node), node))
        elif isinstance(node, exp.Window):
            for part in parts_of_window(node):
                self._replace(part, parameters, aliases)
        elif isinstance(node, exp.Lambda):
            own = parameters | {parameter.name for parameter in node.expressions}
            self._replace(node.this, own, aliases - own)
        elif isinstance(node, exp.Column):
            self._replace_column(node, parameters, aliases)
        else:
            for child in list(node.iter_expressions()):
                self._replace(child, parameters, aliases)

    def _replace_column(self, node: exp.Column, parameters: frozenset[str], aliases: frozenset[str]) -> None:
        if not node.table and node.name in parameters:
            return
        if not node.table and node.name in _PSEUDO:
            node.replace(self._column(self._name_of(node), node))
            return
        meant = self._meant(node) if node.name in aliases else None
        if meant is None:
            raise _not_grouped(node)
        wrapped = exp.Paren(this=meant.copy())
        node.replace(wrapped)
        self._replace(wrapped.this, parameters, frozenset())

    def _outer(self, node: exp.Column) -> exp.Column:
        """The column of the subquery for one that a query inside an expression names with its source."""
        key = place_in_grouping(node, self._compiled, self._scope)
        if key is None:
            raise _not_grouped(node)
        return self._column(self._keys[key], node)

    def _meant(self, node: exp.Expression) -> exp.Expression | None:
        """What SELECT calls by this name."""
        inner = unwrapped(node)
        return self._selected.get(inner.name) if isinstance(inner, exp.Column) and not inner.table else None

    def _name_of(self, node: exp.Expression) -> str:
        if node not in self._asked:
            self._asked.append(node.copy())
        return f"{_GROUPS}_{self._asked.index(node)}"

    def _column(self, name: str, instead_of: exp.Expression) -> exp.Column:
        made = column_of(self.alias, name)
        made.meta["span"] = span_of(instead_of)
        return made


def _not_grouped(node: exp.Column) -> InvalidStatement:
    return InvalidStatement(
        f"Non-aggregate SELECT expression(s) not part of GROUP BY: {print_expression(node)}\n"
        "Either add the column(s) to the GROUP BY or remove them from the SELECT.",
        span=span_of(node),
        hint="Add it to GROUP BY, or aggregate it.",
    )
