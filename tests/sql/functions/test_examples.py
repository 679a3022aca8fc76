"""Every example of every scalar and table function, evaluated; and the house rules about the entries."""

from __future__ import annotations

import math
from typing import Any

import duckdb
import pytest
from sqlglot import exp

from millstream.planner.expressions.compilation import coerced, compile_call, compile_expression
from millstream.planner.expressions.scope import Scope
from millstream.sql.functions.catalog import FUNCTIONS, Function, register_udfs, udfs_in
from millstream.sql.parser import parse_expression
from millstream.sql.types import Array, SqlType

ENTRIES = [function for function in FUNCTIONS.values() if function.kind in ("scalar", "table")]
EXAMPLES = [(function, call, result) for function in ENTRIES for call, result in function.examples.items()]
VOLATILE = ("RANDOM()", "UUID()")


@pytest.fixture(scope="module")
def connection() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()


def evaluate(connection: duckdb.DuckDBPyConnection, text: str, wanted: SqlType | None = None) -> tuple[Any, SqlType]:
    """The value of an expression without columns, and its type; brought to type `wanted` where that is given."""
    node = parse_expression(text)
    function = FUNCTIONS.get(node.name) if isinstance(node, exp.Anonymous) else None
    if isinstance(node, exp.Anonymous) and function is not None and function.kind == "table":
        typed = compile_call(function, node, Scope(()))
        type_: SqlType = Array(typed.type)
    else:
        typed = compile_expression(node, Scope(()))
        typed = typed if wanted is None else coerced(typed, wanted)
        type_ = typed.type
    register_udfs(connection, udfs_in(typed.tree))
    sql = typed.tree.sql("duckdb")
    guarded = sql if any(name in sql for name in VOLATILE) else f"TRY({sql})"
    ((value,),) = connection.execute(f"SELECT {guarded}").fetchall()
    return value, type_


@pytest.mark.parametrize(("function", "call", "result"), EXAMPLES, ids=[call for _, call, _ in EXAMPLES])
def test_each_example_gives_what_it_says(
    connection: duckdb.DuckDBPyConnection, function: Function, call: str, result: str
) -> None:
    got, type_ = evaluate(connection, call)
    wanted, _ = evaluate(connection, result, type_)
    assert type(got) is type(wanted)
    assert got == wanted or (isinstance(got, float) and math.isnan(got) and math.isnan(wanted))


@pytest.mark.parametrize("function", ENTRIES, ids=lambda function: function.name)
def test_each_function_has_an_example_and_one_with_null(function: Function) -> None:
    calls = [call for call in function.examples if function.name in call]
    assert calls
    assert any("NULL" in call for call in calls)


def test_the_catalog_has_every_function_of_the_dialect() -> None:
    kinds = [function.kind for function in FUNCTIONS.values()]
    assert (kinds.count("scalar"), kinds.count("table")) == (143, 2)


@pytest.mark.parametrize("function", ENTRIES, ids=lambda function: function.name)
def test_each_doc_is_a_sentence(function: Function) -> None:
    assert function.doc.endswith(".")
    assert function.signatures
