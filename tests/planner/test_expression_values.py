"""What expressions are worth by ksqlDB's rules, and which are refused: their SQL runs in DuckDB, without a query."""

from __future__ import annotations

from functools import cache
from typing import Any

import duckdb
import pytest

from millstream.errors import StatementError
from millstream.planner.expressions.compilation import compile_expression
from millstream.planner.expressions.scope import Scope, ScopeSource
from millstream.planner.expressions.typed import Typed, to_sql
from millstream.sql.functions.udf import register_udfs
from millstream.sql.parser import parse_expression
from millstream.sql.types import BIGINT, DOUBLE, INTEGER, STRING, Decimal, SqlType

COLUMNS = {"T": ("t", STRING), "D": ("d", DOUBLE), "L": ("l", Decimal(38, 0)), "ROWTIME": ("ROWTIME", BIGINT)}
ROW = f"(SELECT 'a_c' AS t, 0.5::DOUBLE AS d, {'9' * 38}::DECIMAL(38, 0) AS l, 86400000::BIGINT AS ROWTIME) AS row"
NO_TEXT = "CAST(NULL AS STRING)"
DAY, MOMENT = "CAST('2020-01-02' AS DATE)", "CAST('2020-01-02T00:00:00' AS TIMESTAMP)"


@cache
def connection() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()


def compiled(text: str) -> Typed:
    return compile_expression(parse_expression(text), Scope((ScopeSource("S", COLUMNS),), {}, "WHERE"))


def value(text: str) -> Any:
    planned = to_sql(compiled(text), str)
    register_udfs(connection(), planned.udfs)
    ((found,),) = connection().execute(f"SELECT {planned.sql} FROM {ROW}").fetchall()
    return found


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("1 IN (NULL)", False),
        ("1 NOT IN (NULL)", True),
        ("1 IN (NULL, 1)", True),
        ("1 IN (2, 3)", False),
        ("CAST(NULL AS INT) IN (1)", False),
        ("T IN ('a_c', T)", True),
        ("5 IN (1, 2, 3, 4, 6, 7, 8, 9, 2 + 3)", True),
        ("-5 IN (1, 2, 3, 4, 6, 7, 8, 9, -5)", True),
        ("ROWTIME IN ('1970-01-02', '1970-01-03')", True),
    ],
)
def test_a_value_is_in_a_list_that_has_an_equal_item_and_nothing_equals_null(expression: str, expected: bool) -> None:
    assert value(expression) is expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("T || 'x'", "a_cx"),
        ("T || CAST(NULL AS STRING)", "a_c"),
        ("CAST(NULL AS STRING) || T || NULL", "a_c"),
        ("CAST(NULL AS STRING) || CAST(NULL AS STRING)", ""),
        ("TO_BYTES('a', 'ascii') || TO_BYTES('b', 'ascii')", b"ab"),
        ("TO_BYTES('a', 'ascii') || NULL", b"a"),
        ("TRANSFORM(ARRAY['a', NULL], x => x || 'b')", ["ab", None]),
    ],
)
def test_pipes_are_another_spelling_of_concat_outside_of_lambdas(expression: str, expected: Any) -> None:
    assert value(expression) == expected


