"""How types convert: what CAST gives, what several types have in common, what arithmetic gives."""

from __future__ import annotations

from decimal import Decimal as PythonDecimal
from decimal import localcontext
from typing import Any

import duckdb
import pytest
from sqlglot import exp, parse_one

from millstream.errors import TypeMismatch
from millstream.sql.coercion import (
    Operator,
    arithmetic_type,
    can_coerce,
    cast_sql,
    common_type,
    decimal_of,
    decimal_operation,
)
from millstream.sql.functions.signature import parse_type
from millstream.sql.functions.udf import register_udfs, udfs_in
from millstream.sql.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    NULL,
    STRING,
    TIMESTAMP,
    Array,
    Decimal,
    Field,
    Map,
    SqlType,
    Struct,
)


@pytest.fixture(scope="module")
def connection() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()


def duckdb_tree(text: str) -> exp.Expression:
    tree = parse_one(text, dialect="duckdb")
    assert isinstance(tree, exp.Expression)
    return tree


def cast(connection: duckdb.DuckDBPyConnection, literal: str, source: str, target: str) -> Any:
    """The cast of a DuckDB literal, as text; None where the row fails."""
    given, wanted = parse_type(source), parse_type(target)
    value = duckdb_tree(f"CAST({literal} AS {given.duckdb})")
    tree = cast_sql(value, given, wanted, explicit=True)
    register_udfs(connection, udfs_in(tree))
    ((value,),) = connection.execute(f"SELECT CAST(TRY({tree.sql('duckdb')}) AS VARCHAR)").fetchall()
    return value


@pytest.mark.parametrize(
    ("literal", "source", "target", "text"),
    [
        ("'1.5'", "DOUBLE", "STRING", "1.5"),
        ("'1e10'", "DOUBLE", "STRING", "1.0E10"),
        ("'-0.0'", "DOUBLE", "STRING", "-0.0"),
        ("'1e-5'", "DOUBLE", "STRING", "1.0E-5"),
        ("'inf'", "DOUBLE", "STRING", "Infinity"),
        ("'-1.9'", "DOUBLE", "INTEGER", "-1"),
        ("'1e20'", "DOUBLE", "INTEGER", "2147483647"),
        ("'1e20'", "DOUBLE", "BIGINT", "9223372036854775807"),
        ("'nan'", "DOUBLE", "BIGINT", "0"),
        ("NULL", "DOUBLE", "INTEGER", None),
        ("'0.99'", "DOUBLE", "DECIMAL(2, 1)", "1.0"),
        ("'9.99'", "DOUBLE", "DECIMAL(2, 1)", None),
        ("'1.115'", "DOUBLE", "DECIMAL(3, 2)", "1.11"),
        ("1.2345678987654322e16", "DOUBLE", "DECIMAL(33, 16)", "12345678987654322.0000000000000000"),
        ("2147483648", "BIGINT", "INTEGER", "-2147483648"),
        ("-5", "BIGINT", "INTEGER", "-5"),
        ("99999999999.99", "DECIMAL(20, 2)", "INTEGER", "1215752191"),
        ("-1.99", "DECIMAL(20, 2)", "BIGINT", "-1"),
        ("10.125", "DECIMAL(5, 3)", "DECIMAL(4, 2)", "10.13"),
        ("0.01", "DECIMAL(2, 2)", "STRING", "0.01"),
        ("' 12'", "STRING", "INTEGER", "12"),
        ("'1.5'", "STRING", "INTEGER", None),
        ("'1_0'", "STRING", "INTEGER", None),
        ("'99999999999'", "STRING", "INTEGER", None),
        ("'1e3'", "STRING", "DOUBLE", "1000.0"),
        ("'nan'", "STRING", "DOUBLE", None),
        ("'0.95'", "STRING", "DECIMAL(2, 1)", "1.0"),
        ("'Yes'", "STRING", "BOOLEAN", "true"),
        ("'foo'", "STRING", "BOOLEAN", "false"),
        ("'2020'", "STRING", "TIMESTAMP", "2020-01-01 00:00:00"),
        ("'2020-01-01T00:00:00.000+0200'", "STRING", "TIMESTAMP", "2019-12-31 22:00:00"),
        ("'foo'", "STRING", "TIMESTAMP", None),
        ("'10:00'", "STRING", "TIME", "10:00:00"),
        ("'2020-02'", "STRING", "DATE", "2020-02-01"),
        ("'2020-02-30'", "STRING", "DATE", None),
        ("'YWJj'", "STRING", "BYTES", "abc"),
        ("'2020-01-01 01:02:03.004'", "TIMESTAMP", "STRING", "2020-01-01T01:02:03.004"),
        ("'1969-12-31 23:59:58'", "TIMESTAMP", "DATE", "1969-12-31"),
        ("'16:43:40'", "TIME", "STRING", "16:43:40"),
        ("'16:43:00'", "TIME", "STRING", "16:43"),
        ("[1, NULL]", "ARRAY<INTEGER>", "STRING", "[1, null]"),
        ("[1, 2147483648]", "ARRAY<BIGINT>", "ARRAY<INTEGER>", "[1, -2147483648]"),
        ("[[1e10]]", "ARRAY<ARRAY<DOUBLE>>", "ARRAY<ARRAY<STRING>>", "[[1.0E10]]"),
        ("MAP {'a': 1}", "MAP<STRING, INTEGER>", "MAP<STRING, STRING>", "{a=1}"),
        ("{'f0': 1, 'f1': 3}", "STRUCT<`f0` INTEGER, `f1` INTEGER>", "STRING", "Struct{f0=1,f1=3}"),
        ("NULL", "STRUCT<`f0` INTEGER>", "STRUCT<`f0` STRING>", None),
    ],
)
def test_cast_gives_what_ksqldb_gives(
    connection: duckdb.DuckDBPyConnection, literal: str, source: str, target: str, text: str | None
) -> None:
    assert cast(connection, literal, source, target) == text


