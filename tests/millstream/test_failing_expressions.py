"""An expression that fails for a row gives NULL, and the processing log says of which record and why."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from millstream.executor import processing_log
from millstream.logcore.client import FetchedRows
from millstream.testing import Sandbox

SOURCE = """CREATE STREAM s (k STRING KEY, v INT, w STRING, b BOOLEAN)
WITH (kafka_topic='s', value_format='JSON', partitions=1);"""

NESTED = """REDUCE(TRANSFORM(ARRAY[1, 2], x => TRANSFORM(ARRAY[3, 3], y => RANDOM() + x / v)), ARRAY[0e0],
(s, x) => ARRAY_CONCAT(s, x))"""

Row = tuple[int | None, str | None, bool | None]
ROWS: Sequence[Row] = [(1, "x", True), (0, "5", None), (2, "7", False), (None, None, None)]


def written(statement: str, rows: Sequence[Row] = ROWS) -> tuple[list[Any], list[dict[str, Any]]]:
    """The values of O's records, and what the processing log has, for these rows of S."""
    with Sandbox() as sandbox:
        sandbox.execute(f"{SOURCE} {statement}")
        for number, (v, w, b) in enumerate(rows):
            sandbox.produce("s", f"k{number}", {"V": v, "W": w, "B": b}, timestamp=number)
        sandbox.drain()
        return [record["value"] for record in sandbox.consume("O")], entries(sandbox)


def entries(sandbox: Sandbox, member: str = "recordProcessingError") -> list[dict[str, Any]]:
    log = sandbox.engine.log
    if log.topic(processing_log.TOPIC) is None:
        return []
    runs = log.fetch(processing_log.TOPIC, 0, 0).runs
    texts = [text for run in runs if isinstance(run, FetchedRows) for text in run.table["value"].to_pylist()]
    return [json.loads(text)["message"][member] for text in texts]


def computed(expression: str) -> tuple[list[Any], list[int]]:
    """The results for all rows, and the offsets of those that failed."""
    values, failed = written(f"CREATE STREAM o AS SELECT k, {expression} AS x FROM s;")
    return [value["X"] for value in values], [entry["offset"] for entry in failed]


