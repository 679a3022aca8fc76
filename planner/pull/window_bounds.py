"""Checks the conditions on window bounds in a pull query that looks up keys of a table: as in ksqlDB, one lower and one
upper bound, or one equality, for each of WINDOWSTART and WINDOWEND."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import cast

from sqlglot import exp

from millstream.errors import InvalidStatement, TypeMismatch

from ...sql.ast import span_of
from ...sql.printing import print_expression
from ...sql.types import BIGINT, INTEGER, NULL, STRING
from ..expressions.compilation import compile_expression
from ..expressions.scope import Scope
from ..schema import WINDOW_BOUNDS
from ..source_info import SourceInfo

DISJUNCTS_MAX = 1000
_BOUNDS: dict[type[exp.Expression], tuple[str, str]] = {
    exp.EQ: ("EQUAL", "EQUAL"),
    exp.GT: ("GREATER_THAN", "LESS_THAN"),
    exp.GTE: ("GREATER_THAN", "LESS_THAN"),
    exp.LT: ("LESS_THAN", "GREATER_THAN"),
    exp.LTE: ("LESS_THAN", "GREATER_THAN"),
}  # the kind of bound if the column is on the left of the comparison, and on the right
_OTHERS: dict[type[exp.Expression], str] = {
    exp.NEQ: "NOT_EQUAL",
    exp.NullSafeNEQ: "IS_DISTINCT_FROM",
    exp.NullSafeEQ: "IS_NOT_DISTINCT_FROM",
}


def disjuncts_of(node: exp.Expression) -> list[list[exp.Expression]]:
    """The predicate as a disjunction of conjunctions: a list of lists. Raises `InvalidStatement` for more than
    `DISJUNCTS_MAX` lists."""
    inner = cast(exp.Expression, node.unnest())
    if not isinstance(inner, exp.Or | exp.And):
        return [[inner]]
    parts = [disjuncts_of(cast(exp.Expression, part)) for part in inner.flatten()]  # long chains are flat: no recursion
    count = sum(map(len, parts)) if isinstance(inner, exp.Or) else prod(map(len, parts))
    if count > DISJUNCTS_MAX:
        raise InvalidStatement("WHERE has too many alternatives to look each of them up.", span=span_of(node))
    if isinstance(inner, exp.Or):
        return [conjuncts for part in parts for conjuncts in part]
    return [[conjunct for side in chosen for conjunct in side] for chosen in product(*parts)]


def check_window_bounds(where: exp.Expression, source: SourceInfo, scope: Scope) -> None:
    """Raises `InvalidStatement` or `TypeMismatch` for bounds that ksqlDB refuses. It refuses them only in look-ups of
    keys: a condition that reads the whole table may compare its windows in any way."""
    try:
        disjuncts = disjuncts_of(where)
    except InvalidStatement:
        return  # this is no lookup
    keys = [column.name for column in source.schema.key]
    for conjuncts in disjuncts:
        for conjunct in conjuncts:
            _check_kind(conjunct)
        if not _looks_up(conjuncts, keys):
            return
    for conjuncts in disjuncts:
        _check_disjunct(conjuncts, scope)


def _check_kind(conjunct: exp.Expression) -> None:
    bound = _bounded(conjunct)
    if bound is not None and type(conjunct) in _OTHERS:
        raise InvalidStatement(
            f"Unsupported `{bound[0].name}` bounds: {_OTHERS[type(conjunct)]}",
            span=span_of(conjunct),
            hint="Supported are =, <, <=, > and >=.",
        )


def _looks_up(conjuncts: Sequence[exp.Expression], keys: Sequence[str]) -> bool:
    """Whether the conditions compare each key column with a constant."""
    found: set[str] = set()
    for conjunct in conjuncts:
        if not isinstance(conjunct, (*_BOUNDS, exp.In, exp.Between)):
            return False
        operands = [cast(exp.Expression, child.unnest()) for child in conjunct.iter_expressions()]
        column = next((operand for operand in operands if isinstance(operand, exp.Column)), None)
        if column is None or any(other.find(exp.Column) for other in operands if other is not column):
            return False
        found.add(column.name)
    return found.issuperset(keys)


def _check_disjunct(conjuncts: Sequence[exp.Expression], scope: Scope) -> None:
    given: dict[str, set[str]] = {name: set() for name in WINDOW_BOUNDS}
    for conjunct in conjuncts:
        for comparison in _comparisons(conjunct):
            bound = _bounded(comparison)
            if bound is None:
                continue
            column, value, side = bound
            if compile_expression(value, scope).type not in (INTEGER, BIGINT, STRING, NULL):
                raise TypeMismatch(
                    "Window bounds must resolve to an INT, BIGINT, or STRING containing a datetime.",
                    span=span_of(value),
                )
            kind = _BOUNDS[type(comparison)][side]
            known = given[column.name]
            if known and (kind == "EQUAL") != ("EQUAL" in known):
                raise InvalidStatement(
                    f"`{print_expression(comparison)}` cannot be combined with other `{column.name}` bounds",
                    span=span_of(comparison),
                )
            if kind in known:
                raise InvalidStatement(
                    f"Duplicate `{column.name}` bounds on: {kind}",
                    span=span_of(comparison),
                    hint="One bound of this kind is enough: write the narrower one.",
                )
            known.add(kind)


def _comparisons(conjunct: exp.Expression) -> Sequence[exp.Expression]:
    if not isinstance(conjunct, exp.Between):
        return [conjunct]
    value, low, high = (conjunct.args[part] for part in ("this", "low", "high"))
    return [exp.GTE(this=value, expression=low), exp.LTE(this=value, expression=high)]


def _bounded(comparison: exp.Expression) -> tuple[exp.Column, exp.Expression, int] | None:
    """The window column in a comparison, the other operand, and the side of the column: 0 is left, 1 is right."""
    if type(comparison) not in _BOUNDS and type(comparison) not in _OTHERS:
        return None
    sides = [cast(exp.Expression, comparison.args[part].unnest()) for part in ("this", "expression")]
    for side in (1, 0):
        column = sides[side]
        if isinstance(column, exp.Column):
            return (column, sides[1 - side], side) if column.name in WINDOW_BOUNDS else None
    return None
