"""Turns the result of a query inside an expression into a column of the outer source.

    (SELECT MAX(y) FROM …)   CASE WHEN there are rows THEN MAX(y) ELSE the expression's value over no rows END
    EXISTS (SELECT …)        there are rows
    x IN (SELECT y FROM …)   CASE WHEN x is among the different y THEN TRUE
                                  WHEN there are no rows OR (x IS NOT NULL AND no y is NULL) THEN FALSE END

So IN is NULL as in standard SQL: if there are rows and either x is NULL, or x is not found and some y is NULL. Each of
them is a left join on the columns of the outer source that the query names, or on a constant that is equal in all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from typing import Literal

from sqlglot import exp

from millstream.errors import Span, Unsupported

from ...sql import ast
from ...sql.ast import Query, conjuncts, span_of, unwrapped
from ..planning import PlanningContext
from ..source_info import SourceInfo
from .aggregation import contains_aggregate
from .naming import answer, bare_name
from .relation import aliases_of

VALUE = "SUBQUERY_VALUE"
_SAME = answer("same")
_COUNTS = ("COUNT", "COUNT_DISTINCT", "APPROX_COUNT_DISTINCT")

Pairs = Sequence[tuple[exp.Expression, str]]
"""An expression over the outer source, and the column of the values that it has to equal."""


class Answers:
    """`source`: the outer source, with everything joined to it so far."""

    def __init__(self, source: ast.FromItem) -> None:
        self.source = source
        self._carried: list[str] = []
        self._aliases = 0

    def next_alias(self) -> str:
        self._aliases += 1
        return f"SUBQUERY_{self._aliases - 1}"

    def inside(self, node: exp.Expression) -> exp.Expression:
        """The expression with its queries replaced by columns. Raises `Unsupported`."""
        root = exp.Paren(this=node.copy())
        for found in list(_asking(root.this)):
            answered = self._answer(found)
            answered.meta["span"] = span_of(found)
            found.replace(answered)
        return root.this

    def keep(
        self,
        values: ast.Subquery,
        pairs: Pairs,
        more: Sequence[exp.Expression],
        *,
        kind: Literal["INNER", "LEFT"] = "INNER",
        where: exp.Expression | None = None,
        lies_by: tuple[exp.Expression, ...] | None = None,
    ) -> None:
        """Keeps only the rows that have a partner among `values`, or for which `where` is true. `lies_by`: the key of
        the rows after this, if it matters."""
        self._join(values, pairs, more, kind, where=where)
        if lies_by is not None and {bare_name(p) for p, _ in pairs} != {bare_name(p) for p in lies_by}:
            star = ast.SelectStar(span=values.span)
            by = lies_by or (exp.Null(),)
            rows = Query(items=(star,), source=self.source, partition_by=by, span=values.span, text="")
            self.source = ast.Subquery(queries=(rows,), alias=self.source.alias, span=self.source.span)

    def one_value(self, query: Query, span: Span | None) -> tuple[Pairs, ast.Subquery]:
        """The query's value for each combination of the outer columns that it names."""
        item = only_value(query)
        if contains_aggregate(item) is None or query.group_by:
            raise Unsupported(
                "the query may give several values",
                span=query.span,
                hint="Let it select an aggregate without GROUP BY, such as MAX(…).",
            )
        keys, rest = correlated(query, self.source)
        keys = keys or [(_number(0), self._same())]
        groups = tuple(own for own, _ in keys)
        values = replace(
            query,
            items=(*keyed_items(groups), ast.SelectColumn(expression=item, alias=VALUE)),
            source=_as_standard(query.source),
            where=all_of(rest) if rest else None,
            group_by=groups,
        )
        return _pairs(keys), ast.Subquery(queries=(values,), alias=self.next_alias(), span=span)

    def _answer(self, node: exp.Expression) -> exp.Expression:
        if isinstance(node, exp.In):
            return self._is_in(node)
        if isinstance(node, exp.Exists):
            return self._exists(node.this.meta["query"], span_of(node))
        query: Query = node.meta["query"]
        pairs, values = self.one_value(query, span_of(node))
        found = column_of(values.alias, VALUE)
        nothing = over_nothing(query)
        if nothing is not None:
            some = _is_not_null(column_of(values.alias, f"{VALUE}_0"))
            found = exp.Case(ifs=[exp.If(this=some, true=found)], default=nothing)
        return self._joined(values, pairs, found)

    def _exists(self, query: Query, span: Span | None) -> exp.Expression:
        pairs, values = self.different(query, None, span)
        return self._joined(values, pairs, _is_not_null(column_of(values.alias, f"{VALUE}_0")))

    def _is_in(self, node: exp.In) -> exp.Expression:
        query: Query = node.args["query"].meta["query"]
        value, span = node.this, span_of(node)
        if value.find(exp.Subquery) is not None:
            raise Unsupported(
                "a query cannot be looked for in a query",
                span=span_of(value),
                hint="Make the first query a column of a subquery: FROM (SELECT *, (SELECT …) AS v FROM a) q WHERE "
                "q.v IN (SELECT …).",
            )
        pairs, values = self.different(query, value, span)
        among = self._joined(values, pairs, _is_not_null(column_of(values.alias, VALUE)))
        pairs, values = self._has_null(query, span)
        null = self._joined(values, pairs, column_of(values.alias, VALUE))
        none = exp.Is(this=null, expression=exp.Null())
        known = exp.And(this=_is_not_null(value.copy()), expression=exp.EQ(this=null.copy(), expression=_number(0)))
        decided = exp.Paren(this=exp.Or(this=none, expression=exp.Paren(this=known)))
        branches = [exp.If(this=among, true=exp.true()), exp.If(this=decided, true=exp.false())]
        return exp.Case(ifs=branches, default=exp.Null())

    def different(self, query: Query, value: exp.Expression | None, span: Span | None) -> tuple[Pairs, ast.Subquery]:
        """The distinct values of the query, for each combination of the outer columns that it names. The pairs never
        match NULLs."""
        keys, rest = correlated(query, self.source)
        if value is None:
            keys = keys or [(_number(0), self._same())]
        items = keyed_items(own for own, _ in keys)
        if value is not None:
            items = (*items, ast.SelectColumn(expression=only_value(query), alias=VALUE))
        values = _selecting(query, items, rest, distinct=True)
        pairs = [*_pairs(keys), *([] if value is None else [(value.copy(), VALUE)])]
        return pairs, ast.Subquery(queries=(values,), alias=self.next_alias(), span=span)

    def _has_null(self, query: Query, span: Span | None) -> tuple[Pairs, ast.Subquery]:
        """1 if the query's values contain a NULL, 0 if they contain only other values."""
        keys, rest = correlated(query, self.source)
        keys = keys or [(_number(0), self._same())]
        is_null = exp.Is(this=only_value(query).copy(), expression=exp.Null())
        flag = exp.Case(ifs=[exp.If(this=is_null, true=_number(1))], default=_number(0))
        items = (*keyed_items(own for own, _ in keys), ast.SelectColumn(expression=flag, alias=VALUE))
        rows = ast.Subquery(queries=(_selecting(query, items, rest, distinct=False),), alias="ROWS", span=span)
        groups = tuple(column_of("ROWS", f"{VALUE}_{i}") for i in range(len(keys)))
        largest = exp.Anonymous(this="MAX", expressions=[column_of("ROWS", VALUE)])
        items = (*keyed_items(groups), ast.SelectColumn(expression=largest, alias=VALUE))
        values = Query(items=items, source=rows, group_by=groups, span=query.span, text="")
        return _pairs(keys), ast.Subquery(queries=(values,), alias=self.next_alias(), span=span)

    def _joined(self, values: ast.Subquery, pairs: Pairs, found: exp.Expression) -> exp.Column:
        """Joins `values` to the source. The result is a column with the value of `found` for each row's partner."""
        name = answer(values.alias)
        self._join(values, pairs, (), "LEFT", [ast.SelectColumn(expression=found, alias=name)])
        self._carried.append(name)
        return column_of(self.source.alias, name)

    def _join(
        self,
        values: ast.Subquery,
        pairs: Pairs,
        more: Sequence[exp.Expression],
        kind: Literal["INNER", "LEFT"],
        items: Sequence[ast.SelectColumn] = (),
        where: exp.Expression | None = None,
    ) -> None:
        on = [exp.EQ(this=outer.copy(), expression=column_of(values.alias, name)) for outer, name in pairs]
        for condition in (*on, *more):
            condition.meta["span"] = values.span
        join = ast.Join(
            left=self.source, right=values, kind=kind, on=all_of([*on, *more]), span=values.span
        )  # fmt: skip
        self._select(join, items, where)

    def _same(self) -> exp.Expression:
        """A column of the source with the same number in all rows."""
        if _SAME not in self._carried:
            self._select(self.source, [ast.SelectColumn(expression=_number(0), alias=_SAME)], None)
            self._carried.append(_SAME)
        return column_of(self.source.alias, _SAME)

    def _select(self, source: ast.Relation, items: Sequence[ast.SelectColumn], where: exp.Expression | None) -> None:
        alias, span = self.source.alias, self.source.span
        carried = [ast.SelectColumn(expression=column_of(alias, name), alias=name) for name in self._carried]
        star = ast.SelectStar(source=alias, span=span)
        rows = Query(items=(star, *carried, *items), source=source, where=where, span=span, text="")
        self.source = ast.Subquery(queries=(rows,), alias=alias, span=span)