@pytest.mark.parametrize(
    ("expression", "results", "failed"),
    [
        ("CAST(w AS INT)", [None, 5, 7, None], [0]),
        ("CAST(w AS BIGINT) + v", [None, 5, 9, None], [0]),
        ("10 / v", [10, None, 5, None], [1]),
        ("10 % v", [0, None, 0, None], [1]),
        ("MOD(10, v)", [0, None, 0, None], [1]),
        ("CAST(10 AS BIGINT) / v", [10, None, 5, None], [1]),
        ("10 / (v - 2)", [-10, -5, None, None], [2]),
        ("v / 2", [0, 0, 1, None], []),
        ("v / CAST(0.5 AS INT)", [None, None, None, None], [0, 1, 2]),
        ("v / 0", [None, None, None, None], [0, 1, 2]),
        ("IFNULL(v / 0, -1)", [None, None, None, -1], [0, 1, 2]),
        ("IFNULL(v % (v - v), -1)", [None, None, None, -1], [0, 1, 2]),
        ("IFNULL(MOD(v, 0), -1)", [None, None, None, -1], [0, 1, 2]),
        ("v / 0 / 2 / 0", [None, None, None, None], [0, 1, 2]),
        ("CAST(NULL AS INT) / IFNULL(v, 0)", [None, None, None, None], []),
        ("v % -2", [1, 0, 0, None], []),
        ("2147483647 + v", [None, 2147483647, None, None], [0, 2]),
        ("UCASE(w)", ["X", "5", "7", None], []),
        # A part that fails for every row, inside of calls of Python functions.
        ("CASE WHEN v = 1 THEN CAST(CAST('a' AS DOUBLE) AS STRING) ELSE 'c' END", [None, "c", "c", "c"], [0]),
        ("COALESCE(w, CAST(CAST('a' AS DOUBLE) AS STRING))", ["x", "5", "7", None], [3]),
        # Without a column it fails for each row.
        ("CAST(CAST('a' AS DOUBLE) AS STRING)", [None, None, None, None], [0, 1, 2, 3]),
        ("1 / 0", [None, None, None, None], [0, 1, 2, 3]),
        ("SUBSTRING('abc', 1 / 0)", [None, None, None, None], [0, 1, 2, 3]),
        ("(CASE WHEN CAST('x' AS INT) = 1 THEN 'a' ELSE 'b' END) IS NULL", [None, None, None, None], [0, 1, 2, 3]),
        ("TRANSFORM(ARRAY[1, 2], x => x / 0)", [None, None, None, None], [0, 1, 2, 3]),
        # Whatever it stands in.
        ("ARRAY['a', 'b'][CAST(w AS INT) - 4]", [None, "a", None, None], [0]),
        ("MAP(5 := 'a')[CAST(w AS INT)]", [None, "a", None, None], [0]),
        ("ARRAY['a', 'b'][2147483647 + v] IS NULL", [None, True, None, True], [0, 2]),
        ("'x' LIKE CAST(10 / v AS STRING)", [False, None, False, False], [1]),
        ("'5' LIKE CAST(10 / v AS STRING) ESCAPE '!'", [False, None, True, False], [1]),
        ("'a' + CAST(10 / v AS STRING)", ["a10", None, "a5", None], [1]),
        ("CAST(CAST(10 / v AS STRING) AS BOOLEAN) = (v > 0)", [False, None, False, False], [1]),
        ("ARRAY_SORT(ARRAY[2, v], CAST(10 / v AS STRING))", [None, None, None, None], [1]),
        ("ARRAY[10 / v] IS NOT NULL", [True, None, True, True], [1]),
        ("STRUCT(a := ARRAY[10 / v]) IS NULL", [False, None, False, False], [1]),
        ("STRUCT(a := 5, b := 10 / v)->a", [5, None, 5, 5], [1]),
        ("(CASE WHEN 10 / v IS NULL THEN 5 ELSE 6 END) IS NULL", [False, None, False, False], [1]),
        ("ARRAY[v] IS NULL", [False, False, False, False], []),
        # Also where DuckDB could tell from the results of a CASE what a comparison gives.
        ("(CASE WHEN 10 / v > 7 THEN 5 ELSE 6 END) > 4", [True, None, True, True], [1]),
        ("(CASE WHEN 10 / v > 7 THEN 5 ELSE 6 END) <> 7", [True, None, True, True], [1]),
        ("NOT ABS(CASE WHEN 10 / v > 7 THEN 5 ELSE 6 END) + 1 BETWEEN 1 AND 7", [False, None, False, False], [1]),
        (
            "(CASE WHEN (CASE WHEN 10 / v > 7 THEN 'a' ELSE 'b' END) < 'c' THEN 1 END) = 1",
            [True, None, True, True],
            [1],
        ),
        ("(CASE WHEN CAST(w AS INT) > 5 THEN 1.5 ELSE 2 END) < 3e0", [None, True, True, True], [0]),
        # An operand is evaluated only where those before it leave it open.
        ("v > 0 OR CAST(w AS INT) > 3", [True, True, True, False], []),
        ("v < 1 OR CAST(w AS INT) > 3", [None, True, True, False], [0]),
        ("v > 1 AND CAST(w AS INT) > 3", [False, False, True, False], []),
        ("v > 0 AND CAST(w AS INT) > 3", [None, False, True, False], [0]),
        ("v > 5 AND CAST(w AS INT) > 3 AND 1 / v = 1", [False, False, False, False], []),
        ("CAST(w AS INT) > 3 OR v > 0", [None, True, True, False], [0]),
        ("NOT (v < 1 OR CAST(w AS INT) > 3) AND v = 1", [None, False, False, False], [0]),
        ("(v = 0 OR 10 / v > 4) AND (v = 1 OR CAST(w AS INT) > 0)", [True, True, True, False], []),
        ("CASE WHEN v = 1 THEN 'one' ELSE CAST(10 / v AS STRING) END", ["one", None, "5", None], [1]),
        # NULL decides nothing, and stays NULL where nothing else decides.
        ("b OR CAST(w AS INT) > 6", [True, None, True, None], []),
        ("b OR v / 1 = 1", [True, None, False, None], []),
        ("b AND v / 1 = 1", [True, False, False, False], []),
        ("b AND CAST(w AS INT) > 3", [None, None, False, False], [0]),
    ],
)
def test_a_column_is_null_where_it_fails_and_the_log_names_the_record(
    expression: str, results: list[Any], failed: list[int]
) -> None:
    assert computed(expression) == (results, failed)