@pytest.mark.parametrize(
    ("source", "target"),
    [(STRING, Array(INTEGER)), (BOOLEAN, INTEGER), (DATE, BIGINT), (BYTES, STRING), (Array(BOOLEAN), Array(INTEGER))],
)
def test_a_cast_that_ksqldb_has_not_is_refused(source: SqlType, target: SqlType) -> None:
    with pytest.raises(TypeMismatch, match=r"Cast of .* to .* is not supported"):
        cast_sql(exp.column("x"), source, target, explicit=True)


def test_a_struct_cast_keeps_the_fields_that_the_target_has(connection: duckdb.DuckDBPyConnection) -> None:
    given, wanted = parse_type("STRUCT<`a` INTEGER, `b` INTEGER>"), parse_type("STRUCT<`a` STRING, `c` STRING>")
    tree = cast_sql(duckdb_tree("{'a': 1, 'b': 2}"), given, wanted, explicit=True)
    assert connection.execute(f"SELECT {tree.sql('duckdb')}").fetchall() == [({"a": "1", "c": None},)]


def test_without_cast_only_what_widens_is_converted() -> None:
    assert cast_sql(exp.column("x"), INTEGER, DOUBLE, explicit=False).sql("duckdb") == "CAST(x AS DOUBLE)"
    with pytest.raises(TypeMismatch, match="STRING does not become ARRAY<INTEGER> without a CAST"):
        cast_sql(exp.column("x"), STRING, Array(INTEGER), explicit=False)


@pytest.mark.parametrize(
    ("types", "common"),
    [
        ((INTEGER, BIGINT), BIGINT),
        ((BIGINT, INTEGER, NULL), BIGINT),
        ((INTEGER, Decimal(4, 2)), Decimal(12, 2)),
        ((Decimal(4, 2), DOUBLE), DOUBLE),
        ((NULL, STRING), STRING),
        ((NULL, NULL), NULL),
        ((STRING, DATE), DATE),
        ((Array(INTEGER), Array(DOUBLE)), Array(DOUBLE)),
        ((Map(STRING, INTEGER), Map(STRING, BIGINT)), Map(STRING, BIGINT)),
        (
            (Struct((Field("A", INTEGER),)), Struct((Field("A", BIGINT), Field("B", STRING)))),
            Struct((Field("A", BIGINT), Field("B", STRING))),
        ),
    ],
)
def test_several_types_have_the_widest_in_common(types: tuple[SqlType, ...], common: SqlType) -> None:
    assert common_type(types) == common


