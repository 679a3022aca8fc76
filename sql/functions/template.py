"""SQL templates of functions: DuckDB text with `:name` where an argument goes, parsed once, filled as trees.

A variadic parameter's arguments are spliced into the list where its name stands (`concat(:values)`), and each of them
is also there alone as `:values1`, `:values2`, …. Variables of a template's own lambdas are written `"$x"`: no name
that comes from outside starts with a dollar sign, so nothing can be captured.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import ClassVar

from sqlglot import exp, parse_one
from sqlglot.dialects.duckdb import DuckDB

from .trees import all_owned, owned

Filling = Mapping[str, exp.Expression | list[exp.Expression]]


class _TemplateSql(DuckDB):
    """DuckDB's SQL in which every function call stays exactly as it is written."""

    class Parser(DuckDB.Parser):  # pyrefly: ignore[bad-override]
        FUNCTIONS: ClassVar = {}
        FUNCTION_PARSERS: ClassVar = {
            name: parser for name, parser in DuckDB.Parser.FUNCTION_PARSERS.items() if name in ("CAST", "TRY_CAST")
        }
        NO_PAREN_FUNCTIONS: ClassVar = {}


@lru_cache(maxsize=4096)
def _parse(text: str) -> exp.Expression:
    tree = parse_one(text, dialect=_TemplateSql)
    stray = tree.find(exp.Column)
    assert stray is None, f"a template has no columns, but found {stray} in: {text}"
    assert isinstance(tree, exp.Expression)
    return tree


def fill(text: str, filling: Filling) -> exp.Expression:
    """The template as a new tree, with every `:name` replaced. What is filled in is put in parentheses, and copied
    where it is a part of another tree.

    >>> fill("lower(:text) || '!'", {"text": exp.column("name")}).sql("duckdb")
    "LOWER(name) || '!'"
    """
    tree = _parse(text).copy()
    if isinstance(tree, exp.Placeholder):
        value = filling[tree.name]
        assert not isinstance(value, list), f":{tree.name} stands for several arguments in: {text}"
        return owned(value)
    for placeholder in list(tree.find_all(exp.Placeholder)):
        value = filling[placeholder.name]
        if isinstance(value, list):
            _splice(placeholder, all_owned(value))
        else:
            placeholder.replace(_grouped(owned(value), placeholder.parent))
    return tree


def _splice(placeholder: exp.Expression, items: list[exp.Expression]) -> None:
    parent, key, index = placeholder.parent, placeholder.arg_key, placeholder.index
    assert parent is not None and key is not None and index is not None, "a variadic argument stands in a list"
    siblings = list(parent.args[key])
    parent.set(key, siblings[:index] + items + siblings[index + 1 :])


_SAFE = (
    exp.Column, exp.Literal, exp.Paren, exp.Func, exp.Null, exp.Boolean, exp.Identifier, exp.Dot,
    exp.Bracket, exp.Array, exp.Struct,
)  # fmt: skip


def _grouped(value: exp.Expression, parent: exp.Expr | None) -> exp.Expression:
    """In parentheses, unless nothing around can take the value apart."""
    if isinstance(parent, exp.Anonymous | exp.Lambda) or isinstance(value, exp.Lambda):
        return value
    if isinstance(value, _SAFE) and not isinstance(value, exp.Connector | exp.Case):
        return value
    return exp.Paren(this=value)


def replace_variables(body: exp.Expression, values: Mapping[str, exp.Expression]) -> exp.Expression:
    """`body`, of a lambda, with its variables (bare, unquoted identifiers) replaced."""
    body = body.copy()
    if isinstance(body, exp.Identifier):
        return values[body.name].copy() if _is_variable(body) and body.name in values else body
    for node in list(body.find_all(exp.Identifier)):
        if node.name in values and _is_variable(node):
            node.replace(values[node.name].copy())
    return body


def _is_variable(node: exp.Identifier) -> bool:
    parent = node.parent
    if node.args.get("quoted") or (
        isinstance(parent, exp.Column | exp.ColumnDef | exp.Anonymous) and node.arg_key == "this"
    ):
        return False
    return not (isinstance(parent, exp.Dot) and node.arg_key == "expression") and not (
        isinstance(parent, exp.PropertyEQ) and node.arg_key == "this"
    )


def names_in(tree: exp.Expression) -> set[str]:
    """Every identifier in the tree."""
    return {node.name for node in tree.find_all(exp.Identifier)}