def test_an_entry_says_what_failed_why_and_for_which_values() -> None:
    _, (entry,) = written("CREATE STREAM o AS SELECT k, CAST(w AS INT) AS number FROM s;")
    assert entry["errorMessage"] == "Error computing column NUMBER: not a number: x, in CAST(TRIM(W) AS INT)"
    assert entry["record"] == "{'K': 'k0', 'W': 'x'}"
    assert (entry["topic"], entry["partition"], entry["offset"]) == ("s", 0, 0)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("10 / 0", "division by zero, in 10 // ((0))"),
        ("CASE WHEN v > 0 THEN 'a' ELSE CAST(CAST('x' AS INT) AS STRING) END", "not a number: x, in CASE WHEN V > 0 "),
    ],
)
def test_an_entry_about_a_constant_shows_it_as_the_statement_has_it(expression: str, message: str) -> None:
    _, (entry,) = written(f"CREATE STREAM o AS SELECT k, {expression} AS x FROM s;", [(0, None, None)])
    assert entry["errorMessage"].startswith(f"Error computing column X: {message}")
    assert "HASH" not in entry["errorMessage"]


def test_a_condition_without_columns_that_fails_leaves_each_row_out() -> None:
    values, failed = written("CREATE STREAM o AS SELECT k, v FROM s WHERE 1 / 0 > 1;")
    assert (values, [entry["offset"] for entry in failed]) == ([], [0, 1, 2, 3])


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("1.50 / v", "function decimal_divide failed: division by zero"),
        ("1.50 % v", "function decimal_modulo failed: division by zero"),
        ("CAST(v AS DECIMAL(2, 1)) * CAST(99 AS DECIMAL(38, 1))", None),
        ("PARSE_DATE(CAST(v AS STRING), 'yyyy-MM-dd')", "function parse_date failed: "),
        ("CAST(w AS DATE)", "function string_to_date failed: "),
        ("ROUND(CAST(99.5 + v AS DECIMAL(3, 1)), 0)", "function round_to failed: Decimal('100.0') does"),
    ],
)
def test_a_function_in_python_that_fails_is_named_with_its_arguments(expression: str, message: str | None) -> None:
    values, failed = written(f"CREATE STREAM o AS SELECT k, {expression} AS x FROM s WHERE v = 0;")
    if message is None:
        assert (values[0]["X"] is not None, failed) == (True, [])
    else:
        assert values == [{"X": None}]
        assert [entry["errorMessage"].startswith(message) for entry in failed] == [True]
        assert failed[0]["record"]