# ------------------------------------------------------------------ queries


def correlated(
    query: Query, source: ast.FromItem
) -> tuple[list[tuple[exp.Expression, exp.Expression]], list[exp.Expression]]:
    """The query's equalities with columns of the outer source, as (inner, outer), and its other conditions."""
    outer = source.alias
    keys: list[tuple[exp.Expression, exp.Expression]] = []
    rest: list[exp.Expression] = []
    for node in () if query.where is None else conjuncts(query.where):
        if isinstance(query.source, ast.Join) or query.source.alias == outer or not _names(node, outer):
            rest.append(node)
            continue
        equality = unwrapped(node)
        sides = [equality.this, equality.expression] if isinstance(equality, exp.EQ) else []
        own = [side for side in sides if not _names(side, outer)]
        if len(own) != 1 or not _names_only(next(side for side in sides if side is not own[0]), outer):
            raise Unsupported(
                f"what the query says about {outer} has to be equalities of its columns with columns of {outer}",
                span=span_of(node),
                hint="Join the query instead: the conditions of ON can compare in other ways too.",
            )
        keys.append((own[0], next(side for side in sides if side is not own[0])))
    return keys, rest


def replace_outer(
    node: exp.Expression, outer: frozenset[str], replaced: Callable[[exp.Column], exp.Expression]
) -> None:
    """Replaces, in the WHERE of queries inside the expression, columns that are named with one of the sources
    `outer`."""
    for found in node.find_all(exp.Subquery):
        query: Query = found.meta["query"]
        seen = outer - frozenset(aliases_of(query.source))
        if query.where is None or not seen:
            continue
        root = exp.Paren(this=query.where.copy())
        for own in list(root.find_all(exp.Column)):
            if own.table in seen:
                own.replace(replaced(own))
        replace_outer(root, seen, replaced)
        found.meta["query"] = replace(query, where=root.this)


