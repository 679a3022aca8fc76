"""The grammar's rules for queries inside expressions: x IN (SELECT …), x > (SELECT …), EXISTS (SELECT …).

Such a node is an `exp.Subquery` with the query in `meta["query"]`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlglot import exp

from millstream.errors import SqlSyntaxError

from . import ast
from .parts import at, has, items, span_of_all


class SubqueryRules:
    def value_query(self, children: list[Any]) -> exp.Expression:
        (query,) = items(children)
        return _subquery(query, children)

    def in_query(self, children: list[Any]) -> exp.Expression:
        value, query = items(children)
        span = span_of_all(children)
        found = at(exp.In(this=value, query=_subquery(query, children[-3:])), span)
        return at(exp.Not(this=found), span) if has(children, "NOT") else found

    def exists(self, children: list[Any]) -> exp.Expression:
        (query,) = items(children)
        query = replace(query, limit=None) if query.limit else query  # one row is as good as many
        return at(exp.Exists(this=_subquery(query, children[1:])), span_of_all(children))


def _subquery(query: ast.Query, children: list[Any]) -> exp.Subquery:
    if query.emit is not None or query.limit is not None or query.offset is not None:
        raise SqlSyntaxError(
            "a subquery in an expression cannot have EMIT or LIMIT, nor OFFSET",
            span=query.span,
            hint="They stand at the end of the whole query; in a pull query, LIMIT and OFFSET in FROM and WITH, too.",
        )
    node = at(exp.Subquery(this=exp.Null()), span_of_all(children))
    node.meta["query"] = query
    return node
