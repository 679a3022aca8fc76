"""Queries as conditions of WHERE, made into joins before anything is planned.

    x IN (SELECT y FROM …)                          joins the different y by x = y
    x > (SELECT MAX(y) FROM b WHERE b.k = a.k)      joins the MAX(y) of every k by k, and x > MAX(y)
    EXISTS (SELECT … FROM b WHERE b.k = a.k)        joins the different k
    NOT EXISTS (…)                                  left joins them, and keeps the rows without a partner

The source and its joins become a subquery of the same name, so that the rest of the statement sees what it saw.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from sqlglot import exp

from millstream.errors import Unsupported

from ..sql import ast
from ..sql.ast import Query, span_of, unwrapped
from .aggregation import contains_aggregate

_MIRRORED: dict[type[exp.Expression], type[exp.Expression]] = {
    exp.EQ: exp.EQ,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
}
_VALUE = "SUBQUERY_VALUE"


@dataclass(frozen=True, slots=True)
class _Condition:
    """`query` under a comparison of `value` with what it gives; no value for EXISTS, which may be `negated`."""

    node: exp.Expression
    query: Query
    comparison: type[exp.Expression] | None = None
    value: exp.Expression | None = None
    distinct: bool = True
    negated: bool = False


def without_value_queries(query: Query) -> Query:
    """The same query with joins in their place. Raises `Unsupported` for what is no join."""
    if query.where is None or query.where.find(exp.Subquery) is None:
        return query
    if isinstance(query.source, ast.Join):
        raise Unsupported(
            "a query cannot be a condition of a join's WHERE",
            span=span_of(query.where),
            hint="Put the join into a subquery: SELECT … FROM (SELECT … FROM a JOIN b ON …) q WHERE ….",
        )
    others: list[exp.Expression] = []
    source = query.source
    for number, node in enumerate(_conjuncts(query.where)):
        if node.find(exp.Subquery) is None:
            others.append(node)
        else:
            source = _joined(source, _condition(node), f"SUBQUERY_{number}")
    return replace(query, source=source, where=_all_of(others) if others else None)


def _condition(node: exp.Expression) -> _Condition:
    inner = unwrapped(node)
    negated = isinstance(inner, exp.Not)
    inner = unwrapped(inner.this) if isinstance(inner, exp.Not) else inner
    match inner:
        case exp.Exists():
            return _Condition(node, inner.this.meta["query"], negated=negated)
        case exp.In() if not negated and inner.args.get("query") is not None and _is_plain(inner.this):
            return _Condition(node, inner.args["query"].meta["query"], exp.EQ, inner.this)
        case exp.EQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE() if not negated:
            left, right = unwrapped(inner.this), unwrapped(inner.expression)
            if isinstance(right, exp.Subquery) and _is_plain(left):
                return _Condition(node, right.meta["query"], type(inner), left, distinct=False)
            if isinstance(left, exp.Subquery) and _is_plain(right):
                return _Condition(node, left.meta["query"], _MIRRORED[type(inner)], right, distinct=False)
        case _:
            pass
    raise Unsupported(
        "a query can be a condition of WHERE as x IN (SELECT …), x = (SELECT MAX(…) …) with =, <, <=, > or >=, and "
        "[NOT] EXISTS (SELECT …), with AND between them",
        span=span_of(node),
        hint="NOT IN can be said with NOT EXISTS, OR with UNION ALL, and everything with a join.",
    )


def _is_plain(node: exp.Expression) -> bool:
    return node.find(exp.Subquery) is None


def _joined(source: ast.FromItem, condition: _Condition, alias: str) -> ast.Subquery:
    """The rows of `source` for which the condition holds, under its name."""
    keys, rest = _correlated(condition, source.alias)
    items = [ast.SelectColumn(expression=inner, alias=f"{_VALUE}_{i}") for i, (inner, _) in enumerate(keys)]
    on: list[exp.Expression] = [
        exp.EQ(this=outer.copy(), expression=_column(alias, f"{_VALUE}_{i}")) for i, (_, outer) in enumerate(keys)
    ]
    if condition.comparison is not None and condition.value is not None:
        items.append(ast.SelectColumn(expression=_only_value(condition), alias=_VALUE))
        on.append(condition.comparison(this=condition.value.copy(), expression=_column(alias, _VALUE)))
    values = replace(
        condition.query,
        items=tuple(items),
        where=_all_of(rest) if rest else None,
        group_by=() if condition.distinct else tuple(inner for inner, _ in keys),
        distinct=condition.distinct,
    )
    span = span_of(condition.node)
    for node in on:
        node.meta["span"] = span
    join = ast.Join(
        left=source,
        right=ast.Subquery(queries=(values,), alias=alias, span=span),
        kind="LEFT" if condition.negated else "INNER",
        on=_all_of(on),
        span=span,
    )
    none = exp.Is(this=_column(alias, f"{_VALUE}_0"), expression=exp.Null()) if condition.negated else None
    rows = Query(
        items=(ast.SelectStar(source=source.alias, span=source.span),), source=join, where=none, span=span, text=""
    )
    return ast.Subquery(queries=(rows,), alias=source.alias, span=source.span)


def _correlated(
    condition: _Condition, outer: str
) -> tuple[list[tuple[exp.Expression, exp.Expression]], list[exp.Expression]]:
    """The equalities with columns of the outer source, as (inner, outer), and the query's own conditions."""
    query = condition.query
    keys: list[tuple[exp.Expression, exp.Expression]] = []
    rest: list[exp.Expression] = []
    for node in () if query.where is None else _conjuncts(query.where):
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
    if not keys and (condition.comparison is None or not condition.distinct):
        raise Unsupported(
            f"the query says nothing about {outer}",
            span=span_of(condition.node),
            hint=f"Name a column of {outer} in its WHERE, with {outer} in front: WHERE b.id = {outer}.id.",
        )
    return keys, rest


def _only_value(condition: _Condition) -> exp.Expression:
    items = condition.query.items
    item = items[0]
    if len(items) != 1 or not isinstance(item, ast.SelectColumn):
        raise Unsupported("the query has to select one column", span=condition.query.span)
    if not condition.distinct and (contains_aggregate(item.expression) is None or condition.query.group_by):
        raise Unsupported(
            "the query may give several values",
            span=condition.query.span,
            hint="Let it select an aggregate without GROUP BY, such as MAX(…).",
        )
    return item.expression


def _names(node: exp.Expression, source: str) -> bool:
    return any(column.table == source for column in node.find_all(exp.Column))


def _names_only(node: exp.Expression, source: str) -> bool:
    return all(column.table == source for column in node.find_all(exp.Column))


def _column(source: str, name: str) -> exp.Column:
    return exp.Column(this=exp.Identifier(this=name, quoted=True), table=exp.Identifier(this=source, quoted=True))


def _conjuncts(node: exp.Expression) -> Iterator[exp.Expression]:
    inner = unwrapped(node)
    if isinstance(inner, exp.And):
        yield from _conjuncts(inner.this)
        yield from _conjuncts(inner.expression)
    else:
        yield node


def _all_of(nodes: Sequence[exp.Expression]) -> exp.Expression:
    def both(first: exp.Expression, second: exp.Expression) -> exp.Expression:
        node = exp.And(this=first, expression=second)
        node.meta["span"] = span_of(first)
        return node

    return reduce(both, nodes)