@pytest.mark.parametrize("items", [8, 9])
def test_items_that_are_computed_stand_once_beside_the_list_of_the_others(items: int) -> None:
    numbers = ", ".join(map(str, range(3, 3 + items)))
    sql = to_sql(compiled(f"1 IN ({numbers}, CAST(D AS INT))"), str).sql
    assert (sql.lower().count("list_position"), sql.count("1 = "), sql.count("TRUNC(d)")) == (1, 1, 1)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("T LIKE 'a%'", True),
        ("T LIKE 'b%'", False),
        ("T LIKE 'a!_c' ESCAPE '!'", True),
        ("'abc' LIKE 'a!_c' ESCAPE '!'", False),
        ("'abc' LIKE 'a_c'", True),
        ("T LIKE T", True),
        ("'a%_c_d' LIKE 'a%_c!_d%' ESCAPE '!'", True),
        ("'a%_cxd' LIKE 'a%_c!_d%' ESCAPE '!'", False),
        (f"{NO_TEXT} LIKE 'a%'", False),
        (f"{NO_TEXT} LIKE 'a%_%'", False),
        (f"'a' LIKE {NO_TEXT}", False),
    ],
)
def test_like_fits_whole_texts_and_the_escape_character_takes_the_meaning_of_the_next(
    expression: str, expected: bool
) -> None:
    assert value(expression) is expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("'a' + 'b'", "ab"),
        ("'a' || T", "aa_c"),
        (f"'a' + {NO_TEXT}", None),
        ("7 / 2", 3),
        ("7 / 2.0 > 3", True),
        ("-(1 + 1)", -2),
        ("1 + 2 * 3", 7),
        ("7 % 4", 3),
    ],
)
def test_operators_compute_in_the_type_of_their_operands(expression: str, expected: Any) -> None:
    assert value(expression) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("CASE 2 WHEN 1 THEN 'a' WHEN 2 THEN 'b' ELSE 'c' END", "b"),
        ("CASE 3 WHEN 1 THEN 'a' WHEN 2 THEN 'b' ELSE 'c' END", "c"),
        ("CASE WHEN 1 = 2 THEN 'a' END", None),
        ("CASE WHEN 1 = 1 THEN 'a' ELSE NULL END", "a"),
        ("CASE WHEN 1 = 1 THEN 1 ELSE 2.5 END", 1),
        ("1 = 1 AND 2 = 2 AND 3 = 4", False),
        ("1 = 2 OR 2 = 3 OR 3 = 3", True),
        (f"{NO_TEXT} = 'a' OR 1 = 1", True),
        (f"{NO_TEXT} = {NO_TEXT}", False),
        (f"{NO_TEXT} IS NOT DISTINCT FROM {NO_TEXT}", True),
        ("1 BETWEEN 1 AND 1", True),
        ("2 BETWEEN 0 AND 1", False),
        ("'1970-01-02' = ROWTIME", True),
        ("ROWTIME > '1970-01-02'", False),
        (f"{DAY} = {MOMENT}", True),
        (f"{MOMENT} <= {DAY}", True),
        (f"{DAY} < CAST('2020-01-02T00:00:00.001' AS TIMESTAMP)", True),
        (f"{DAY} BETWEEN '2020-01-01' AND {MOMENT}", True),
        ("L < 0.5", False),
        ("L > CAST('0.00000000000000000000000000000000000001' AS DECIMAL(38, 38))", True),
        (f"L = CAST('{'9' * 38}' AS DECIMAL(38, 0)) AND L IN (0.5, L)", True),
    ],
)
def test_conditions_and_branches_give_what_ksqldb_gives(expression: str, expected: Any) -> None:
    assert value(expression) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("FILTER(ARRAY[0, 5, 20], x => x = 0 OR 10 / x > 1)", [0, 5]),
        ("FILTER(ARRAY[0, 5, 20], x => x <> 0 AND 10 / x > 1)", [5]),
        ("FILTER(ARRAY[0, 5, 20], x => x >= 0 AND x <> 0 AND 10 / x > 1)", [5]),
        ("FILTER(ARRAY[NULL, 5], x => x IS NOT NULL AND x + 1 > 1)", [5]),
        ("FILTER(ARRAY[NULL, 5], x => x IS NULL OR x + 1 > 100)", [None]),
        ("TRANSFORM(ARRAY[1, 2], x => x + 1)", [2, 3]),
        ("TRANSFORM(ARRAY[1, NULL], x => x + 1)", None),
        ("REDUCE(ARRAY[1, 2], 10, (state, x) => state + x)", 13),
        ("TRANSFORM(ARRAY[1, 2], x => REDUCE(ARRAY[x, 2], 0, (s, y) => s + y * x))", [3, 8]),
        ("TRANSFORM(ARRAY['a', 'b'], x => x || 'z')", ["az", "bz"]),
    ],
)
def test_in_a_lambda_an_operand_is_not_asked_once_those_before_it_have_decided(expression: str, expected: Any) -> None:
    assert value(expression) == expected


