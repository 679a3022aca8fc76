"""ORDER BY, LIMIT and OFFSET of an answer: the sort expressions become selected columns, and DuckDB sorts.

A term names a selected column (by its alias or its number), or it is an expression over the query's sources. Such an
expression is selected, too, after the other columns, under a name that users cannot write. So it has the same meaning
as in SELECT.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from millstream.errors import InvalidStatement, Span

from ...sql.ast import Expression, Join, Query, SelectColumn, span_of, unwrapped
from ...sql.printing import print_expression
from ..select.aliases import aliases_of, column_number, with_aliases_first

_HIDDEN = "#order"


@dataclass(frozen=True, slots=True)
class Term:
    """One term of ORDER BY: the selected column of this name, or the one with this number (from 1)."""

    name: str | None
    number: int | None
    descending: bool
    nulls_first: bool
    span: Span | None


@dataclass(frozen=True, slots=True)
class Ordered:
    """`query` has no ORDER BY, LIMIT and OFFSET, and selects `hidden` additional columns, which the answer lacks."""

    query: Query
    terms: tuple[Term, ...]
    hidden: int
    limit: int | None
    offset: int | None

    def clause(self, names: Sequence[str], otherwise: str) -> str:
        """` ORDER BY … LIMIT … OFFSET …` for a SELECT of columns with these names (the hidden ones are among them).

        `otherwise`: the order of rows that are equal in ORDER BY, and of all rows if only LIMIT or OFFSET is given; may
        be empty.
        """
        terms = [_sql(term, names, len(names) - self.hidden) for term in self.terms]
        if otherwise and (terms or self.limit is not None or self.offset is not None):
            terms.append(otherwise)
        clause = f" ORDER BY {', '.join(terms)}" if terms else ""
        clause += "" if self.limit is None else f" LIMIT {self.limit}"
        return clause + ("" if self.offset is None else f" OFFSET {self.offset}")


def with_order_selected(query: Query) -> Ordered:
    """The query extended to select its sort expressions. Raises `InvalidStatement`."""
    aliases = aliases_of(query)
    terms: list[Term] = []
    hidden: list[SelectColumn] = []
    for ordered in query.order_by:
        node = unwrapped(ordered.this)
        name, number = _selected(node, query, aliases), column_number(node)
        if name is None and number is None:
            if query.distinct:
                raise InvalidStatement(
                    f"ORDER BY of a SELECT DISTINCT names selected columns, which {print_expression(node)} is not.",
                    span=span_of(node),
                )
            name = f"{_HIDDEN}{len(hidden)}"
            hidden.append(SelectColumn(expression=with_aliases_first(node, aliases), alias=name, span=span_of(node)))
        terms.append(Term(name, number, bool(ordered.args["desc"]), bool(ordered.args["nulls_first"]), span_of(node)))
    bare = replace(query, items=(*query.items, *hidden), order_by=(), limit=None, offset=None)
    return Ordered(bare, tuple(terms), len(hidden), query.limit, query.offset)


def _selected(node: Expression, query: Query, aliases: Mapping[str, Expression]) -> str | None:
    """The name of the selected column that the term refers to; None if it is no selected column."""
    if isinstance(node, exp.Column) and not node.table and node.name in aliases:
        return node.name
    for item in query.items:
        if not isinstance(item, SelectColumn) or unwrapped(item.expression) != node:
            continue
        if item.alias is not None:
            return item.alias
        if isinstance(node, exp.Column) and not node.table and not isinstance(query.source, Join):
            return node.name
    return None


def _sql(term: Term, names: Sequence[str], shown: int) -> str:
    number = term.number
    if number is None:
        assert term.name is not None
        number = list(names).index(term.name) + 1
    elif not 1 <= number <= shown:
        raise InvalidStatement(
            f"ORDER BY {number}: there are {shown} selected columns.",
            span=term.span,
            hint="Name the column, or write its number, from 1.",
        )
    direction = "DESC" if term.descending else "ASC"
    return f"{number} {direction} NULLS {'FIRST' if term.nulls_first else 'LAST'}"