def test_types_without_a_common_one_are_refused() -> None:
    with pytest.raises(TypeMismatch, match="operator does not exist: BOOLEAN = INTEGER"):
        common_type((BOOLEAN, INTEGER))


def test_texts_among_numbers_are_read_as_numbers() -> None:
    one, text = exp.Literal.number(1), exp.Literal.string("2.5")
    assert common_type((INTEGER, STRING), (one, text)) == Decimal(11, 1)
    with pytest.raises(TypeMismatch, match='invalid input syntax for type INTEGER: "not a number"'):
        common_type((INTEGER, STRING), (one, exp.Literal.string("not a number")))


def text(spelled: str) -> exp.Expression:
    return exp.Literal.string(spelled)


@pytest.mark.parametrize(
    ("first", "spelled", "common"),
    [
        (INTEGER, " 7 ", INTEGER),
        (INTEGER, "2147483646", INTEGER),
        (INTEGER, "2147483647", BIGINT),
        (INTEGER, "-2147483648", BIGINT),
        (BIGINT, "1", BIGINT),
        (BIGINT, "9223372036854775807", BIGINT),
        (BIGINT, "9223372036854775808", Decimal(19, 0)),
        (INTEGER, "1e2", Decimal(10, 0)),
        (INTEGER, "0.05", Decimal(12, 2)),
        (Decimal(4, 2), "1", Decimal(12, 2)),
        (Decimal(4, 2), "123.5", Decimal(5, 2)),
        (DOUBLE, "1.5", DOUBLE),
        (BOOLEAN, " YES", BOOLEAN),
        (BOOLEAN, "t", BOOLEAN),
    ],
)
def test_a_text_among_others_is_read_as_they_are(first: SqlType, spelled: str, common: SqlType) -> None:
    assert common_type((first, STRING), (exp.column("x"), text(spelled))) == common


@pytest.mark.parametrize(
    ("first", "spelled"),
    [(INTEGER, "nan"), (DOUBLE, "inf"), (INTEGER, "1e1000"), (INTEGER, ""), (BOOLEAN, ""), (BOOLEAN, "maybe")],
)
def test_a_text_that_is_not_what_the_others_are_is_refused(first: SqlType, spelled: str) -> None:
    with pytest.raises(TypeMismatch, match=f'invalid input syntax for type {first}: "{spelled}"'):
        common_type((first, STRING), (exp.column("x"), text(spelled)))


@pytest.mark.parametrize("spelled", ["1e-1001", "1e1000", "-1e1000"])
def test_a_number_text_has_an_exponent_below_a_thousand(spelled: str) -> None:
    with pytest.raises(TypeMismatch, match="invalid input syntax"):
        common_type((DOUBLE, STRING), (exp.column("x"), text(spelled)))


@pytest.mark.parametrize(
    ("number", "type_"),
    [
        ("0", Decimal(1, 0)),
        ("0.00", Decimal(3, 2)),
        ("0.05", Decimal(3, 2)),
        ("-12.5", Decimal(3, 1)),
        ("1E+2", Decimal(3, 0)),
        ("1" + "0" * 37, Decimal(38, 0)),
        ("0." + "0" * 40 + "1", Decimal(38, 38)),
    ],
)
def test_a_number_needs_its_digits_and_one_before_the_point(number: str, type_: Decimal) -> None:
    assert decimal_of(PythonDecimal(number)) == type_


