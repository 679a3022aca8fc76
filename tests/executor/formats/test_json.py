"""JSON as ksqlDB reads and writes it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from decimal import Decimal as Number
from typing import Any

import pyarrow as pa
import pytest

from millstream.executor.formats import Decoded, RowError, decoder, encoder, warm_up
from millstream.executor.formats import text_decoder as text_decoder_module
from millstream.planner.schema import Column
from millstream.planner.specs import FormatSpec
from millstream.sql.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    STRING,
    TIME,
    TIMESTAMP,
    Array,
    Decimal,
    Field,
    Map,
    SqlType,
    Struct,
)

JSON = FormatSpec("JSON")
BARE = FormatSpec("JSON", wrap_single=False)
COPIES = [1, 64]  # one row goes the exact way, 64 the compiled one


def decode(rows: Sequence[bytes | None], *columns: Column, spec: FormatSpec = JSON) -> Decoded:
    return decoder(spec, columns).decode(pa.array(rows, pa.binary()))


def read(type_: SqlType, text: str, copies: int) -> Any:
    """What {"V": text} gives for a column of the type, or the message of its error."""
    decoded = decode([f'{{"V":{text}}}'.encode()] * copies, Column("V", type_))
    if decoded.errors:
        assert [error.row for error in decoded.errors] == list(range(copies))
        return decoded.errors[0].message
    return decoded.columns[0][copies - 1].as_py()


@pytest.mark.parametrize("copies", COPIES)
@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        (INTEGER, "7", 7),
        (INTEGER, '"7"', 7),
        (INTEGER, "1.9", 1),
        (INTEGER, "-1.9", -1),
        (BIGINT, "1e3", 1000),
        (BIGINT, "9223372036854775807", 2**63 - 1),
        (DOUBLE, "1", 1.0),
        (DOUBLE, '"1.5"', 1.5),
        (DOUBLE, "0.30000000000000004", 0.1 + 0.2),
        (BOOLEAN, "true", True),
        (STRING, "1.10", "1.10"),
        (STRING, "12345678901234567890123456789", "12345678901234567890123456789"),
        (STRING, "1E3", "1E+3"),
        (STRING, "true", "true"),
        (STRING, '{ "a" : [1, 2.50, "x"] }', '{"a":[1,2.50,"x"]}'),
        (STRING, '"\\u00e9\\n\\ud83d\\ude00"', "é\n😀"),
        (Decimal(4, 2), "1.1", Number("1.10")),
        (Decimal(4, 2), "1.100", Number("1.10")),
        (Decimal(4, 2), '"99.99"', Number("99.99")),
        (Decimal(38, 10), "1234567890123456789012345678.0123456789", Number("1234567890123456789012345678.0123456789")),
        (BYTES, '"ew=="', b"{"),
        (Array(STRING), "[1, null, true]", ["1", None, "true"]),
        (Map(STRING, INTEGER), '{"a": 1, "b": null}', [("a", 1), ("b", None)]),
        (Struct((Field("F", INTEGER), Field("G", STRING))), '{"f": 1}', {"F": 1, "G": None}),
        (STRING, "null", None),
    ],
)
def test_values_become_the_columns_type(type_: SqlType, text: str, value: object, copies: int) -> None:
    assert read(type_, text, copies) == value


@pytest.mark.parametrize("copies", COPIES)
def test_an_infinite_date_of_postgresql_is_the_last_one(copies: int) -> None:
    """As Debezium and JDBC write it; a table with it would else lack the row."""
    texts = ["2147483647", "-2147483648", "2147483646"]
    rows = [f'{{"D":{text}}}'.encode() for text in texts] * copies
    decoded = decode(rows, Column("D", DATE))
    assert decoded.errors == []
    assert decoded.columns[0].cast(pa.int32()).to_pylist()[:3] == [2**31 - 2, -(2**31) + 2, 2**31 - 2]
    (past,) = decode([b'{"T":-9223372036832400}'], Column("T", TIMESTAMP)).columns
    assert past.cast(pa.int64()).to_pylist() == [-9_223_372_022_400_000_000]


@pytest.mark.parametrize("copies", COPIES)
@pytest.mark.parametrize(
    ("type_", "text", "message"),
    [
        (BOOLEAN, '"true"', '$.V: BOOLEAN wanted, the text "true" came'),
        (BOOLEAN, "1", "$.V: BOOLEAN wanted, the number 1 came"),
        (INTEGER, "2147483648", "$.V: the number 2147483648 is out of range for INTEGER"),
        (BIGINT, "1e9999999", "$.V: the number 1e9999999 is out of range for BIGINT"),
        (INTEGER, '"abc"', '$.V: INTEGER wanted, the text "abc" came'),
        (INTEGER, "true", "$.V: INTEGER wanted, true came"),
        (DOUBLE, "1e400", "$.V: the number 1e400 is out of range for DOUBLE"),
        (Decimal(4, 2), "100", "$.V: the number 100 is out of range for DECIMAL(4, 2)"),
        (Decimal(4, 2), "1.001", "$.V: the number 1.001 does not fit into DECIMAL(4, 2) without rounding"),
        (Decimal(4, 2), "1e-9999999", "$.V: the number 1e-9999999 does not fit into DECIMAL(4, 2) without rounding"),
        (BYTES, '"e"', '$.V: the text "e" is not base64'),
        (TIME, "86400000", "$.V: the number 86400000 is out of range for TIME"),
        (Array(INTEGER), '"x"', '$.V: ARRAY<INTEGER> wanted, the text "x" came'),
        (Array(INTEGER), '[1, "x"]', '$.V[1]: INTEGER wanted, the text "x" came'),
        (Struct((Field("F", INTEGER),)), '{"F": []}', "$.V.F: INTEGER wanted, an array came"),
        (Map(STRING, INTEGER), '{"k": {}}', "$.V.k: INTEGER wanted, an object came"),
        (STRING, '"\\ud800"', "$.V: STRING wanted, text with half a surrogate pair came"),
    ],
)
def test_a_wrong_value_is_an_error_that_names_its_place(type_: SqlType, text: str, message: str, copies: int) -> None:
    assert read(type_, text, copies) == message


@pytest.mark.parametrize("copies", COPIES)
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b'{"V":1}x',
        b'{"V":NaN}',
        b'{"V":Infinity}',
        b'{"V":01}',
        b'{"V":"\xff"}',
        b'{"V":"a\nb"}',
        '{"V":1}'.encode("utf-16"),
        b"\xef\xbb\xbf{}",
        b"[1]",
        b"1",
        b'{"V":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"V":' + b"[" * 1_000_000,
        b'{"V":' + b'{"a":' * 500 + b"1" + b"}" * 500 + b"}",
    ],
)
def test_hostile_bytes_are_an_error_row_and_no_more(data: bytes, copies: int) -> None:
    decoded = decode([data] * copies + [b'{"V":"1"}'], Column("V", STRING))
    assert [error.row for error in decoded.errors] == list(range(copies))
    assert decoded.columns[0].to_pylist() == [None] * copies + ["1"]
    assert not any(decoded.null_rows.to_pylist())


def test_json_of_five_hundred_levels_is_read() -> None:
    data = b'{"V":' + b"[" * 499 + b"]" * 499 + b"}"
    assert decode([data], Column("V", STRING)).columns[0].to_pylist() == ["[" * 499 + "]" * 499]


def test_long_numbers_and_exponents_cost_no_time() -> None:
    numbers = [b"1e9999999", b"1e-9999999", b"1e999999999999999999999", b"9" * 200_000, b"0." + b"1" * 200_000]
    types = [INTEGER, BIGINT, DOUBLE, STRING, Decimal(38, 10), TIMESTAMP]
    start = time.process_time()
    for type_ in types:
        decode([b'{"V":' + number + b"}" for number in numbers], Column("V", type_))
    assert time.process_time() - start < 5


@pytest.mark.parametrize("copies", COPIES)
def test_names_match_in_any_case_but_the_exact_spelling_wins(copies: int) -> None:
    rows: list[bytes | None] = [b'{"v":1}', b'{"V":1,"v":2}', b'{"v":2,"V":1}', b'{"v":1,"v":2}', b'{"V":null,"v":2}']
    decoded = decode(rows * copies, Column("V", INTEGER))
    assert decoded.columns[0].to_pylist() == [1, 1, 1, 2, None] * copies


@pytest.mark.parametrize("copies", COPIES)
def test_null_bytes_and_the_json_null_are_null_rows(copies: int) -> None:
    rows: list[bytes | None] = [None, b" null ", b"{}", b'{"V":1}']
    decoded = decode(rows * copies, Column("V", INTEGER))
    assert decoded.columns[0].to_pylist() == [None, None, None, 1] * copies
    assert decoded.null_rows.to_pylist() == [True, True, False, False] * copies
    assert decoded.errors == []


@pytest.mark.parametrize("copies", COPIES)
def test_columns_that_nobody_needs_are_null_and_cannot_fail(copies: int) -> None:
    columns = [Column("A", INTEGER), Column("B", INTEGER), Column("H", BYTES, "HEADERS", "h")]
    made = decoder(JSON, columns, needed=[True, False, True])
    decoded = made.decode(pa.array([b'{"A":1,"B":"x","H":"ew=="}'] * copies))
    assert [column.to_pylist() for column in decoded.columns] == [[1] * copies, [None] * copies, [None] * copies]
    assert [column.type for column in decoded.columns] == [column.type.arrow for column in columns]
    assert decoded.errors == []


def test_clean_rows_are_never_read_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_decoder_module.TextDecoder, "_by_rows", None)
    columns = [
        Column(name, type_) for name, type_ in (("ID", BIGINT), ("S", STRING), ("D", Decimal(9, 2)), ("X", DOUBLE))
    ]
    row = (
        '{"id":1234567890123456789,"s":"grün \\"q\\"","d":12.50,"x":0.1234567890123456789,"other":{"a":[1,{}]}}'
    ).encode()
    decoded = decode([row, None, b"null"] * 50, *columns)
    assert [column[0].as_py() for column in decoded.columns] == [
        1234567890123456789,
        'grün "q"',
        Number("12.50"),
        0.1234567890123456789,
    ]


def test_chunks_and_slices_are_read_in_order() -> None:
    rows = pa.array([f'{{"V":{i}}}'.encode() for i in range(100)])
    made = decoder(JSON, [Column("V", INTEGER)])
    assert made.decode(pa.chunked_array([rows[:40], rows[60:]])).columns[0].to_pylist() == [*range(40), *range(60, 100)]
    assert made.decode(pa.chunked_array([], pa.binary())).columns[0].to_pylist() == []


@pytest.mark.parametrize("copies", COPIES)
def test_a_bare_value_is_read_and_written_without_an_object(copies: int) -> None:
    column = Column("V", INTEGER)
    decoded = decode([b"10", b"null", None, b'"x"'] * copies, column, spec=BARE)
    assert decoded.columns[0].to_pylist() == [10, None, None, None] * copies
    assert decoded.null_rows.to_pylist() == [False, True, True, False] * copies
    assert decoded.errors[0] == RowError(3, '$: INTEGER wanted, the text "x" came')
    written = encoder(BARE, [column]).encode([pa.array([10, None] * copies, pa.int32())])
    assert written.to_pylist() == [b"10", None] * copies


@pytest.mark.parametrize("copies", COPIES)
def test_values_are_written_exactly(copies: int) -> None:
    columns = [
        (Column('q"\n', STRING), ['a"b\\c\n\x01é', None]),
        (Column("D", Decimal(20, 10)), [Number("0.0000000000"), Number("-1.1000000000")]),
        (Column("E", Decimal(4, 2)), [Number("1.10"), Number("-0.05")]),
        (Column("X", DOUBLE), [float("nan"), 1e10]),
        (Column("B", BYTES), [b"{", b""]),
        (Column("T", TIME), [5000, 0]),
        (Column("S", TIMESTAMP), [-1000, 10**18]),
        (Column("Y", DATE), [-10, 10]),
        (Column("M", Map(STRING, Array(INTEGER))), [[("k", [1, None])], []]),
        (Column("R", Struct((Field("f", BOOLEAN),))), [{"f": True}, None]),
    ]
    arrays = [pa.array(values * copies, column.type.arrow) for column, values in columns]
    written = encoder(JSON, [column for column, _ in columns]).encode(arrays).to_pylist()
    assert (
        written
        == [
            (
                '{"q\\"\\n":"a\\"b\\\\c\\n\\u0001é","D":0.0000000000,"E":1.10,"X":"NaN","B":"ew==","T":5,"S":-1,"Y":-10,'
                '"M":{"k":[1,null]},"R":{"f":true}}'
            ).encode(),
            (
                b'{"q\\"\\n":null,"D":-1.1000000000,"E":-0.05,"X":1.0E10,"B":"","T":0,"S":1000000000000000,"Y":10,'
                b'"M":{},"R":null}'
            ),
        ]
        * copies
    )


@pytest.mark.parametrize("copies", COPIES)
def test_a_key_is_null_where_all_its_columns_are(copies: int) -> None:
    columns = [Column("A", INTEGER, "KEY"), Column("B", STRING, "KEY")]
    arrays = [pa.array([1, None, None] * copies, pa.int32()), pa.array(["x", "y", None] * copies, pa.string())]
    written = encoder(JSON, columns).encode(arrays)
    assert written.to_pylist() == [b'{"A":1,"B":"x"}', b'{"A":null,"B":"y"}', None] * copies


@pytest.mark.parametrize("copies", COPIES)
def test_null_rows_are_written_as_null_and_others_never(copies: int) -> None:
    array = pa.array([1, None, 3] * copies, pa.int32())
    nulls = pa.array([False, False, True] * copies)
    written = encoder(JSON, [Column("A", INTEGER)]).encode([array], null_rows=nulls)
    assert written.to_pylist() == [b'{"A":1}', b'{"A":null}', None] * copies


def test_warming_up_can_be_repeated() -> None:
    warm_up()
    warm_up()
