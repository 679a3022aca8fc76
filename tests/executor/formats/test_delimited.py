"""DELIMITED as Apache Commons CSV reads and writes it for ksqlDB."""

from __future__ import annotations

from decimal import Decimal as Number

import pyarrow as pa
import pytest

from millstream.errors import FormatError
from millstream.executor.formats import decoder, encoder
from millstream.planner.schema import Column
from millstream.planner.specs import FormatSpec
from millstream.sql.types import BIGINT, BOOLEAN, BYTES, DATE, DOUBLE, INTEGER, STRING, TIME, Array, Decimal

COPIES = [1, 64]
COMMA = FormatSpec("DELIMITED")
PAIR = [Column("A", STRING), Column("B", STRING)]


@pytest.mark.parametrize("copies", COPIES)
@pytest.mark.parametrize(
    ("line", "fields"),
    [
        ("a,b", ["a", "b"]),
        (",", [None, None]),
        ('"",x', [None, "x"]),
        ('"a,b","c""d"', ["a,b", 'c"d']),
        ('a"b,c', ['a"b', "c"]),
        ('"a" ,b', ["a", "b"]),
        (" a , b ", [" a ", " b "]),
        ("a,b\n", ["a", "b"]),
        ("\na,b\nc,d,e", ["a", "b"]),
        ('"a\nb",c', ["a\nb", "c"]),
        ("grün,日本", ["grün", "日本"]),
    ],
)
def test_a_line_is_split_into_fields(line: str, fields: list[str | None], copies: int) -> None:
    decoded = decoder(COMMA, PAIR).decode(pa.array([line.encode()] * copies))
    assert decoded.errors == []
    assert [column.to_pylist() for column in decoded.columns] == [[field] * copies for field in fields]


@pytest.mark.parametrize("copies", COPIES)
@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"a", "2 fields wanted, 1 came"),
        (b"a,b,c", "2 fields wanted, 3 came"),
        (b"", "2 fields wanted, 1 came"),
        (b'"a"b,c', "text behind the closing quote of field 1"),
        (b'"a,b', "a quoted field does not end"),
        (b"a,\xff", "invalid UTF-8 at byte 2"),
    ],
)
def test_a_broken_line_is_an_error_row(line: bytes, message: str, copies: int) -> None:
    decoded = decoder(COMMA, PAIR).decode(pa.array([line] * copies))
    assert [error.message for error in decoded.errors] == [message] * copies


@pytest.mark.parametrize("copies", COPIES)
def test_fields_become_the_columns_types(copies: int) -> None:
    columns = [
        Column("A", BOOLEAN),
        Column("B", INTEGER),
        Column("C", BIGINT),
        Column("D", DOUBLE),
        Column("E", Decimal(21, 19)),
        Column("F", BYTES),
        Column("G", DATE),
        Column("H", TIME),
    ]
    decoded = decoder(COMMA, columns).decode(
        pa.array([b"TRUE,-1,998877665544332211,1.5,10.1234512345123451234,ew==,-1,5"] * copies)
    )
    assert decoded.errors == []
    values = [column.cast(pa.int32()) if column.type == pa.date32() else column for column in decoded.columns]
    assert [column[copies - 1].as_py() for column in values[:7]] == [
        True,
        -1,
        998877665544332211,
        1.5,
        Number("10.1234512345123451234"),
        b"{",
        -1,
    ]
    written = encoder(COMMA, columns).encode(decoded.columns)
    assert written.to_pylist() == [b"true,-1,998877665544332211,1.5,10.1234512345123451234,ew==,-1,5"] * copies


@pytest.mark.parametrize("copies", COPIES)
@pytest.mark.parametrize(
    ("delimiter", "values", "line"),
    [
        (",", ["a", "b"], "a,b"),
        (",", [None, None], ","),
        (",", ["", ""], '"",'),
        (",", ["-1", "-1"], '"-1",-1'),
        (",", ["!", "#"], '"!","#"'),
        (",", ["a ", "é"], '"a ",é'),
        (",", ["é", "a,b"], '"é","a,b"'),
        ("TAB", ["a\tb", 'c"d'], '"a\tb"\t"c""d"'),
        ("SPACE", ["a b", "c"], '"a b" c'),
        ("-", ["a", "-1"], 'a-"-1"'),
        ("ß", ["a", "bßc"], 'aß"bßc"'),
    ],
)
def test_quotes_are_written_where_a_field_needs_them(
    delimiter: str, values: list[str | None], line: str, copies: int
) -> None:
    arrays = [pa.array([value] * copies, pa.string()) for value in values]
    written = encoder(FormatSpec("DELIMITED", delimiter=delimiter), PAIR).encode(arrays)
    assert written.to_pylist() == [line.encode()] * copies


@pytest.mark.parametrize("copies", COPIES)
def test_doubles_are_written_as_java_does(copies: int) -> None:
    values = [0.0, -0.0, 1.0, 0.001, 1e-4, 9999999.0, 1e7, 1.5e300, 5e-324, float("nan"), float("-inf")]
    texts = ["0.0", "-0.0", "1.0", "0.001", "1.0E-4", "9999999.0", "1.0E7", "1.5E300", "5.0E-324", "NaN", "-Infinity"]
    written = encoder(COMMA, [Column("A", STRING), Column("D", DOUBLE)]).encode(
        [pa.array(["x"] * len(values) * copies), pa.array(values * copies)]
    )
    assert written.to_pylist() == [f"x,{text}".encode() for text in texts] * copies


def test_a_column_that_nobody_needs_still_counts() -> None:
    decoded = decoder(COMMA, PAIR, needed=[False, True]).decode(pa.array([b"a,b"] * 64))
    assert [column[63].as_py() for column in decoded.columns] == [None, "b"]


def test_nested_types_are_refused() -> None:
    with pytest.raises(FormatError, match="does not support type 'ARRAY', column: `A`"):
        decoder(COMMA, [Column("A", Array(INTEGER))])
