"""Adds INTERVAL '10' SECOND to a time, or subtracts it: + and - with an interval on the right."""

from __future__ import annotations

from sqlglot import exp

from millstream.errors import TypeMismatch

from ...sql.ast import span_of
from ...sql.printing import print_expression
from ...sql.types import BIGINT, TIMESTAMP
from .typed import Typed


def moved_by_interval(node: exp.Add | exp.Sub, time: Typed) -> Typed:
    """A TIMESTAMP, or a BIGINT of milliseconds, moved by the interval. Raises `TypeMismatch` for other types."""
    length = exp.Cast(this=node.expression.this.copy(), to=exp.DataType.build("BIGINT"))
    if time.type == BIGINT:
        moved: exp.Expression = length
    elif time.type == TIMESTAMP:
        moved = exp.Anonymous(this="to_milliseconds", expressions=[length])
    else:
        raise TypeMismatch(
            f"an INTERVAL moves a TIMESTAMP or a BIGINT in milliseconds, and {print_expression(node.this)} is a "
            f"{time.type}",
            span=span_of(node),
        )
    return Typed(type(node)(this=exp.Paren(this=time.tree.copy()), expression=moved), time.type)
