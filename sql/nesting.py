"""Refuses statements that are nested too deeply for code that recurses over them. Does not recurse itself."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from sqlglot import exp

from millstream.errors import Span, SqlSyntaxError

from .ast import Node
from .parts import Part
from .types import SqlType

DEPTH_MAX = 200
CHAIN_MAX = 1_000

STACK_MAX = DEPTH_MAX * 25
"""States on the parser's stack: one level of nesting takes fewer than 25. Above it nobody needs to read on."""

_CHAINS = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod)


def check_nesting(root: Any) -> None:
    """Refuse what is deeper than DEPTH_MAX levels. A chain of + or * is one level, of at most CHAIN_MAX operands.

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
            _check_number(node)
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
    """Moving a time by an INTERVAL is a call around what it moves."""
    return isinstance(node, _CHAINS) and not isinstance(node.expression, exp.Interval)


def _check_number(node: exp.Expression) -> None:
    if node.meta.get("too_large"):
        raise SqlSyntaxError("the number is too large for a BIGINT", span=_span(node))


def _span(node: Any) -> Span | None:
    return node.meta.get("span") if isinstance(node, exp.Expression) else getattr(node, "span", None)