def test_texts_within_constructors_are_read_as_what_they_stand_beside() -> None:
    one, many = exp.column("x"), exp.Array(expressions=[text("2"), exp.null()])
    assert common_type((Array(INTEGER), Array(STRING)), (one, many)) == Array(INTEGER)
    assert common_type((Array(BOOLEAN), Array(STRING)), (one, exp.Array(expressions=[text("no")]))) == Array(BOOLEAN)
    keyed = exp.Map(keys=exp.Array(expressions=[text("a")]), values=exp.Array(expressions=[text("2.5")]))
    assert common_type((Map(STRING, INTEGER), Map(STRING, STRING)), (one, keyed)) == Map(STRING, Decimal(11, 1))
    with pytest.raises(TypeMismatch):
        common_type((Map(DATE, INTEGER), Map(INTEGER, STRING)), (one, exp.Map(
            keys=exp.Array(expressions=[exp.Literal.number(1)]), values=exp.Array(expressions=[text("2")])
        )))  # fmt: skip


def test_constructed_structs_have_the_fields_of_both() -> None:
    written = exp.Struct(expressions=[
        exp.PropertyEQ(this=exp.to_identifier("A"), expression=text("2")),
        exp.PropertyEQ(this=exp.to_identifier("B"), expression=text("x")),
    ])  # fmt: skip
    types = (Struct((Field("A", BIGINT),)), Struct((Field("A", STRING), Field("B", STRING))))
    assert common_type(types, (exp.column("x"), written)) == Struct((Field("A", BIGINT), Field("B", STRING)))
    with pytest.raises(TypeMismatch, match="operator does not exist"):
        common_type((Struct((Field("B", BYTES),)), Struct((Field("B", Array(STRING)),))), (exp.column("x"), written))


@pytest.mark.parametrize(
    ("types", "common"),
    [
        ((Array(NULL), Array(INTEGER)), Array(INTEGER)),
        ((Array(INTEGER), Array(NULL)), Array(INTEGER)),
        ((Array(Decimal(4, 2)), Array(INTEGER)), Array(Decimal(12, 2))),
        ((Map(INTEGER, DOUBLE), Map(BIGINT, INTEGER)), Map(BIGINT, DOUBLE)),
        ((Decimal(4, 2), Decimal(6, 1)), Decimal(7, 2)),
        ((BIGINT, Decimal(38, 20)), Decimal(38, 20)),
        ((Decimal(38, 0), Decimal(38, 10)), Decimal(38, 10)),  # a number that is too large fails; none is rounded
        ((DATE, STRING), DATE),
    ],
)
def test_parts_widen_in_both_directions(types: tuple[SqlType, ...], common: SqlType) -> None:
    assert common_type(types) == common


@pytest.mark.parametrize(
    "types",
    [
        (Array(INTEGER), Array(BOOLEAN)),
        (Map(STRING, INTEGER), Map(STRING, BOOLEAN)),
        (Map(BOOLEAN, INTEGER), Map(STRING, INTEGER)),
        (Struct((Field("A", INTEGER),)), Struct((Field("A", BOOLEAN),))),
        (Array(INTEGER), INTEGER),
    ],
)
def test_parts_without_a_common_type_leave_the_whole_without_one(types: tuple[SqlType, ...]) -> None:
    with pytest.raises(TypeMismatch, match="operator does not exist"):
        common_type(types)


def test_what_can_be_cast_at_all() -> None:
    for source, target in ((NULL, BYTES), (BYTES, BYTES), (DATE, TIMESTAMP), (STRING, BYTES)):
        assert cast_sql(exp.column("x"), source, target, explicit=True).sql("duckdb")
    for source, target in ((BYTES, STRING), (DATE, BIGINT), (BOOLEAN, INTEGER)):
        with pytest.raises(TypeMismatch, match=f"Cast of {source} to {target} is not supported"):
            cast_sql(exp.column("x"), source, target, explicit=True)
    assert cast_sql(exp.column("d"), DATE, TIMESTAMP, explicit=False).sql("duckdb")
    with pytest.raises(TypeMismatch, match="TIMESTAMP does not become DATE without a CAST"):
        cast_sql(exp.column("t"), TIMESTAMP, DATE, explicit=False)


