"""Pieces of DuckDB expressions that every part of the analysis makes: conversions, parentheses, calls."""

from __future__ import annotations

from sqlglot import exp

from ...sql import coercion
from ...sql.functions.trees import duckdb_type
from ...sql.types import BIGINT, DOUBLE, INTEGER, NULL, STRING, SqlType
from .typed import Typed

_WIDTHS = (INTEGER, BIGINT, DOUBLE)  # each fits into those after it


def coerced(value: Typed, target: SqlType) -> Typed:
    """`value` as `target`, by implicit conversion. Raises `TypeMismatch` for a text as written that is no such time."""
    if value.type == target:
        return value
    if value.type == STRING:
        coercion.check_time_text(value.tree, target)
    tree = coercion.cast_sql(value.tree, value.type, target, explicit=False)
    widens = value.type == NULL or (value.type in _WIDTHS and target in _WIDTHS[_WIDTHS.index(value.type) :])
    return Typed(tree, target, value.total and widens)


def function_call(name: str, *arguments: exp.Expression) -> exp.Expression:
    """A call of one of DuckDB's functions."""
    return exp.Anonymous(this=name, expressions=list(arguments))


def grouped(tree: exp.Expression) -> exp.Expression:
    """In parentheses where an operator around it could take it apart."""
    simple = isinstance(tree, exp.Column | exp.Literal | exp.Paren | exp.Anonymous | exp.Func | exp.Null | exp.Boolean)
    return tree if simple and not isinstance(tree, exp.Connector | exp.Case) else exp.Paren(this=tree)


def false_for_null(tree: exp.Expr) -> exp.Expression:
    """The condition as ksqlDB has it: what compares with NULL is false."""
    return exp.Coalesce(this=tree, expressions=[exp.false()])


def cast_to(tree: exp.Expression, type_: SqlType) -> exp.Expression:
    """The tree with its DuckDB type said in so many words."""
    return exp.Cast(this=tree, to=duckdb_type(type_.duckdb))
