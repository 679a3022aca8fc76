"""ORDER BY, LIMIT and OFFSET of a query in FROM or WITH, where the whole query is answered once.

    (SELECT a FROM s ORDER BY b LIMIT 3)   is   (SELECT a FROM s QUALIFY ROW_NUMBER() OVER (ORDER BY b) <= 3)

In SQL the rows of a query in FROM have no order. People and tools expect the one that is written there all the same,
until another one is asked for: `with_given_order` passes it on to the whole query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from millstream.errors import InvalidStatement

from ...sql.ast import (
    Expression,
    Join,
    Query,
    SelectColumn,
    SelectStar,
    SourceName,
    Subquery,
    TableFunctionCall,
    span_of,
    unwrapped,
)
from ...sql.printing import print_expression
from ..planning import PlanningContext
from .aggregation import contains_aggregate
from .aliases import aliases_of, column_number, with_aliases_first
from .answers import ordered_by
from .subqueries import with_ctes

_ALL = "#all"  # the name of all rows in the query that takes the first ones: no user's name begins with #


def with_first_rows(query: Query, context: PlanningContext) -> Query:
    """A query in FROM or WITH, without ORDER BY, LIMIT and OFFSET. Raises `InvalidStatement`."""
    if not context.answered_once:
        return query
    rows = replace(query, order_by=(), limit=None, offset=None)
    if query.limit is None and query.offset is None:
        return rows
    query = with_given_order(query, context)
    if not query.distinct and query.qualify is None:
        order = [ordered_by(term, _meant(term.this, query)) for term in query.order_by]
        return replace(rows, qualify=_is_among_the_first(order, query))
    everything = Query(
        items=(SelectStar(span=query.span),),
        source=Subquery(queries=(rows,), alias=_ALL, span=query.span),
        span=query.span,
        text=query.text,
    )
    return replace(everything, qualify=_is_among_the_first(_in_selected_columns(query), query))


def with_given_order(query: Query, context: PlanningContext) -> Query:
    """The query with the order of the query in FROM, if it has none itself and passes on the rows of that one."""
    if query.order_by:
        return query
    return replace(query, order_by=tuple(_given_order(query, with_ctes(query, context))))


def _given_order(query: Query, context: PlanningContext) -> Sequence[exp.Ordered]:
    """The order of the rows that the query reads, in terms of their columns. Empty if there is none, or if they are
    sorted by what is not among their columns."""
    found = _query_below(query, context)
    if found is None:
        return ()
    below, context = found
    if not below.order_by:
        below = replace(below, order_by=tuple(_given_order(below, context)))
    try:
        return _in_selected_columns(below)
    except InvalidStatement:
        return ()


def _query_below(query: Query, context: PlanningContext) -> tuple[Query, PlanningContext] | None:
    """The query in FROM whose rows this one passes on, some or all of them, and where it is planned."""
    selected = [item.expression for item in query.items if isinstance(item, SelectColumn)]
    if query.group_by or query.distinct or any(map(contains_aggregate, selected)):
        return None
    match query.source:
        case Subquery(queries=(below,)):
            return below, context
        case SourceName(name=name):
            return context.ctes.get(name)
        case Subquery() | TableFunctionCall() | Join():
            return None


def _in_selected_columns(query: Query) -> list[exp.Ordered]:
    """ORDER BY in terms of the columns that the query selects. Raises `InvalidStatement`."""
    return [ordered_by(term, _selected_column(term.this, query)) for term in query.order_by]


def _selected_column(node: Expression, query: Query) -> Expression:
    meant = unwrapped(_meant(node, query))
    for item in query.items:
        name = ""
        if isinstance(item, SelectStar) and isinstance(meant, exp.Column):
            name = meant.name
        elif isinstance(item, SelectColumn) and unwrapped(item.expression) == meant:
            name = item.alias or (meant.name if isinstance(meant, exp.Column) else "")
        if name:
            return exp.Column(this=exp.Identifier(this=name, quoted=True))
    raise InvalidStatement(
        f"ORDER BY of this query in FROM names selected columns, which {print_expression(node)} is not.",
        span=span_of(node),
    )


def _meant(node: Expression, query: Query) -> Expression:
    """A term of ORDER BY with aliases, or a number, replaced by what they name. Raises `InvalidStatement`."""
    number = column_number(node)
    if number is None:
        return with_aliases_first(unwrapped(node), aliases_of(query))
    before = query.items[:number]
    if 1 <= number == len(before) and all(isinstance(item, SelectColumn) for item in before):
        found = before[-1]
        assert isinstance(found, SelectColumn)
        return found.expression.copy()
    raise InvalidStatement(
        f"ORDER BY {number}: the SELECT of this query in FROM has no such column.",
        span=span_of(node),
        hint="Name the column.",
    )


def _is_among_the_first(order: Sequence[exp.Ordered], query: Query) -> Expression:
    """The condition that a row is one of those that LIMIT and OFFSET of the query leave, in this order."""
    number = exp.Window(this=exp.Anonymous(this="ROW_NUMBER", expressions=[]), partition_by=[])
    if order:
        number.set("order", exp.Order(expressions=list(order)))
    offset = query.offset or 0
    if query.limit is None:
        return exp.GT(this=number, expression=exp.Literal.number(offset))
    last = exp.Literal.number(offset + query.limit)
    if not offset:
        return exp.LTE(this=number, expression=last)
    return exp.Between(this=number, low=exp.Literal.number(offset + 1), high=last)
