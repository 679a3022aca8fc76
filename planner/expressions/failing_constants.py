"""Hides constant parts of an expression that fail for every row: `1 / 0`, `CAST('x' AS INT)`.

DuckDB computes constants when it plans. In a comparison, CASE, LIKE or AND it does so outside the TRY around the
expression, and refuses the statement. So such a part is made to depend on a column, which hides it from the optimizer.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Mapping
from typing import Final

import duckdb
from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB

from ...sql.functions.casts.failing_casts import NULL_IN_A_LAMBDA
from ...sql.functions.catalog import register_udfs, udfs_in
from ...sql.functions.udf import failures_of
from ...sql.functions.users.user_functions import USER_FUNCTION

_DUCKDB: Final = DuckDB()
_FAILURES: Final = (duckdb.ConversionException, duckdb.InvalidInputException, duckdb.OutOfRangeException)
_NO_VALUES: Final = (exp.Literal, exp.Null, exp.Boolean, exp.DataType, exp.Identifier, exp.Lambda, exp.PropertyEQ)
_PATIENCE_S: Final = 0.5  # an expression that takes longer counts as not failing
_guard = threading.Lock()


def fails_always(tree: exp.Expr) -> bool:
    """Whether the expression reads no column and its evaluation fails."""
    return tree.find(exp.Column) is None and _fails(tree.sql(dialect=_DUCKDB), udfs_in(tree))


def hide_failing_constants(tree: exp.Expr, column: exp.Column) -> None:
    """Makes each part that always fails depend on the column, without changing its meaning.

    Those are the smallest parts: in a larger one DuckDB would compute what is inside.
    """
    failing = _failing_parts(tree)
    larger = {id(_next_above(part, failing)) for part in failing.values()}
    for part in [part for part in failing.values() if id(part) not in larger]:
        _hide(part, column)


def _failing_parts(tree: exp.Expr) -> dict[int, exp.Expr]:
    """The constant parts that fail, by their ids. It does not look into those that do not fail, because DuckDB computes
    their value first. Not so with lambdas and IS NULL: DuckDB may know the value without computing what is inside, and
    compute that elsewhere. It uses a loop, because chains of AND are deep."""
    reading = _not_constant(tree)
    found: dict[int, exp.Expr] = {}
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if id(node) not in reading and _is_value(node):
            functions = udfs_in(node)
            if _fails(node.sql(dialect=_DUCKDB), functions):
                found[id(node)] = node
            elif not _calls_users(functions):
                waiting.extend(inside.this for inside in node.find_all(exp.Lambda, exp.Is))
                continue
        if isinstance(node, exp.Lambda):
            waiting.append(node.this)
        elif not isinstance(node, _NO_VALUES) or isinstance(node, exp.PropertyEQ):
            waiting.extend(node.iter_expressions())
    return found


def _next_above(part: exp.Expr, among: Mapping[int, exp.Expr]) -> exp.Expr | None:
    above = part.parent
    while above is not None and id(above) not in among:
        above = above.parent
    return above


def _hide(part: exp.Expr, column: exp.Column) -> None:
    if not udfs_in(part):
        case = exp.Case(ifs=[exp.If(this=_never_known(column), true=part.copy())], default=part.copy())
        part.replace(first_of_list(case))  # of the CASE DuckDB may know that it is never NULL
        return
    # DuckDB leaves the calls of Python functions alone, and computes what is inside of them. Outside of them a function
    # may take constants only, as strftime's format.
    for call in [each for each in part.find_all(exp.Anonymous) if udfs_in(each) == (each.name.lower(),)]:
        for argument in [each for each in call.expressions if not isinstance(each, exp.Null)]:
            if not udfs_in(argument):
                argument.replace(_hidden(argument, column))


def unhidden(node: exp.Expr) -> exp.Expr | None:
    """The part that was hidden from DuckDB in this node; None if it is no such node."""
    match node:
        case exp.Anonymous(
            this="LIST_EXTRACT", expressions=[exp.Array(expressions=[exp.Case() as case]), exp.Literal()]
        ):
            (branch, *_) = case.args["ifs"]
            return case.args["default"] if branch.args["true"] == case.args.get("default") else case
        case exp.Coalesce(this=exp.Case() as case, expressions=[given]):
            return given if _is_never_known(case.args["ifs"][0].this) else None
        case _:
            return None


def first_of_list(value: exp.Expression) -> exp.Expression:
    """The value, of which DuckDB knows nothing in advance."""
    made = exp.Anonymous(this="list_value", expressions=[value])
    return exp.Anonymous(this="list_extract", expressions=[made, exp.Literal.number(1)])


def is_first_of_list(node: exp.Expr) -> bool:
    match node:
        case exp.Anonymous(this="list_extract", expressions=[exp.Anonymous(this="list_value"), _]):
            return True
        case _:
            return False


def _hidden(constant: exp.Expr, column: exp.Column) -> exp.Expr:
    """The constant, as a value that DuckDB does not know in advance."""
    given = exp.Case(ifs=[exp.If(this=_never_known(column), true=exp.Null())], default=constant.copy())
    return exp.Coalesce(this=given, expressions=[constant.copy()])


def _never_known(column: exp.Column) -> exp.Expr:
    """A condition whose result does not matter. Of IS NULL a table's statistics may say what it is."""
    return exp.EQ(this=exp.Anonymous(this="hash", expressions=[column.copy()]), expression=exp.Literal.number(0))