def test_an_entry_about_a_missing_time_has_the_column_that_should_give_it() -> None:
    source = SOURCE.replace("partitions=1", "partitions=1, timestamp='w', timestamp_format='yyyy-MM-dd'")
    with Sandbox() as sandbox:
        sandbox.execute(f"{source} CREATE STREAM o AS SELECT * FROM s;")
        for text in ("never", "1969-12-31", None, "2020-01-01"):
            sandbox.produce("s", "k", {"V": 1, "W": text})
        sandbox.drain()
        assert [record["value"]["W"] for record in sandbox.consume("O")] == ["2020-01-01"]
        assert [entry["errorMessage"] for entry in entries(sandbox, "deserializationError")] == [
            f"no timestamp from 1970 on: W is {text!r}" for text in ("never", "1969-12-31", None)
        ]


def test_of_long_values_the_beginning_is_written() -> None:
    _, (entry,) = written("CREATE STREAM o AS SELECT k, CAST(w AS INT) AS x FROM s;", [(1, "x" * 100_000, None)])
    assert len(entry["record"]) < 1_000
    assert len(entry["errorMessage"]) < 2_000
    assert entry["record"].endswith("…}")


def test_of_many_failures_the_first_ones_are_written_and_the_others_counted() -> None:
    _, failed = written("CREATE STREAM o AS SELECT k, 1 / v AS x FROM s;", [(0, None, None)] * 150)
    assert [entry["offset"] for entry in failed] == [*range(100), -1]
    assert failed[-1]["errorMessage"] == "50 more rows for which an expression failed"


def test_a_function_that_fails_has_one_entry_however_often_its_row_is_computed() -> None:
    statement = "CREATE STREAM o AS SELECT k, PARSE_DATE(w, 'yyyy-MM-dd') AS d, 10 / v AS x FROM s;"
    _, failed = written(statement, [(0, "never", None), (1, "2020-01-01", None)])
    assert [entry["errorMessage"].partition(":")[0] for entry in failed] == [
        "function parse_date failed",
        "Error computing column X",
    ]


def test_a_filter_that_fails_leaves_the_row_out() -> None:
    values, failed = written("CREATE STREAM o AS SELECT k, v FROM s WHERE v >= 0 AND CAST(w AS INT) > 3;")
    assert [value["V"] for value in values] == [0, 2]
    assert [(entry["offset"], entry["errorMessage"].partition(",")[0]) for entry in failed] == [
        (0, "Error computing the condition of a filter: not a number: x")
    ]


@pytest.mark.parametrize("condition", ["ARRAY[10 / v] IS NOT NULL", "STRUCT(a := 5, b := 10 / v)->a = 5"])
def test_a_filter_that_fails_in_a_part_nobody_reads_leaves_the_row_out(condition: str) -> None:
    values, failed = written(f"CREATE STREAM o AS SELECT k, v FROM s WHERE {condition};")
    assert ([value["V"] for value in values], [entry["offset"] for entry in failed]) == ([1, 2, None], [1])


def test_a_condition_behind_one_that_is_not_true_has_not_failed() -> None:
    values, failed = written("CREATE STREAM o AS SELECT k, v FROM s WHERE v <> 1 AND CAST(w AS INT) > 3;")
    assert ([value["V"] for value in values], failed) == ([0, 2], [])


def test_it_has_not_failed_either_where_another_row_of_the_batch_has() -> None:
    rows: list[Row] = [(1, "x", None), (2, "y", None), (3, "7", None)]
    values, failed = written("CREATE STREAM o AS SELECT k, v FROM s WHERE v <> 1 AND CAST(w AS INT) > 3;", rows)
    assert ([value["V"] for value in values], [entry["offset"] for entry in failed]) == ([3], [1])


def test_a_filter_asks_all_conditions_at_once() -> None:
    with Sandbox() as sandbox:
        (plan,) = sandbox.execute(f"{SOURCE} EXPLAIN SELECT * FROM s WHERE v > 1 AND 6 / v > 2 EMIT CHANGES;")[1:]
        assert "CASE WHEN NOT" not in plan["queryDescription"]["executionPlan"]


