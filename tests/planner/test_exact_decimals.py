"""Numbers compare by all their digits, also where no DECIMAL has room for both."""

from __future__ import annotations

import operator
from collections.abc import Callable
from decimal import Decimal as PythonDecimal
from functools import cache
from typing import Any

import duckdb
import pytest

from millstream.planner.expressions.compilation import compile_expression
from millstream.planner.expressions.scope import Scope, ScopeSource
from millstream.planner.expressions.typed import to_sql
from millstream.sql.functions.udf import register_udfs
from millstream.sql.parser import parse_expression
from millstream.sql.types import BIGINT, Decimal, SqlType

TYPES: dict[str, SqlType] = {
    "W": Decimal(38, 0), "M": Decimal(38, 20), "F": Decimal(38, 38), "C": Decimal(38, 2), "S": Decimal(10, 9),
    "B": BIGINT,
}  # fmt: skip
VALUES: dict[str, list[str]] = {
    "W": ["9" * 38, "-" + "9" * 38, "0", "5", "-5", "6"],
    "M": ["9" * 18 + "." + "9" * 20, "-" + "9" * 18 + "." + "9" * 20, "0", "5." + "0" * 19 + "1", "-5.5", "5", "0.33"],
    "F": ["0." + "9" * 38, "-0." + "9" * 38, "0", "-0." + "0" * 37 + "1", "0.33", "0.330" + "0" * 34 + "1"],
    "C": ["9" * 36 + ".99", "0.33", "-0.33", "5.00", "-5.01", "0"],
    "S": ["9.999999999", "-0.000000001", "0", "5.5", "0.33"],
    "B": ["9223372036854775807", "-9223372036854775808", "5", "0"],
}
OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "IS DISTINCT FROM": operator.ne, "IS NOT DISTINCT FROM": operator.eq,
}  # fmt: skip
PAIRS = [(one, other) for one in TYPES for other in TYPES if one != other]


@pytest.mark.parametrize(("one", "other"), PAIRS)
@pytest.mark.parametrize("sign", OPERATORS)
def test_two_columns_compare_as_their_numbers_do(one: str, other: str, sign: str) -> None:
    for left, right, found in _answers(f"{one} {sign} {other}", one, other):
        assert found is OPERATORS[sign](left, right), (left, right)


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_between_and_in_compare_as_their_numbers_do(one: str, other: str) -> None:
    for left, right, found in _answers(f"{one} BETWEEN {other} AND {other}", one, other):
        assert found is (left == right), (left, right)
    for left, right, found in _answers(f"{one} IN ({other}, 5.5, '-5.01', NULL, 7)", one, other):
        assert found is (left in (right, PythonDecimal("5.5"), PythonDecimal("-5.01"))), (left, right)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("W > 5.5", True),
        ("W = 5.5", False),
        ("W <> 5.5", True),
        ("5.5 < W", True),
        ("W BETWEEN 5.5 AND 6.5", False),
        ("W NOT BETWEEN 5.5 AND 6.5", True),
        ("W IN (1.5, 2)", False),
        ("W NOT IN (1.5, 2)", True),
        ("W IN (1.5, 2, 3, 4, 5, 6, 7, 8)", False),
        (f"W IN (1.5, 2, 3, 4, 5, 6, 7, '{'9' * 38}')", True),
        ("1 IN (W, 2.5)", False),
        ("2.5 IN (W, 2.5)", True),
        ("W IN ('1e-45', 1.5)", False),
        ("W IS DISTINCT FROM NULL", True),
        ("CAST(NULL AS DECIMAL(38, 38)) IS DISTINCT FROM W", True),
        ("CAST(NULL AS DECIMAL(38, 38)) IS NOT DISTINCT FROM CAST(NULL AS DECIMAL(38, 0))", True),
        ("CAST(NULL AS DECIMAL(38, 38)) = W", False),
        ("CAST(NULL AS DECIMAL(38, 38)) <> W", False),
        ("CASE W WHEN 1.5 THEN 'a' ELSE 'b' END", "b"),
    ],
)
def test_a_number_written_beside_one_of_38_digits_compares_too(expression: str, expected: object) -> None:
    planned = _planned(expression)
    ((found,),) = _connection().execute(f"SELECT {planned} FROM (SELECT {_column('W', VALUES['W'][0])})").fetchall()
    assert found == expected


def test_a_comparison_of_such_numbers_needs_no_try() -> None:
    assert "TRY" not in _planned("W > 5.5") + _planned("W < M")


def _answers(text: str, one: str, other: str) -> list[tuple[PythonDecimal, PythonDecimal, bool | None]]:
    left, right = (
        " UNION ALL ".join(f"SELECT {_column(name, text)}" for text in VALUES[name]) for name in (one, other)
    )
    rows = _connection().execute(f"SELECT {one}, {other}, {_planned(text)} FROM ({left}), ({right})").fetchall()
    return [(PythonDecimal(a), PythonDecimal(b), found) for a, b, found in rows]


def _column(name: str, value: str) -> str:
    return f"CAST('{value}' AS {TYPES[name].duckdb}) AS {name}"


def _planned(text: str) -> str:
    columns = {name: (name, type_) for name, type_ in TYPES.items()}
    planned = to_sql(compile_expression(parse_expression(text), Scope((ScopeSource("S", columns),), {}, "WHERE")), str)
    register_udfs(_connection(), planned.udfs)
    return planned.sql


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()
