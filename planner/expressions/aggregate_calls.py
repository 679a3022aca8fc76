"""DISTINCT in an aggregate's parentheses, and FILTER (WHERE …) after them."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from millstream.errors import InvalidStatement, TypeMismatch

from ...sql.ast import span_of
from ...sql.printing import print_expression
from ...sql.types import BOOLEAN, NULL
from .compilation import compile_expression
from .scope import Scope
from .typed import Typed

_TAKE_DISTINCT = ("COUNT", "SUM", "AVG", "MIN", "MAX")
_SAME_WITHOUT = ("MIN", "MAX")


def aggregate_filter(node: exp.Anonymous, scope: Scope) -> Typed | None:
    """The condition of a call's FILTER. Raises `TypeMismatch` if it is not a BOOLEAN."""
    condition = node.args.get("filter")
    if condition is None:
        return None
    predicate = compile_expression(condition, scope.within("FILTER"))
    if predicate.type not in (BOOLEAN, NULL):
        raise TypeMismatch(
            f"Type error in FILTER expression: Should evaluate to boolean but is {print_expression(condition)} "
            f"({predicate.type}) instead.",
            span=span_of(condition),
        )
    return predicate


def is_distinct(node: exp.Anonymous, arguments: Sequence[Typed]) -> bool:
    """Whether equal arguments count only once. Raises `InvalidStatement` for an aggregate without DISTINCT."""
    if not node.args.get("distinct"):
        return False
    if node.name not in _TAKE_DISTINCT:
        raise InvalidStatement(
            f"{node.name} takes no DISTINCT",
            span=span_of(node),
            hint=f"{', '.join(_TAKE_DISTINCT[:-1])} and {_TAKE_DISTINCT[-1]} do; COLLECT_SET collects values once.",
        )
    if len(arguments) != 1:
        raise InvalidStatement(
            f"{node.name}(DISTINCT …) takes one argument",
            span=span_of(node),
            hint=f"Make one of several: {node.name}(DISTINCT STRUCT(a := a, b := b)).",
        )
    return node.name not in _SAME_WITHOUT


def has_clauses(node: exp.Expression) -> bool:
    """Whether a call has DISTINCT or FILTER, which ksqlDB does not support."""
    return any(call.args.get("distinct") or call.args.get("filter") for call in node.find_all(exp.Anonymous))
