"""Statements with changed expressions: `rewritten` reaches all expressions of a statement, those of subqueries, too."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar, cast

from sqlglot import exp

from ...sql.ast import Node

N = TypeVar("N", bound=Node)


def rewritten(node: N, rewrite: Callable[[exp.Expression], exp.Expression]) -> N:
    """The node with `rewrite` of each of its expressions; itself if `rewrite` returns what it got, for all of them."""
    return cast("N", _rewritten(node, rewrite))


def _rewritten(value: Any, rewrite: Callable[[exp.Expression], exp.Expression]) -> Any:
    match value:
        case Node():
            changes = {
                item.name: changed
                for item in dataclasses.fields(value)
                if (changed := _rewritten(old := getattr(value, item.name), rewrite)) is not old
            }
            return dataclasses.replace(value, **changes) if changes else value
        case exp.Expression():
            return rewrite(_with_queries(value, rewrite))
        case tuple():
            members = cast("tuple[Any, ...]", value)
            changed = tuple(_rewritten(member, rewrite) for member in members)
            return changed if any(a is not b for a, b in zip(changed, members, strict=True)) else value
        case _:
            return value


def _with_queries(expression: exp.Expression, rewrite: Callable[[exp.Expression], exp.Expression]) -> exp.Expression:
    """The expression with its queries rewritten, such as `(SELECT MAX(x) FROM t)`."""
    queries = [node.meta["query"] for node in expression.find_all(exp.Subquery)]
    changed = [_rewritten(query, rewrite) for query in queries]
    if all(a is b for a, b in zip(changed, queries, strict=True)):
        return expression
    copied = expression.copy()
    for node, query in zip(list(copied.find_all(exp.Subquery)), changed, strict=True):
        node.meta["query"] = query
    return copied