@pytest.mark.parametrize(
    ("expression", "total"),
    [
        ("1", True),
        ("T", True),
        ("'a' || 'b'", True),
        ("'a' || CAST(1 / 0 AS STRING)", False),
        ("1 IN (NULL)", True),
        ("1 IN (1, 2)", True),
        ("D IN (1, 2)", True),
        ("'a' LIKE 'a%'", True),
        ("'a' LIKE 'a%_%'", True),
        ("'a' LIKE 'a!%' ESCAPE '!'", False),
        ("'a' LIKE 'a%_!%' ESCAPE '!'", False),
        ("1 = 1 AND 2 = 2", True),
        ("1 = 1 AND D = 2", True),
        ("1 = 1 AND 1 / 0 = 2", False),
        ("T IN ('a', CAST(1 / 0 AS STRING))", False),
        ("ROWTIME = '1970-01-02'", True),
        ("1 / 1", False),
        ("L IN (L, L)", True),
        ("L IN (1.5, 2)", True),
        ("L IN (1, 2, CAST(2.5 AS DECIMAL(3, 2)))", False),
        ("1 IN (L, 2.5)", True),
        ("ARRAY[L, L]", True),
        ("ARRAY[L, 1.5]", False),
        ("CASE WHEN D IS NULL THEN L ELSE 1.5 END", False),
    ],
)
def test_an_expression_is_total_if_no_row_can_make_it_fail(expression: str, total: bool) -> None:
    assert compiled(expression).total is total


@pytest.mark.parametrize(
    "expression",
    [
        "ARRAY[L, 1.5]",
        "CASE WHEN D IS NULL THEN 1.5 ELSE L END",
    ],
)
def test_a_decimal_that_does_not_fit_into_the_common_type_fails_its_row_only(expression: str) -> None:
    assert value(expression) is None


@pytest.mark.parametrize("items", [1, 2, 7, 8, 30])
@pytest.mark.parametrize("negated", ["", "NOT "])
def test_a_value_that_fails_is_in_no_list_and_in_the_others_of_its_batch(items: int, negated: str) -> None:
    listed = ", ".join(str(item) for item in range(items))
    planned = to_sql(compiled(f"CAST(T AS INT) {negated}IN ({listed})"), str)
    register_udfs(connection(), planned.udfs)
    rows = "(VALUES ('abc'), ('0'), ('99'), (NULL)) AS rows(t)"
    found = [value for (value,) in connection().execute(f"SELECT {planned.sql} FROM {rows}").fetchall()]
    assert found == [None, not negated, bool(negated), bool(negated)]


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("ROWTIME IN ('tomorrow')", "tomorrow"),
        ("1 LIKE 'a'", "Like condition must be between strings"),
        ("T LIKE 1", "Like condition must be between strings"),
        ("'a' + 1", "Error processing expression"),
        ("1 + 'a'", "Error processing expression"),
        ("'a' || 1", "Function 'concat' does not accept parameters (STRING, INTEGER)"),
        ("-T", "cannot negate"),
        ("CASE WHEN 1 = 1 THEN NULL END", "All case branches have NULL type"),
        ("CASE WHEN 1 THEN 2 END", "WHEN operand type should be boolean"),
        ("1 = 1 AND 2", "AND takes BOOLEANs, not INTEGER"),
        ("REDUCE(ARRAY[1], 0, (x, x) => x)", "Reusing lambda arguments in nested lambda is not allowed"),
        ("1 = NULL", "Comparison with NULL not supported"),
        ("T < 1", "Cannot compare"),
        (f"{DAY} = ROWTIME", "Cannot compare"),
        (f"{DAY} < CAST('00:00:00' AS TIME)", "Cannot compare"),
        ("ARRAY[1] < ARRAY[2]", "Cannot compare"),
        ("(1 = 1) < (1 = 1)", "Cannot compare"),
        ("1 IN ('a', ARRAY[1])", "Invalid Predicate"),
        ("ROWTIME = 'tomorrow'", "tomorrow"),
        ("9223372036854775808", "Invalid numeric literal"),
        ("-9223372036854775809", "Invalid numeric literal"),
        ("-(9223372036854775808)", "Invalid numeric literal"),
        ("COUNT(1)", "cannot stand here"),
        ("EXPLODE(ARRAY[1])", "can only stand in SELECT"),
        ("ABS(*)", "ABS"),
    ],
)
def test_what_ksqldb_does_not_compute_is_refused(expression: str, words: str) -> None:
    with pytest.raises(StatementError) as refused:
        compiled(expression)
    assert words in refused.value.message