@pytest.mark.parametrize(
    ("name", "left", "right", "exact"),
    [
        ("decimal_add", Decimal(37, 2), Decimal(37, 2), True),
        ("decimal_add", Decimal(38, 2), Decimal(4, 2), False),
        ("decimal_subtract", Decimal(20, 10), Decimal(27, 0), True),
        ("decimal_subtract", Decimal(20, 10), Decimal(28, 0), False),
        ("decimal_multiply", Decimal(19, 2), Decimal(19, 2), True),
        ("decimal_multiply", Decimal(20, 2), Decimal(19, 2), False),
        ("decimal_divide", Decimal(4, 2), Decimal(4, 2), False),
    ],
)
def test_duckdb_computes_what_fits_into_its_decimals(name: str, left: Decimal, right: Decimal, exact: bool) -> None:
    _, udfs = decimal_operation(name, (exp.column("a"), left), (exp.column("b"), right), Decimal(38, 4))
    assert (udfs == ()) == exact


COERCIONS = """
    NULL                     x x x x x x x x x x x x x x x x x x x
    BOOLEAN                  . x . . . . . . w . . . . . . . . . .
    INTEGER                  . . x x x . x x w . . . . . . . . . .
    BIGINT                   . . . x x . . x w . . . . . . . . . .
    DOUBLE                   . . . . x . . . w . . . . . . . . . .
    DECIMAL(4,2)             . . . . x x x . w . . . . . . . . . .
    DECIMAL(12,2)            . . . . x . x . w . . . . . . . . . .
    DECIMAL(19,0)            . . . . x . . x w . . . . . . . . . .
    STRING                   . w w w w w w w x x x x x . . . . . .
    BYTES                    . . . . . . . . . x . . . . . . . . .
    DATE                     . . . . . . . . w . x . . . . . . . .
    TIME                     . . . . . . . . w . . x . . . . . . .
    TIMESTAMP                . . . . . . . . w . . . x . . . . . .
    ARRAY<INTEGER>           . . . . . . . . . . . . . x x . . . .
    ARRAY<BIGINT>            . . . . . . . . . . . . . . x . . . .
    MAP<STRING,INTEGER>      . . . . . . . . . . . . . . . x x . .
    MAP<STRING,BIGINT>       . . . . . . . . . . . . . . . . x . .
    STRUCT<A INTEGER>        . . . . . . . . . . . . . . . . . x x
    STRUCT<A BIGINT,B DATE>  . . . . . . . . . . . . . . . . . . x
"""
STRUCTS = {
    "STRUCT<A INTEGER>": Struct((Field("A", INTEGER),)),
    "STRUCT<A BIGINT,B DATE>": Struct((Field("A", BIGINT), Field("B", DATE))),
}


def test_which_type_becomes_which_without_a_cast() -> None:
    """A row is what there is, a column what it becomes, in the same order. x: always; w: only written values."""
    rows = [line.strip().split("  ", 1) for line in COERCIONS.strip().splitlines()]
    names = [name for name, _ in rows]
    types = [NULL if name == "NULL" else STRUCTS.get(name) or parse_type(name) for name in names]
    for (name, marks), source in zip(rows, types, strict=True):
        found = [
            "x" if can_coerce(source, target) else "w" if can_coerce(source, target, literal=True) else "."
            for target in types
        ]
        assert dict(zip(names, found, strict=True)) == dict(zip(names, marks.split(), strict=True)), name


def test_literals_coerce_where_values_do_not() -> None:
    assert not can_coerce(STRING, INTEGER)
    assert can_coerce(STRING, INTEGER, literal=True)
    assert can_coerce(STRING, TIMESTAMP)
    assert not can_coerce(Decimal(5, 2), Decimal(5, 3))


@pytest.mark.parametrize(
    ("operator", "left", "right", "result"),
    [
        ("+", INTEGER, INTEGER, INTEGER),
        ("*", INTEGER, BIGINT, BIGINT),
        ("/", BIGINT, DOUBLE, DOUBLE),
        ("+", Decimal(4, 2), DOUBLE, DOUBLE),
        ("+", Decimal(4, 2), Decimal(5, 1), Decimal(7, 2)),
        ("-", Decimal(4, 2), INTEGER, Decimal(13, 2)),
        ("*", Decimal(4, 2), Decimal(5, 1), Decimal(10, 3)),
        ("/", Decimal(4, 2), Decimal(5, 1), Decimal(11, 8)),
        ("%", Decimal(4, 2), Decimal(5, 1), Decimal(4, 2)),
        ("+", STRING, STRING, STRING),
        ("*", Decimal(33, 16), Decimal(33, 16), Decimal(38, 6)),
    ],
)
def test_arithmetic_widens_as_in_ksqldb(operator: Operator, left: SqlType, right: SqlType, result: SqlType) -> None:
    assert arithmetic_type(operator, left, right) == result


