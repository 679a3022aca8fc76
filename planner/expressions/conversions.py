"""Builds common parts of DuckDB expressions: conversions, parentheses, calls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sqlglot import exp

from ...sql import coercion
from ...sql.functions.trees import duckdb_type
from ...sql.types import BIGINT, DOUBLE, INTEGER, NULL, STRING, SqlType
from .failing_constants import first_of_list, is_first_of_list
from .typed import Typed

_WIDTHS = (INTEGER, BIGINT, DOUBLE)  # each converts to those after it without failing


def coerced(value: Typed, target: SqlType) -> Typed:
    """`value` as `target`, by implicit conversion. Raises `TypeMismatch` for a literal text that is no such time."""
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
    """The expression in parentheses, unless it is simple enough to be an operand without them."""
    simple = isinstance(tree, exp.Column | exp.Literal | exp.Paren | exp.Anonymous | exp.Func | exp.Null | exp.Boolean)
    return tree if simple and not isinstance(tree, exp.Connector | exp.Case) else exp.Paren(this=tree)


def computed(value: Typed) -> exp.Expression:
    """The expression, such that DuckDB computes all of it: a part that fails must not be left out. Where DuckDB knows
    that a constructor or CASE is never NULL, and where only one field of a new STRUCT is read, it computes nothing."""
    inner = value.tree.unnest()
    made = isinstance(inner, exp.Case | exp.Struct) or inner.name == "list_value"
    if value.total or not made:
        return value.tree
    return first_of_list(value.tree)


def with_unknown_cases(value: Typed) -> Typed:
    """The value of a comparison. DuckDB knows the least and the greatest result of a CASE with constant results. It may
    know what the comparison gives, and then computes no condition that fails. So such a CASE is hidden from it."""
    if value.total or not any(_known_cases(value.tree)):
        return value
    around = exp.Paren(this=value.tree.copy())
    for case in list(_known_cases(around)):
        case.replace(first_of_list(case.copy()))
    return replace(value, tree=around.this)


def _known_cases(tree: exp.Expr) -> Iterator[exp.Case]:
    """Those of which DuckDB knows the results. Those inside of a comparison are hidden already."""

    def ends(node: exp.Expr) -> bool:
        return is_first_of_list(node) or (isinstance(node, exp.Case) and _gives_constants(node))

    return (node for node in tree.walk(prune=ends) if isinstance(node, exp.Case) and _gives_constants(node))


def _gives_constants(case: exp.Case) -> bool:
    results = [*(branch.args["true"] for branch in case.args["ifs"]), case.args.get("default")]
    return all(each is None or each.find(exp.Column) is None for each in results)


def false_for_null(tree: exp.Expr) -> exp.Expression:
    """The condition as in ksqlDB: a comparison with NULL is false."""
    return exp.Coalesce(this=tree, expressions=[exp.false()])


def cast_to(tree: exp.Expression, type_: SqlType) -> exp.Expression:
    """The tree with an explicit cast to its DuckDB type."""
    return exp.Cast(this=tree, to=duckdb_type(type_.duckdb))