@pytest.mark.parametrize(
    ("expression", "type_"),
    [
        ("-2147483648", INTEGER),
        ("-2147483649", BIGINT),
        ("2147483648", BIGINT),
        ("-9223372036854775808", BIGINT),
        ("- 9223372036854775808", BIGINT),
        ("-0", INTEGER),
        ("-0000000000000000000000007", INTEGER),
    ],
)
def test_the_smallest_integers_are_literals_of_their_type(expression: str, type_: SqlType) -> None:
    assert compiled(expression).type == type_
    assert value(expression) == int(expression.replace(" ", ""))
    assert value(f"ARRAY[{expression}] = ARRAY[{expression}]") is True


@pytest.mark.parametrize(
    "expression",
    [
        "-(-2147483648)",
        "-(-9223372036854775808)",
        "-CAST('-2147483648' AS INT)",
        "- - (-2147483647 - 1)",
        "ABS(-(-2147483648))",
    ],
)
def test_what_is_the_opposite_of_a_constant_keeps_to_its_type(expression: str) -> None:
    assert value(expression) is None


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("COALESCE(T = 'x') AND CAST(T AS INT) > 3", False),
        ("COALESCE(T = 'a_c') OR CAST(T AS INT) > 3", True),
        ("COALESCE(D > 9, T IS NULL) AND CAST(T AS INT) > 3", False),
        ("AS_VALUE(T IS NULL) AND CAST(T AS INT) > 3", False),
    ],
)
def test_what_is_never_null_decides_also_as_the_only_argument(expression: str, expected: bool) -> None:
    assert value(expression) is expected


@pytest.mark.parametrize("position", ["-2147483648", "CAST('-2147483648' AS INT)", "CAST(D - 2147483648.5 AS INT)"])
def test_a_text_from_before_its_beginning_is_the_whole_text(position: str) -> None:
    assert value(f"SUBSTRING(T, {position})") == "a_c"


@pytest.mark.parametrize("expression", ["ARRAY[1] = ARRAY[1]", "(1 = 1) = (1 = 1)", "ARRAY[1] <> ARRAY[2]"])
def test_lists_and_truths_are_equal_or_not_without_an_order(expression: str) -> None:
    assert value(expression) is True


@pytest.mark.parametrize(
    ("expression", "is_ours"),
    [("T LIKE 'a%'", False), ("T LIKE 'a%_%'", True), ("T LIKE T", True), ("T LIKE 'a' || '%'", True)],
)
def test_patterns_that_may_take_duckdb_long_are_matched_by_ours(expression: str, is_ours: bool) -> None:
    assert bool(to_sql(compiled(expression), str).udfs) == is_ours
    assert value(expression) is True


def test_a_call_that_cannot_fail_is_tried_by_nobody() -> None:
    assert to_sql(compiled("RANDOM()"), str).sql == "RANDOM()"
    assert "TRY" not in to_sql(compiled("UUID() || T"), str).sql
    assert "TRY" in to_sql(compiled("RANDOM() + CAST(T AS INT)"), str).sql
    assert value("CAST(RANDOM() AS DOUBLE)") < 1


@pytest.mark.parametrize(
    "form",
    [
        "{0} + 1", "-{0}", "({0})", "1 = {0}", "{0} IS NULL", "{0} IS DISTINCT FROM 1", "NOT {0} > 1", "1 IN (2, {0})",
        "{0} IN (1)", "1 BETWEEN 0 AND {0}", "1 BETWEEN {0} AND 2", "{0} > 1 OR D > 1", "D > 1 AND {0} > 1",
        "ARRAY[1, {0}]", "ARRAY[1][{0}]", "MAP(1 := 2)[{0}]", "MAP(1 := {0})[1]", "STRUCT(a := {0})->a", "ABS({0})",
        "CASE WHEN {0} > 1 THEN 1 END", "CASE WHEN D > 1 THEN {0} ELSE 1 END", "CASE {0} WHEN 1 THEN 2 END",
        "T LIKE CAST({0} AS STRING)", "CAST({0} AS STRING) LIKE T ESCAPE '!'", "T + CAST({0} AS STRING)",
        "T || CAST({0} AS STRING)", "CAST({0} AS BIGINT)", "{0} * D", "L > {0}", "TRANSFORM(ARRAY[1], x => x + {0})",
    ],
)  # fmt: skip
def test_what_has_a_part_that_can_fail_can_fail(form: str) -> None:
    assert compiled(form.format("1")) is not None
    assert not compiled(form.format("CAST(T AS INT)")).total