def test_arithmetic_with_null_or_text_is_refused() -> None:
    with pytest.raises(TypeMismatch, match=r"Arithmetic on types INTEGER and null are not supported\."):
        arithmetic_type("+", INTEGER, NULL)
    with pytest.raises(TypeMismatch, match=r"Unsupported arithmetic types\. STRING INTEGER"):
        arithmetic_type("+", STRING, INTEGER)


@pytest.mark.parametrize(
    ("operator", "name", "a", "b", "text"),
    [
        ("+", "decimal_add", "10.10", "2.5", "12.60"),
        ("*", "decimal_multiply", "10.10", "2.5", "25.250"),
        ("/", "decimal_divide", "10.00", "3.0", "3.333333"),
        ("/", "decimal_divide", "10.00", "0.0", None),
        ("%", "decimal_modulo", "10.10", "-2.0", "0.10"),
        ("%", "decimal_modulo", "-10.10", "2.0", "-0.10"),
    ],
)
def test_decimal_arithmetic_is_exact(
    connection: duckdb.DuckDBPyConnection, operator: Operator, name: str, a: str, b: str, text: str | None
) -> None:
    left, right = Decimal(4, 2), Decimal(2, 1)
    result = arithmetic_type(operator, left, right)
    assert isinstance(result, Decimal)
    values = [duckdb_tree(f"CAST({v} AS {t.duckdb})") for v, t in ((a, left), (b, right))]
    tree, udfs = decimal_operation(name, (values[0], left), (values[1], right), result)
    assert udfs == udfs_in(tree)
    register_udfs(connection, udfs)
    assert connection.execute(f"SELECT CAST(TRY({tree.sql('duckdb')}) AS VARCHAR)").fetchall() == [(text,)]


@pytest.mark.parametrize("precisions", [(9, 9), (9, 10), (10, 10), (18, 1), (18, 18), (19, 18), (19, 19), (20, 19)])
def test_a_product_has_all_the_digits_of_both(
    connection: duckdb.DuckDBPyConnection, precisions: tuple[int, int]
) -> None:
    """DuckDB's product of two decimals of at most 18 digits each has 18 digits, and fails beyond them."""
    left, right = (Decimal(precision, 1) for precision in precisions)
    result = arithmetic_type("*", left, right)
    assert isinstance(result, Decimal)
    numbers = [PythonDecimal(f"{'9' * (type_.precision - 1)}.9") for type_ in (left, right)]
    trees = [duckdb_tree(f"CAST({n} AS {t.duckdb})") for n, t in zip(numbers, (left, right), strict=True)]
    tree, udfs = decimal_operation("decimal_multiply", (trees[0], left), (trees[1], right), result)
    register_udfs(connection, udfs)
    with localcontext(prec=80):
        product = numbers[0] * numbers[1]
        fits = abs(product) < PythonDecimal(10) ** (result.precision - result.scale)
    assert connection.execute(f"SELECT TRY({tree.sql('duckdb')})").fetchall() == [(product if fits else None,)]


def test_a_struct_that_has_more_than_the_target_becomes_it_where_its_fields_do() -> None:
    """As it would, field by field, if it had no more."""
    source, target = Struct((Field("a", STRING), Field("b", INTEGER))), Struct((Field("a", INTEGER),))
    assert cast_sql(exp.column("x"), source, target, explicit=False)
    with pytest.raises(TypeMismatch):
        cast_sql(exp.column("x"), Struct((Field("a", DATE), Field("b", INTEGER))), target, explicit=False)