def test_what_stands_behind_a_filter_is_evaluated_for_its_rows_only() -> None:
    values, failed = written("CREATE STREAM o AS SELECT k, CAST(w AS INT) AS x, 6 / v AS y FROM s WHERE v > 1;")
    assert (values, failed) == ([{"X": 7, "Y": 3}], [])


def test_each_failing_column_has_its_entry() -> None:
    _, failed = written("CREATE STREAM o AS SELECT k, 10 / v AS a, v % v AS b, CAST(w AS INT) AS c FROM s;")
    assert [(entry["errorMessage"].partition(",")[0], entry["offset"]) for entry in failed] == [
        ("Error computing column C: not a number: x", 0),
        ("Error computing column A: division by zero", 1),
        ("Error computing column B: division by zero", 1),
    ]


def test_table_functions_and_group_by_fail_like_columns() -> None:
    values, failed = written("CREATE STREAM o AS SELECT k, EXPLODE(ARRAY[10 / v]) AS x FROM s;")
    assert [value["X"] for value in values] == [10, 5, None]
    assert [entry["offset"] for entry in failed] == [1]
    _, failed = written("CREATE TABLE o AS SELECT 10 / v AS x, COUNT(*) AS n FROM s GROUP BY 10 / v;")
    assert [entry["offset"] for entry in failed] == [1]


def test_an_aggregate_leaves_out_what_its_argument_fails_for() -> None:
    values, failed = written("CREATE TABLE o AS SELECT 1 AS one, SUM(CAST(w AS INT)) AS n FROM s GROUP BY 1;")
    assert [value["N"] for value in values][-1] == 12
    assert [entry["offset"] for entry in failed] == [0]


def test_a_user_s_case_that_looks_like_an_and_keeps_its_meaning() -> None:
    statement = "CREATE STREAM o AS SELECT k, v FROM s WHERE CASE WHEN NOT b THEN FALSE ELSE v / 1 >= 0 END;"
    assert [value["V"] for value in written(statement)[0]] == [1, 0]


@pytest.mark.parametrize(
    ("expression", "results"),
    [
        ("CASE WHEN RANDOM() >= 0 THEN CAST(w AS INT) END", [None, 5, 7, None]),
        ("LEN(CONCAT(UUID(), CAST(10 / v AS STRING)))", [38, None, 37, 36]),
        ("RANDOM() + CAST('x' AS INT)", [None, None, None, None]),
        ("ARRAY_LENGTH(ARRAY_DISTINCT(ARRAY[RANDOM(), RANDOM(), RANDOM() / v]))", [3, 3, 3, 3]),
        ("RANDOM() < 2 AND CAST(w AS INT) > 5", [None, False, True, False]),
        ("TRANSFORM(ARRAY[v, 2], x => CAST(RANDOM() / 2 AS INT) + 4 / x)", [[4, 2], None, [2, 2], None]),
        ("LEN(ARRAY_JOIN(TRANSFORM(ARRAY[2, v], x => CONCAT(UUID(), CAST(4 / x AS STRING)))))", [75, None, 75, None]),
        ("FILTER(ARRAY[v, 2], x => RANDOM() < 4 / x)", [[1, 2], None, [2, 2], None]),
        ("REDUCE(ARRAY[v, 2], 0, (s, x) => s + CAST(RANDOM() / 2 AS INT) + 4 / x)", [6, None, 4, None]),
        ("REDUCE(MAP('a' := v), 0, (s, key, x) => s + CAST(RANDOM() / 2 AS INT) + 4 / x)", [4, None, 2, None]),
        (f"ARRAY_LENGTH(ARRAY_DISTINCT({NESTED}))", [5, None, 5, None]),
        ("ARRAY_LENGTH(ARRAY_DISTINCT(TRANSFORM(ARRAY[1, 1, v / v], x => UUID())))", [3, None, 3, 3]),
    ],
)
def test_what_differs_from_call_to_call_may_fail_without_an_entry(expression: str, results: list[Any]) -> None:
    assert computed(expression) == (results, [])


