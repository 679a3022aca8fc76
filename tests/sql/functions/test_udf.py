"""Python functions in DuckDB: found by their name alone, a bad row gives NULL, types survive in the name."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest
from sqlglot import exp

from millstream.sql.functions.catalog import find_function
from millstream.sql.functions.signature import parse_type
from millstream.sql.functions.udf import Udf, register_udfs, udf_by_name, udfs_in
from millstream.sql.types import NULL, STRING


@pytest.mark.parametrize(
    "text",
    [
        "INTEGER",
        "DECIMAL(38, 10)",
        "ARRAY<MAP<STRING, TIMESTAMP>>",
        "STRUCT<`a` INTEGER, `A b``$->` STRUCT<`ü` BYTES>>",
        "MAP<STRING, ARRAY<STRUCT<`K` STRING, `V` DOUBLE>>>",
    ],
)
def test_the_name_alone_gives_the_function_back(text: str) -> None:
    call = find_function("TO_JSON_STRING").resolve([parse_type(text)])
    (name,) = call.udfs
    assert name == name.lower()
    assert udf_by_name(name.upper()) == Udf(udf_by_name(name).function, (parse_type(text),), STRING)


def test_registering_twice_is_no_mistake() -> None:
    connection = duckdb.connect()
    names = find_function("INITCAP").resolve([STRING]).udfs
    register_udfs(connection, names)
    register_udfs(connection.cursor(), names)


def test_a_row_that_fails_gives_null_and_the_others_their_values() -> None:
    (name,) = find_function("JSON_KEYS").resolve([STRING]).udfs
    result = udf_by_name(name)(pa.chunked_array([pa.array(['{"a": 1}', "no json", None]), pa.array(["{}"])]))
    assert result.to_pylist() == [["a"], None, None, []]


def test_a_value_too_large_for_its_type_gives_null() -> None:
    name = "ms$generate_series$integer$integer->array<integer>"
    result = udf_by_name(name)(pa.array([1, 1], pa.int64()), pa.array([2, 2**40], pa.int64()))
    assert result.to_pylist() == [[1, 2], None]


def test_a_tree_tells_which_functions_it_calls() -> None:
    column = exp.column("x")
    inner = find_function("INITCAP").resolve([STRING]).render([column])
    tree = find_function("JSON_KEYS").resolve([STRING]).render([inner])
    assert udfs_in(tree) == ("ms$json_keys$string->array<string>", "ms$initcap$string->string")


def test_an_argument_that_is_only_ever_null_has_a_type_in_duckdb() -> None:
    call = find_function("TO_JSON_STRING").resolve([NULL])
    connection = duckdb.connect()
    register_udfs(connection, call.udfs)
    assert connection.execute(f"SELECT {call.render([exp.Null()]).sql('duckdb')}").fetchall() == [("null",)]
