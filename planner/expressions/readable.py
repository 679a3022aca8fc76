"""Generated SQL in readable form: with column names, and without the wrappers that the planner adds.

TRY((v1 * 2) + 1)  over CLICKS (URL, SIZE)   is   (CLICKS.SIZE * 2) + 1
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from ...sql.functions.casts.failing_casts import only_fails, results_of
from ...sql.functions.users.user_functions import USER_FUNCTION, definition_of
from ..schema import PSEUDO, Schema
from .failing_constants import unhidden

_COLUMN = re.compile(r"[kv]\d+|_ts|_rowpartition|_offset|_ws|_we|_headers|_st")
_PSEUDO_NAMES = {physical: name for name, (physical, _) in PSEUDO.items()}
_WORDS = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|\w+")


@dataclass(frozen=True, slots=True)
class Used:
    """The columns of a batch that an expression reads: for its value, and only in conditions of CASE."""

    values: tuple[str, ...]
    conditions: tuple[str, ...]


def column_names(schema: Schema) -> dict[str, str]:
    """The names of a step's output columns by their names in batches."""
    named = {schema.physical_name(column): column.name for column in schema}
    return {**_PSEUDO_NAMES, **named}


def parsed(sql: str) -> exp.Expr | None:
    """The parsed text; None if sqlglot cannot parse it."""
    try:
        return sqlglot.parse_one(sql, dialect="duckdb")
    except (SqlglotError, RecursionError):
        return None


def used_columns(sql: str) -> Used:
    """Which columns of the batch the generated expression reads."""
    tree = parsed(sql)
    if tree is None:
        words = (match.group().strip('"') for match in _WORDS.finditer(sql) if not match.group().startswith("'"))
        return Used(tuple(dict.fromkeys(word for word in words if _COLUMN.fullmatch(word))), ())
    chosen: dict[str, None] = {}
    values: dict[str, None] = {}
    for column in tree.find_all(exp.Column):
        if not column.table and _COLUMN.fullmatch(column.name):
            (chosen if _in_condition(column) else values)[column.name] = None
    return Used(tuple(values), tuple(chosen))


def _in_condition(node: exp.Expr) -> bool:
    """Whether the node is in the condition of a CASE."""
    while node.parent is not None:
        parent = node.parent
        if isinstance(parent, exp.If | exp.Case) and node.arg_key == "this":
            return True
        node = parent
    return False


def readable(sql: str, name_of: Callable[[str], str]) -> str:
    """The expression with the column names of `name_of`; the unchanged text if it cannot be parsed."""
    tree = parsed(sql)
    if tree is None:
        return sql

    tree = exp.Paren(this=tree)
    for node in list(tree.find_all(exp.Anonymous, exp.Coalesce)):
        hidden = unhidden(node)
        if hidden is not None:
            node.replace(hidden)
    for node in list(tree.find_all(exp.Try, exp.Case, exp.Coalesce, exp.Anonymous, exp.Column)):
        replacement = _plainer(node, name_of)
        if replacement is not None:
            node.replace(replacement)
    while isinstance(tree, exp.Paren):
        tree = tree.this
    return tree.sql(dialect="duckdb")


def _plainer(node: exp.Expr, name_of: Callable[[str], str]) -> exp.Expr | None:
    match node:
        case exp.Column() if not node.table and _COLUMN.fullmatch(node.name):
            return exp.Var(this=name_of(node.name))
        case exp.Try():
            return node.this
        case exp.Case() if len(kept := [each for each in results_of(node) if not only_fails(each)]) == 1:
            return kept[0]
        case exp.Coalesce() if [str(other) for other in node.expressions] in ([], ["FALSE"]):
            return node.this
        case exp.Anonymous() if node.name.startswith("MS$"):
            return exp.Anonymous(this=node.name.split("$")[1], expressions=node.expressions)
        case _:
            return None


def with_names(text: str) -> str:
    """A message in which function ids are replaced by function names."""

    def name(found: re.Match[str]) -> str:
        definition = definition_of(found[0])
        return found[0] if definition is None else definition.name

    return USER_FUNCTION.sub(name, text)