@pytest.mark.parametrize("failing", ["CAST('a' AS INT)", "CAST(CAST(CAST('a' AS DOUBLE) AS STRING) AS INT)"])
def test_a_pull_query_over_rows_without_null_does_not_fail_with_a_part_that_always_does(failing: str) -> None:
    """DuckDB has statistics of the rows: it knows what `v IS NULL` is."""
    with Sandbox() as sandbox:
        sandbox.execute(
            "SET 'auto.offset.reset' = 'earliest';"
            "CREATE TABLE t (k INT PRIMARY KEY, v INT) WITH (kafka_topic='t', value_format='JSON', partitions=1);"
            "CREATE TABLE u AS SELECT * FROM t; INSERT INTO t VALUES (1, 1), (2, 2);"
        )
        sandbox.drain()
        answer = sandbox.query(f"SELECT k, CASE WHEN v = 1 THEN {failing} ELSE 3 END AS x FROM u;")
        rows = [entry["row"]["columns"] for entry in answer if "row" in entry]
        assert sorted(rows) == [[1, None], [2, 3]]


def test_a_constant_beyond_its_bounds_keeps_nothing_until_the_process_ends() -> None:
    """DuckDB lists on standard error what a connection with functions still holds then."""
    program = """if True:
        from millstream.testing import Sandbox
        with Sandbox() as sandbox:
            sandbox.execute("CREATE STREAM s (v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);")
            sandbox.execute("CREATE STREAM o AS SELECT CASE WHEN v = 1 THEN LPAD('x', 2147483647, 'y') END x FROM s;")
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert "leaked" not in done.stderr


def test_a_filter_that_draws_rows_at_random_leaves_out_those_that_fail() -> None:
    values, _ = written("CREATE STREAM o AS SELECT k, v FROM s WHERE RANDOM() < 2 AND CAST(w AS INT) > 5;")
    assert values == [{"V": 2}]


def test_a_row_that_is_taken_back_has_no_second_entry() -> None:
    with Sandbox() as sandbox:
        sandbox.execute(
            "CREATE TABLE t (k STRING PRIMARY KEY, w STRING) WITH (kafka_topic='t', value_format='JSON', partitions=1);"
            "CREATE TABLE o AS SELECT CAST(w AS INT) AS x, COUNT(*) AS n FROM t GROUP BY CAST(w AS INT);"
        )
        for text in ("x", "y", "7"):
            sandbox.produce("t", "a", {"W": text}, timestamp=1)
        sandbox.drain()
        assert [entry["offset"] for entry in entries(sandbox)] == [0, 1]


def test_a_batch_without_failures_follows_one_with_them() -> None:
    with Sandbox() as sandbox:
        sandbox.execute(f"{SOURCE} CREATE STREAM o AS SELECT k, 6 / v AS x FROM s;")
        for v in (0, 1, 2, 0, 3):
            sandbox.execute(f"INSERT INTO s (k, v) VALUES ('a', {v});")
        sandbox.drain()
        assert [record["value"]["X"] for record in sandbox.consume("O")] == [None, 6, 3, None, 2]
        assert [entry["offset"] for entry in entries(sandbox)] == [0, 3]


@pytest.mark.parametrize("innermost", ["b", "v = 1", "b AND CAST(w AS INT) > 3"])
def test_what_is_evaluated_twice_does_not_double_with_each_level(innermost: str) -> None:
    def plan_length(levels: int) -> int:
        expression = innermost
        for level in range(levels):
            expression = f"(({expression}) AND 10 / v = {level} OR b)"
        with Sandbox() as sandbox:
            (plan,) = sandbox.execute(f"{SOURCE} EXPLAIN SELECT {expression} AS x FROM s EMIT CHANGES;")[1:]
            return len(plan["queryDescription"]["executionPlan"])

    assert plan_length(32) < 3 * plan_length(16)
