"""A grouped query with queries inside its SELECT or HAVING: its groups become a subquery.

    SELECT g, SUM(x) AS s FROM t GROUP BY g HAVING SUM(x) > (SELECT AVG(y) FROM b)

is planned as

    SELECT g, a AS s FROM (SELECT g, SUM(x) AS a FROM t GROUP BY g) t WHERE a > (SELECT AVG(y) FROM b)

The subquery has the source's name, so that queries inside can name the columns by which it is grouped.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from sqlglot import exp

from millstream.errors import InvalidStatement

from ...sql import ast
from ...sql.ast import Query, span_of, unwrapped
from ...sql.printing import print_expression
from .aggregation import contains_aggregate, parts_of_window
from .answers import column_of
from .naming import AliasGenerator, bare_name
from .relation import PlannedRelation

_GROUPS = "SUBQUERY_GROUPS"
_PSEUDO = ("WINDOWSTART", "WINDOWEND", "ROWTIME")


def with_groups_below(query: Query, relation: Callable[[], PlannedRelation]) -> Query:
    """The query over its groups, if an expression beside its aggregates contains a query; else the query itself.

    In: `relation`: plans FROM, whose columns come before aliases. Raises `InvalidStatement` for a column that is
    neither grouped nor aggregated.
    """
    selected = [item.expression for item in query.items if isinstance(item, ast.SelectColumn)]
    grouped = bool(query.group_by) or any(map(contains_aggregate, selected))
    asking = [*selected, *([] if query.having is None else [query.having])]
    if not grouped or len(selected) < len(query.items) or not any(node.find(exp.Subquery) for node in asking):
        return query
    groups = _Groups(query, {name for source in relation().scope.sources for name in source.columns})
    above = None if query.having is None else groups.above(query.having)
    items = tuple(groups.selected(item) for item in query.items if isinstance(item, ast.SelectColumn))
    qualify = None if query.qualify is None else groups.above(query.qualify)
    order_by = tuple(groups.ordered(node) for node in query.order_by)
    rows = replace(
        query, items=groups.items(), group_by=groups.by, having=None, qualify=None,
        distinct=False, order_by=(), limit=None, offset=None, ctes=(), emit="FINAL" if query.emit == "FINAL" else None,
    )  # fmt: skip
    return replace(
        query, items=items, source=ast.Subquery(queries=(rows,), alias=groups.alias, span=query.source.span),
        where=above, group_by=(), having=None, window=None, qualify=qualify,
        order_by=order_by, emit="CHANGES" if query.emit == "FINAL" else query.emit,
    )  # fmt: skip


class _Groups:
    """The columns of the subquery: the grouping expressions, and each aggregate and bound of the window asked for.

    `alias`: the name that it has in the query above. `by`: the grouping expressions, without aliases.
    """

    def __init__(self, query: Query, columns: Collection[str]) -> None:
        self._single = None if isinstance(query.source, ast.Join) else query.source.alias
        self.alias = self._single or _GROUPS
        self._aliases = AliasGenerator(())
        self._selected = {
            item.alias: item.expression
            for item in query.items
            if isinstance(item, ast.SelectColumn) and item.alias and item.alias not in columns
        }
        by = [(node, self._meant(node) or node) for node in query.group_by]
        self.by = tuple(meant for _, meant in by)
        names = [bare_name(meant) for meant in self.by]
        self._keys: list[ast.SelectColumn] = []
        self._names: list[tuple[exp.Expression, str]] = []
        for i, ((node, meant), name) in enumerate(zip(by, names, strict=True)):
            alias = name if name and names.count(name) == 1 else f"{_GROUPS}_KEY_{i}"
            self._keys.append(ast.SelectColumn(expression=meant, alias=alias, span=span_of(node)))
            self._names += [(self._plain(written), alias) for written in (node, meant)]
        self._asked: list[exp.Expression] = []

    def items(self) -> tuple[ast.SelectColumn, ...]:
        """What the subquery selects, after all expressions above it are known."""
        asked = [
            ast.SelectColumn(expression=node, alias=f"{_GROUPS}_{i}", span=span_of(node))
            for i, node in enumerate(self._asked)
        ]
        return (*self._keys, *asked)

    def selected(self, item: ast.SelectColumn) -> ast.SelectColumn:
        """The item over the columns of the subquery, under the name that it has without one."""
        node, alias = unwrapped(item.expression), item.alias
        if alias is None:
            match node:
                case exp.Column():
                    alias = node.name
                case exp.Dot():
                    alias = self._aliases.field(node.expression.name)
                case _:
                    alias = self._aliases.next()
        return replace(item, expression=self._above(item.expression, frozenset()), alias=alias)

    def above(self, node: exp.Expression) -> exp.Expression:
        """The expression of another clause over the columns of the subquery. It may use the names that SELECT gives."""
        return self._above(node, frozenset(self._selected))

    def _above(self, node: exp.Expression, aliases: frozenset[str]) -> exp.Expression:
        root = exp.Paren(this=node.copy())
        self._replace(root.this, frozenset(), aliases)
        return root.this

    def ordered(self, node: exp.Ordered) -> exp.Ordered:
        copied = node.copy()
        copied.set("this", self.above(node.this))
        return copied

    def _replace(self, node: exp.Expression, parameters: frozenset[str], aliases: frozenset[str]) -> None:
        """In: `parameters`: those of the lambdas around. `aliases`: the names of SELECT that may stand here."""
        key = self._key_of(node)
        if key is not None:
            node.replace(self._column(key, node))
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
            raise InvalidStatement(
                f"Non-aggregate SELECT expression(s) not part of GROUP BY: {print_expression(node)}\n"
                "Either add the column(s) to the GROUP BY or remove them from the SELECT.",
                span=span_of(node),
                hint="Add it to GROUP BY, or aggregate it.",
            )
        wrapped = exp.Paren(this=meant.copy())
        node.replace(wrapped)
        self._replace(wrapped.this, parameters, frozenset())

    def _meant(self, node: exp.Expression) -> exp.Expression | None:
        """What SELECT calls by this name."""
        inner = unwrapped(node)
        return self._selected.get(inner.name) if isinstance(inner, exp.Column) and not inner.table else None

    def _key_of(self, node: exp.Expression) -> str | None:
        plain = self._plain(node)
        return next((name for written, name in self._names if written == plain), None)

    def _name_of(self, node: exp.Expression) -> str:
        if node not in self._asked:
            self._asked.append(node.copy())
        return f"{_GROUPS}_{self._asked.index(node)}"

    def _column(self, name: str, instead_of: exp.Expression) -> exp.Column:
        made = column_of(self.alias, name)
        made.meta["span"] = span_of(instead_of)
        return made

    def _plain(self, node: exp.Expression) -> exp.Expression:
        """The expression without parentheses around it, and without the name of the only source."""
        copied = unwrapped(node).copy()
        for column in copied.find_all(exp.Column):
            if column.table == self._single:
                column.set("table", None)
        return copied
