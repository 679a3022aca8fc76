"""Refuses statements that are nested too deeply for recursive code. It does not recurse itself."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from sqlglot import exp

from millstream.errors import InvalidNumber, Span, SqlSyntaxError

from .ast import Node
from .parts import Part
from .types import PRECISION_MAX, SqlType

DEPTH_MAX = 200
CHAIN_MAX = 1_000

STACK_MAX = DEPTH_MAX * 25
"""States on the parser's stack: one level of nesting takes fewer than 25. Beyond this limit, parsing stops."""

_SHOWN_MAX = 400
_CHAINS = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod)


def check_nesting(root: Any) -> None:
    """Refuses more than DEPTH_MAX levels. A chain of + or * is one level, of at most CHAIN_MAX operands.

    Raises: SqlSyntaxError.
    """
    pending: list[tuple[Any, int, int]] = [(root, 0, 1)]
    while pending:
        node, depth, chain = pending.pop()
        if depth > DEPTH_MAX:
            raise SqlSyntaxError(f"nested more than {DEPTH_MAX} levels deep", span=_span(node))
        if chain >= CHAIN_MAX:
            raise SqlSyntaxError(f"more than {CHAIN_MAX} operands in a row", span=_span(node))
        if isinstance(node, exp.Expression):
            check_number(node)
            for name, child in node.args.items():
                along = name == "this" and isinstance(child, _CHAINS) and _continues_chain(node)
                children: list[Any] = child if isinstance(child, list) else [child]
                pending += [(each, depth + (not along), chain + 1 if along else 1) for each in children]
            pending.append((node.meta.get("to"), depth + 1, 1))
        elif isinstance(node, Node | SqlType):
            pending += [(getattr(node, field.name), depth + 1, 1) for field in fields(node)]
        elif isinstance(node, Part):
            pending.append((node.value, depth, 1))
        elif isinstance(node, tuple):
            pending += [(each, depth, 1) for each in node]


def _continues_chain(node: exp.Expression) -> bool:
    """Adding an INTERVAL to a time becomes a call around the time, so it is a level of its own."""
    return isinstance(node, _CHAINS) and not isinstance(node.expression, exp.Interval)


def check_number(node: exp.Expression) -> None:
    """Raises `InvalidNumber` for a literal that no type can represent, together with its minus."""
    literal = node.this if isinstance(node, exp.Neg) else node
    fault = literal.meta.get("fault") if isinstance(literal, exp.Literal) else None
    if fault is not None:
        sign = "-" if literal is not node else ""
        digits = literal.this.lstrip("0")
        hint = f"Write {digits}.0 for a DECIMAL." if digits.isdigit() and len(digits) < PRECISION_MAX else None
        shown = literal.this if len(literal.this) <= _SHOWN_MAX else f"{literal.this[: _SHOWN_MAX - 1]}…"
        raise InvalidNumber(f"{fault}: {sign}{shown}", span=_span(node), hint=hint)


def _span(node: Any) -> Span | None:
    return node.meta.get("span") if isinstance(node, exp.Expression) else getattr(node, "span", None)