def ordered_by(node: exp.Ordered, expression: exp.Expression) -> exp.Ordered:
    """The item of ORDER BY, by another expression, in the same direction."""
    copied = node.copy()
    copied.set("this", expression)
    return copied


def only_value(query: Query) -> exp.Expression:
    """The only expression that the query selects."""
    item = query.items[0]
    if len(query.items) != 1 or not isinstance(item, ast.SelectColumn):
        raise Unsupported("the query has to select one column", span=query.span)
    return item.expression


def over_nothing(query: Query) -> exp.Expression | None:
    """The value of the query's expression over no rows at all; None if it is NULL."""
    root = exp.Paren(this=only_value(query).copy())
    calls = [call for call in root.find_all(exp.Anonymous) if contains_aggregate(call) == call.name]
    if query.having is not None or not any(call.name in _COUNTS for call in calls):
        return None
    for call in calls:
        call.replace(_number(0) if call.name in _COUNTS else exp.Null())
    return root


def named(item: ast.Relation, context: PlanningContext) -> SourceInfo | None:
    """The source of the catalog that this member of FROM names; None for anything else."""
    if not isinstance(item, ast.SourceName) or item.name in context.ctes:
        return None
    return context.catalog.sources.get(item.name)


def _selecting(
    query: Query, items: tuple[ast.SelectItem, ...], rest: Sequence[exp.Expression], *, distinct: bool
) -> Query:
    """The query, grouped or not, with `items` as its SELECT list."""
    aggregates = any(isinstance(i, ast.SelectColumn) and contains_aggregate(i.expression) for i in items)
    if aggregates and not query.group_by:
        raise Unsupported(
            "the query gives one value, which it is not looked for in",
            span=query.span,
            hint="Compare with it: x = (SELECT MAX(…) …).",
        )
    rows = replace(query, items=items, where=all_of(rest) if rest else None, distinct=distinct)
    if not distinct or not (query.group_by or query.qualify is not None):
        return rows
    inner = ast.Subquery(queries=(replace(rows, distinct=False),), alias="ROWS", span=query.span)
    names = [item.alias for item in items if isinstance(item, ast.SelectColumn) and item.alias is not None]
    outer = tuple(ast.SelectColumn(expression=column_of("ROWS", name), alias=name) for name in names)
    return Query(items=outer, source=inner, distinct=True, span=query.span, text="")


