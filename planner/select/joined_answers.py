"""A query over a join with queries inside its expressions: the join becomes a subquery.

    SELECT a.x FROM a JOIN b ON … WHERE a.y > (SELECT MAX(z) FROM c WHERE c.k = b.k)

is planned as

    SELECT j.A_X AS X FROM (SELECT a.x AS A_X, a.y AS A_Y, b.k AS B_K FROM a JOIN b ON …) j
    WHERE j.A_Y > (SELECT MAX(z) FROM c WHERE c.k = j.B_K)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from sqlglot import exp

from millstream.errors import UnknownColumn

from ...sql import ast
from ...sql.ast import Query, span_of
from ...sql.printing import print_expression
from ..planning import PlanningContext
from ..schema import WINDOW_BOUNDS
from .answers import column_of, ordered_by, replace_outer
from .naming import AliasGenerator
from .origin import Plan
from .relation import PlannedRelation, Target, aliases_of
from .relations import relation_of
from .select_items import expand

_JOIN = "SUBQUERY_JOIN"


def with_join_below(query: Query, context: PlanningContext, target: Target, plan: Plan) -> Query:
    """The query over its join, if an expression contains a query; else the query itself. In: `plan`: plans a query in
    FROM. Raises `StatementError`s for names that FROM does not have."""
    if not isinstance(query.source, ast.Join) or not any(node.find(exp.Subquery) for node in _expressions(query)):
        return query
    relation = relation_of(query, context, plan)
    items = expand(query, relation, target)
    joined = _Joined(query.source, relation, {item.name for item in items if item.aliased})
    above = replace(
        query,
        items=tuple(
            ast.SelectColumn(expression=joined.above(item.expression), alias=item.name, span=item.span)
            for item in items
        ),
        where=None if query.where is None else joined.above(query.where, "WHERE"),
        group_by=tuple(joined.above(node, "GROUP BY") for node in query.group_by),
        partition_by=tuple(joined.above(node, "PARTITION BY") for node in query.partition_by),
        having=None if query.having is None else joined.above(query.having, "HAVING"),
        qualify=None if query.qualify is None else joined.above(query.qualify, "QUALIFY"),
        order_by=tuple(ordered_by(node, joined.above(node.this, "ORDER BY")) for node in query.order_by),
    )
    return replace(above, source=joined.rows())


def _expressions(query: Query) -> Iterator[exp.Expression]:
    """Those in which a query may stand."""
    yield from (item.expression for item in query.items if isinstance(item, ast.SelectColumn))
    yield from (node for node in (query.where, query.having, query.qualify) if node is not None)


class _Joined:
    """The columns of the subquery: those of the join that are asked for, as `SOURCE_COLUMN`.

    In: `aliases`: names that SELECT gives, which other clauses may use.
    """

    def __init__(self, join: ast.Join, relation: PlannedRelation, aliases: Collection[str]) -> None:
        self._join = join
        self._relation = relation
        self._later = {*aliases, *WINDOW_BOUNDS}
        self._names = AliasGenerator(())
        self._columns: dict[exp.Column, str] = {}

    def rows(self) -> ast.Subquery:
        """The subquery, after all expressions above it are known. It has the key and what identifies a row, too."""
        kept = {*self._relation.identity, *(c.name for c in self._relation.plan.schema.key)}
        for source in self._relation.scope.sources:
            for name, (in_plan, _) in source.columns.items():
                if in_plan in kept:
                    self._column(column_of(source.alias, name))
        items = tuple(ast.SelectColumn(expression=node, alias=name) for node, name in self._columns.items())
        star = ast.SelectStar(span=self._join.span)  # where no column is asked for
        rows = Query(items=items or (star,), source=self._join, span=self._join.span, text="")
        return ast.Subquery(queries=(rows,), alias=_JOIN, span=self._join.span)

    def above(self, node: exp.Expression, clause: str = "SELECT") -> exp.Expression:
        """The expression over the columns of the subquery."""
        root = exp.Paren(this=node.copy())
        scope = self._relation.scope.within(clause)
        parameters = {parameter.name for found in root.find_all(exp.Lambda) for parameter in found.expressions}
        for found in list(root.find_all(exp.Column)):
            try:
                scope.resolve(found)
            except UnknownColumn:
                if found.table or found.name not in self._later | parameters:
                    raise
            else:
                found.replace(self._column(found))
        replace_outer(root, frozenset(aliases_of(self._join)), self._outer)
        return root.this

    def _outer(self, node: exp.Column) -> exp.Column:
        """The column of the subquery for one that a query inside an expression names with its source."""
        self._relation.scope.within("WHERE").resolve(node)
        return self._column(node)

    def _column(self, node: exp.Column) -> exp.Column:
        sources = self._relation.scope.sources
        of = node.table or next(source.alias for source in sources if node.name in source.columns)
        found = column_of(of, node.name) if of else node.copy()
        if found not in self._columns:
            self._columns[found] = self._names.field(f"{of}_{node.name}" if of else node.name)
        made = column_of(_JOIN, self._columns[found])
        made.meta.update(span=span_of(node), written=print_expression(node))
        return made
