"""IN over a list that is long enough to be a list for DuckDB gives what its items give one by one."""

from __future__ import annotations

from functools import cache

import duckdb
import pytest

from millstream.planner.expressions.compilation import compile_expression
from millstream.planner.expressions.scope import Scope
from millstream.planner.expressions.typed import to_sql
from millstream.planner.specs import SqlExpression
from millstream.sql.functions.udf import register_udfs
from millstream.sql.parser import parse_expression

NUMBERS = "1, -2, 3, 4, 5, 6, 7, 8, 9"
TEXTS = "'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', ''"
DATES = ", ".join(f"'2020-01-0{day}'" for day in range(1, 10))
LISTS = {
    NUMBERS: ("1", "-2", "10", "1.0", "'9'", "CAST(NULL AS INT)", "CAST(3 AS DOUBLE)", "CAST(5 AS DECIMAL(9, 4))"),
    f"{NUMBERS}, NULL": ("1", "10", "CAST(NULL AS INT)"),
    f"{NUMBERS}, CAST(NULL AS INT), 10 + 1": ("1", "10", "11", "CAST(NULL AS INT)"),
    f"{NUMBERS}, 0.25": ("1", "0.25", "CAST('0.25' AS DOUBLE)", "CAST(0.25 AS DECIMAL(3, 2))", "0.250"),
    TEXTS: ("'a'", "'A'", "''", "'h '", "CAST(NULL AS STRING)"),
    DATES: ("CAST('2020-01-09' AS DATE)", "CAST('2020-01-10' AS DATE)"),
    "true, true, true, true, true, true, true, true, true": ("true", "false", "CAST(NULL AS BOOLEAN)"),
}
CASES = [(value, items) for items, values in LISTS.items() for value in values]


@pytest.mark.parametrize(("value", "items"), CASES)
def test_a_list_gives_what_its_items_give(value: str, items: str) -> None:
    one_by_one = [_answer(f"{value} IN ({item})") for item in _split(items)]
    assert _answer(f"{value} IN ({items})") == any(one_by_one)
    assert _answer(f"{value} NOT IN ({items})") == (not any(one_by_one))


def test_a_short_list_stays_a_chain_of_comparisons() -> None:
    assert "list_contains" not in _sql("1 IN (1, 2, 3)").lower()
    assert _sql(f"1 IN ({NUMBERS}, CASE WHEN true THEN 2 END)").lower().count("list_contains") == 1
    assert _sql(f"1 IN ({NUMBERS}, 1 + 1)").lower().count("list_position") == 1  # a sum can fail


def _split(items: str) -> list[str]:
    parsed = parse_expression(f"ARRAY[{items}]")
    spans = [each.meta["span"] for each in parsed.expressions]
    return [f"ARRAY[{items}]"[span.start : span.end] for span in spans]


def _sql(text: str) -> str:
    return _planned(text).sql


def _planned(text: str) -> SqlExpression:
    return to_sql(compile_expression(parse_expression(text), Scope((), {}, "WHERE")), str)


def _answer(text: str) -> bool:
    planned = _planned(text)
    register_udfs(_connection(), planned.udfs)
    ((found,),) = _connection().execute(f"SELECT {planned.sql}").fetchall()
    return found


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()