def _as_standard(source: ast.Relation) -> ast.Relation:
    """The source as a subquery, over which SUM of NULLs is NULL as in standard SQL, and not 0 as in ksqlDB."""
    if not isinstance(source, ast.SourceName):
        return source
    rows = Query(items=(ast.SelectStar(span=source.span),), source=source, span=source.span, text="")
    return ast.Subquery(queries=(rows,), alias=source.alias, span=source.span)


def keyed_items(expressions: Iterable[exp.Expression]) -> tuple[ast.SelectColumn, ...]:
    return tuple(ast.SelectColumn(expression=own, alias=f"{VALUE}_{i}") for i, own in enumerate(expressions))


def _pairs(keys: Sequence[tuple[exp.Expression, exp.Expression]]) -> Pairs:
    return [(outer, f"{VALUE}_{i}") for i, (_, outer) in enumerate(keys)]


# ------------------------------------------------------------------ expressions


def _asking(node: exp.Expression) -> Iterator[exp.Expression]:
    """The outermost nodes that contain a query."""
    if isinstance(node, exp.Subquery | exp.Exists) or (isinstance(node, exp.In) and node.args.get("query")):
        yield node
        return
    for child in node.iter_expressions():
        yield from _asking(child)


def _names(node: exp.Expression, source: str) -> bool:
    return any(column.table == source for column in node.find_all(exp.Column))


def _names_only(node: exp.Expression, source: str) -> bool:
    return all(column.table == source for column in node.find_all(exp.Column))


def column_of(source: str, name: str) -> exp.Column:
    return exp.Column(this=exp.Identifier(this=name, quoted=True), table=exp.Identifier(this=source, quoted=True))


def _is_not_null(node: exp.Expression) -> exp.Expression:
    return exp.Not(this=exp.Is(this=node, expression=exp.Null()))


def _number(value: int) -> exp.Expression:
    return exp.Literal.number(value)


def all_of(nodes: Sequence[exp.Expression]) -> exp.Expression:
    """The conditions joined by AND."""

    def both(first: exp.Expression, second: exp.Expression) -> exp.Expression:
        node = exp.And(this=first, expression=second)
        node.meta["span"] = span_of(first)
        return node

    return reduce(both, nodes)