def _is_never_known(condition: exp.Expr) -> bool:
    match condition:
        case exp.EQ(this=exp.Anonymous() as call):
            return call.name.lower() == "hash"
        case _:
            return False


def _not_constant(tree: exp.Expr) -> set[int]:
    """The ids of all nodes that read a column, or a variable of a lambda around them."""
    reading: set[int] = set()

    def add(node: exp.Expr | None, end: exp.Expr | None) -> None:
        while node is not None and node is not end and id(node) not in reading:
            reading.add(id(node))
            node = node.parent

    for column in tree.find_all(exp.Column):
        add(column, None)
    for lambda_ in tree.find_all(exp.Lambda):
        variables = {parameter.name for parameter in lambda_.expressions}
        for name in lambda_.this.find_all(exp.Identifier):
            if name.name in variables:
                add(name, lambda_)
    return reading


def _is_value(node: exp.Expr) -> bool:
    is_literal = isinstance(node, exp.Literal | exp.Boolean | exp.Null)
    is_branch = isinstance(node, exp.If) and isinstance(node.parent, exp.Case)
    is_ours = isinstance(node, exp.Cast) and node.this.name == NULL_IN_A_LAMBDA
    return (
        isinstance(node, exp.Condition)
        and not isinstance(node, _NO_VALUES)
        and not is_branch
        and not is_ours
        and not is_literal
    )


def _calls_users(functions: tuple[str, ...]) -> bool:
    return any(USER_FUNCTION.search(name.upper()) for name in functions)


@functools.lru_cache(maxsize=1_000)
def _fails(sql: str, functions: tuple[str, ...]) -> bool:
    """Whether the evaluation fails. In: `functions`: the Python functions that it calls. User functions are not called
    here: an expression with one of them counts as not failing."""
    if _calls_users(functions):
        return False
    with _guard:
        connection = _connection()
        register_udfs(connection, functions)
        patience = threading.Timer(_PATIENCE_S, connection.interrupt)
        patience.start()
        try:
            connection.execute(f"SELECT {sql}").fetchall()
        except _FAILURES:
            return True
        except duckdb.Error:
            return False
        finally:
            patience.cancel()
            failures_of(connection).forget()
    return False


@functools.cache
def _connection() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"threads": 1, "memory_limit": "128MB", "enable_external_access": False})
    connection.execute("SET lock_configuration = true")
    return connection
