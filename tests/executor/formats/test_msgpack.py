"""MSGPACK: columns to records and back, records of other writers, and bytes that are no record.

The library `msgpack` stands for all other writers and readers.
"""

from __future__ import annotations

import datetime
import math
import struct
from decimal import Decimal as Number
from typing import Any, cast

import msgpack
import pyarrow as pa
import pytest
from drawn import drawn
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millstream.errors import FormatError
from millstream.executor.formats import decode_logical, decoder, encode_logical, encoder
from millstream.planner.formats import check_columns
from millstream.planner.schema import Column
from millstream.planner.specs import FormatSpec, KeyWindow
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

from .record_formats import COLUMNS, NULLS, ROW, arrays_of, rows_of
from .test_two_ways_agree import columns, plain_values, tables, types

MSGPACK = FormatSpec("MSGPACK")
BARE = FormatSpec("MSGPACK", wrap_single=False)
PATIENT = settings(deadline=None, max_examples=drawn(30), suppress_health_check=[HealthCheck.too_slow])
LATE = datetime.datetime(1969, 12, 31, 23, 59, 59, 999_000, datetime.UTC)


def packed(value: Any) -> bytes:
    """What another writer makes of a value."""
    return cast(bytes, msgpack.packb(value))


def read(data: bytes, *declared: Column, spec: FormatSpec = MSGPACK) -> list[Any]:
    """The values of a record that can be read."""
    decoded = decoder(spec, declared).decode(pa.array([data], pa.binary()))
    assert decoded.errors == []
    return [column[0].as_py() for column in decoded.columns]


def read_value(value: Any, type_: SqlType) -> Any:
    return read(packed({"V": value}), Column("V", type_))[0]


def problem(data: bytes, *declared: Column) -> str:
    """What is wrong with a record."""
    decoded = decoder(MSGPACK, declared).decode(pa.array([data], pa.binary()))
    assert [column[0].as_py() for column in decoded.columns] == [None] * len(declared)
    (error,) = decoded.errors
    return error.message


# ------------------------------------------------------------------ there and back


def test_every_type_comes_back_as_it_was() -> None:
    data = encoder(MSGPACK, COLUMNS).encode(arrays_of([ROW, NULLS]), null_rows=pa.array([False, False]))
    decoded = decoder(MSGPACK, COLUMNS).decode(data)
    assert not decoded.errors
    assert rows_of(decoded.columns) == [ROW, NULLS]


def test_what_we_write_is_plain_for_other_readers() -> None:
    data = encoder(MSGPACK, COLUMNS).encode(arrays_of([ROW]))[0].as_py()
    assert msgpack.unpackb(data, timestamp=3) == {
        **{name: ROW[name] for name in ("B", "I", "L", "D", "S", "Y", "A")},
        "N": "-12345678.90",
        "DA": (ROW["DA"] - datetime.date(1970, 1, 1)).days,
        "TI": 86_399_999,
        "TS": LATE,
        "M": {"k": LATE},
        "ST": {"X": 7, "W": 10957},
    }


@PATIENT
@given(tables(columns))
def test_whatever_is_written_reads_back(table: tuple[list[Column], list[pa.Array]]) -> None:
    declared, arrays = table
    written = encoder(MSGPACK, declared).encode(arrays)
    decoded = decoder(MSGPACK, declared).decode(written)
    assert decoded.errors == []
    for column, array, back in zip(declared, arrays, decoded.columns, strict=True):
        assert plain_values(column.type, array) == plain_values(column.type, back)
    for row in written.to_pylist():
        assert list(msgpack.unpackb(row)) == [column.name for column in declared]


@PATIENT
@given(tables(types.map(lambda type_: [Column("V", type_)])))
def test_a_bare_value_reads_back_and_null_is_no_bytes(table: tuple[list[Column], list[pa.Array]]) -> None:
    declared, arrays = table
    written = encoder(BARE, declared).encode(arrays)
    assert written.is_null().to_pylist() == arrays[0].is_null().to_pylist()
    decoded = decoder(BARE, declared).decode(written)
    assert plain_values(declared[0].type, arrays[0]) == plain_values(declared[0].type, decoded.columns[0])


# ------------------------------------------------------------------ keys, wrapping, NULL


def test_a_key_of_one_column_is_bare_and_of_several_a_map() -> None:
    one, two = Column("A", INTEGER, "KEY"), Column("B", STRING, "KEY")
    numbers, texts = pa.array([1, None], pa.int32()), pa.array(["x", None])
    assert encoder(BARE, [one]).encode([numbers]).to_pylist() == [b"\x01", None]
    written = encoder(MSGPACK, [one, two]).encode([numbers, texts]).to_pylist()
    assert written == [packed({"A": 1, "B": "x"}), None]


def test_a_key_that_is_there_and_null_is_nil() -> None:
    key = Column("A", INTEGER, "KEY")
    written = encoder(BARE, [key]).encode([pa.array([None, None], pa.int32())], null_rows=pa.array([False, True]))
    assert written.to_pylist() == [b"\xc0", None]


@pytest.mark.parametrize("spec", [MSGPACK, BARE])
@pytest.mark.parametrize("window", [KeyWindow("TUMBLING", 1000), KeyWindow("SESSION")])
def test_windows_stand_behind_the_key(spec: FormatSpec, window: KeyWindow) -> None:
    declared = [Column("K", STRING, "KEY")]
    times = {"window_start": pa.array([1000, 2000]), "window_end": pa.array([2000, 3000])}
    written = encoder(spec, declared, window).encode([pa.array(["a", "b"])], **times)
    decoded = decoder(spec, declared, window=window).decode(written)
    assert decoded.columns[0].to_pylist() == ["a", "b"]
    assert decoded.window_start is not None
    assert decoded.window_start.to_pylist() == [1000, 2000]


@pytest.mark.parametrize("spec", [MSGPACK, BARE])
def test_nil_is_no_value(spec: FormatSpec) -> None:
    decoded = decoder(spec, [Column("V", STRING)]).decode(pa.array([b"\xc0", None, packed({})]))
    assert decoded.null_rows.to_pylist()[:2] == [True, True]


def test_a_value_without_columns_is_no_tombstone() -> None:
    assert encoder(MSGPACK, []).encode([], null_rows=pa.array([False, True])).to_pylist() == [b"\x80", None]
    assert decoder(MSGPACK, []).decode(pa.array([b"\x80", None], pa.binary())).null_rows.to_pylist() == [False, True]


def test_maps_whose_keys_are_no_text_are_refused() -> None:
    column = Column("M", Array(Map(INTEGER, STRING)))
    with pytest.raises(FormatError, match="MSGPACK only supports MAP types with STRING keys"):
        check_columns("MSGPACK", [column], "Value")
    with pytest.raises(FormatError, match="MSGPACK only supports MAP types with STRING keys"):
        encoder(MSGPACK, [column])


# ------------------------------------------------------------------ other writers


def test_fields_are_found_in_any_case_and_the_last_of_equal_ones_counts() -> None:
    assert read(packed({"v": 1, "other": [{}]}), Column("V", INTEGER)) == [1]
    twice = b"\x83" + b"".join(packed(each) for each in ("V", 1, "V", 2, "x", 3))
    assert read(twice, Column("V", INTEGER), Column("X", INTEGER), Column("MISSING", STRING)) == [2, 3, None]


@pytest.mark.parametrize(
    ("value", "type_", "expected"),
    [
        (1, DECIMAL := Decimal(5, 2), Number("1.00")),
        (1.25, DECIMAL, Number("1.25")),
        ("-1.5", DECIMAL, Number("-1.50")),
        ("1E1", DECIMAL, Number("10.00")),
        (7, DOUBLE, 7.0),
        (2**64 - 1, DOUBLE, float(2**64 - 1)),
        (math.inf, DOUBLE, math.inf),
        (1_000, TIMESTAMP, datetime.datetime(1970, 1, 1, 0, 0, 1)),
        (msgpack.Timestamp(-1, 999_999_999), TIMESTAMP, LATE.replace(tzinfo=None)),
        (msgpack.Timestamp(2**34, 1_999_999), TIMESTAMP, datetime.datetime(2514, 5, 30, 1, 53, 4, 1_000)),
        (0, DATE, datetime.date(1970, 1, 1)),
        (1, TIME, datetime.time(0, 0, 0, 1000)),
        (5, STRING, "5"),
        (1.0, STRING, "1.0"),
        (True, STRING, "true"),
        ({1: "a", "1": "b", 2.5: "c", b"k": "d"}, Map(STRING, STRING), [("1", "b"), ("2.5", "c"), ("k", "d")]),
        ((1, None), Array(INTEGER), [1, None]),
    ],
)
def test_other_ways_to_write_a_value_are_read(value: Any, type_: SqlType, expected: Any) -> None:
    assert read_value(value, type_) == expected


def test_small_floats_and_timestamps_of_every_width_are_read() -> None:
    data = b"\x81\xa1V\xca" + struct.pack(">f", 1.5)
    assert read(data, Column("V", DOUBLE)) == [1.5]
    for seconds, nanoseconds in ((1, 0), (1, 1_000_000), (2**33, 5_000_000), (-5, 0)):
        (found,) = read(packed({"V": msgpack.Timestamp(seconds, nanoseconds)}), Column("V", TIMESTAMP))
        assert found == datetime.datetime(1970, 1, 1) + datetime.timedelta(
            seconds=seconds, milliseconds=nanoseconds // 10**6
        )


# ------------------------------------------------------------------ what is wrong, and where


@pytest.mark.parametrize(
    ("value", "type_", "message"),
    [
        ("1", INTEGER, '$.V: INTEGER wanted, the text "1" came'),
        (1.0, INTEGER, "$.V: INTEGER wanted, the number 1.0 came"),
        (True, INTEGER, "$.V: INTEGER wanted, true came"),
        (2**31, INTEGER, "$.V: the number 2147483648 is out of range for INTEGER"),
        (2**64 - 1, BIGINT, "$.V: the number 18446744073709551615 is out of range for BIGINT"),
        (1, BOOLEAN, "$.V: BOOLEAN wanted, the number 1 came"),
        ("a", BYTES, '$.V: BYTES wanted, the text "a" came'),
        (b"a", STRING, "$.V: STRING wanted, bytes came"),
        ({}, STRING, "$.V: STRING wanted, an object came"),
        ("x", DOUBLE, '$.V: DOUBLE wanted, the text "x" came'),
        (math.nan, DECIMAL, "$.V: DECIMAL(5, 2) wanted, the number nan came"),
        ("NaN", DECIMAL, '$.V: DECIMAL(5, 2) wanted, the text "NaN" came'),
        ("1" * 100_000, DECIMAL, f'$.V: the text "{"1" * 40}…" is out of range for DECIMAL(5, 2)'),
        ("1e999999999", DECIMAL, '$.V: the text "1e999999999" is out of range for DECIMAL(5, 2)'),
        (1.005, DECIMAL, "$.V: the number 1.005 does not fit into DECIMAL(5, 2) without rounding"),
        (86_400_000, TIME, "$.V: the number 86400000 is out of range for TIME"),
        (msgpack.Timestamp(2**60, 0), TIMESTAMP, f"$.V: the number {2**60 * 1000} is out of range for TIMESTAMP"),
        (msgpack.ExtType(5, b"a"), INTEGER, "$.V: INTEGER wanted, the value ExtType(code=5, data=b'a') came"),
        (msgpack.ExtType(5, b"a"), TIMESTAMP, "$.V: TIMESTAMP wanted, the value ExtType(code=5, data=b'a') came"),
        ([1, "x"], Array(INTEGER), '$.V[1]: INTEGER wanted, the text "x" came'),
        ({"k": "x"}, Map(STRING, INTEGER), '$.V.k: INTEGER wanted, the text "x" came'),
        ({"f": {"g": []}}, Struct((Field("F", Struct((Field("G", DATE),))),)), "$.V.F.G: DATE wanted, an array came"),
        ([1], Struct((Field("F", INTEGER),)), "$.V: STRUCT<`F` INTEGER> wanted, an array came"),
    ],
)
def test_an_error_says_what_came_and_where(value: Any, type_: SqlType, message: str) -> None:
    assert problem(packed({"V": value}), Column("V", type_)) == message


ANY = (Column("V", STRING), Column("A", Array(INTEGER)), Column("M", Map(STRING, STRING)))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the 0 bytes are not MessagePack: they end inside a value"),
        (b"\x81\xa1V\xa3ab", "the 6 bytes are not MessagePack: they end inside a value"),
        (b"\xc1", "the bytes are not MessagePack: one is 0xc1, which begins no value"),
        (b"\x80\x01\x02", "2 bytes are left after the MessagePack value"),
        (b"\xdd\xff\xff\xff\xff", "they end inside a value"),
        (b"\xdf\xff\xff\xff\xff", "they end inside a value"),
        (b"\xdb\xff\xff\xff\xff", "they end inside a value"),
        (b"\xc6\xff\xff\xff\xff", "they end inside a value"),
        (b"\xc9\xff\xff\xff\xff\x05", "they end inside a value"),
        (b"\x91" * 100_000, "the MessagePack value is nested too deeply"),
        (b"\x81\xa1V" * 100_000, "the MessagePack value is nested too deeply"),
        ((b"\xdd" + struct.pack(">I", 99_000)) * 500 + b"\xc0" * 97_500, "they end inside a value"),
        (b"\x81\x90\x01", "a key of a MessagePack map is list, not text"),
        (b"\x81\xc0\x01", "a key of a MessagePack map is nil, not text"),
        (b"\x81\xd6\xff\0\0\0\0\x01", "a key of a MessagePack map is Timestamp, not text"),
        (b"\xd4\xff\0", "invalid timestamp data (length 1)"),
        (b"\xc7\x0c\xff\xff\xff\xff\xff\0\0\0\0\0\0\0\0", "nanoseconds must be"),
        (b"\x93\x01\x02\x03", "$: a record wanted, an array came"),
        (b"{}", "1 bytes are left after the MessagePack value"),
        (b"\x81\xa1V\xa2\xff\xfe", "$.V: STRING wanted, text that is no UTF-8 came"),
        (b"\x81\xa1V\xa3\xed\xa0\x80", "$.V: STRING wanted, text that is no UTF-8 came"),
        (b"\x81\xa1M\x81\xa1\xff\xa1a", "$.M.\\udcff: STRING wanted, text that is no UTF-8 came"),
    ],
)
def test_poison_is_an_error_of_its_record(data: bytes, message: str) -> None:
    assert message in problem(data, *ANY)


def test_columns_that_nobody_wants_are_not_looked_at() -> None:
    data = packed({"V": 1, "A": "no array", "M": msgpack.ExtType(1, b"")})
    decoded = decoder(MSGPACK, ANY, needed=[True, False, False]).decode(pa.array([data]))
    assert decoded.errors == []
    assert [column.to_pylist() for column in decoded.columns] == [["1"], [None], [None]]


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("VAMvam") | st.text(), inner),
    max_leaves=8,
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A record of which a byte is another one, and which may be cut off."""
    data = bytearray(packed(draw(values)))
    data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data[: draw(st.sampled_from([len(data), len(data), len(data) // 2]))])


@PATIENT
@given(st.lists(damaged(), max_size=6), columns)
def test_whatever_bytes_come_each_row_is_read_or_named(rows: list[bytes], declared: list[Column]) -> None:
    decoded = decoder(MSGPACK, declared).decode(pa.array(rows, pa.binary()))
    for column, array in zip(declared, decoded.columns, strict=True):
        assert (array.type, len(array)) == (column.type.arrow, len(rows))
        array.validate(full=True)
    for error in decoded.errors:
        assert all(array[error.row].as_py() is None for array in decoded.columns)


# ------------------------------------------------------------------ single records, for PRINT


def test_a_record_is_shown_with_all_that_it_holds() -> None:
    value = {"n": "1.50", "T": msgpack.Timestamp(1, 5_000_000), "x": [msgpack.ExtType(3, b"\1")], "S": {"f": 1}}
    declared = [Column("N", Decimal(4, 2)), Column("T", TIMESTAMP), Column("S", Struct((Field("F", Decimal(3, 1)),)))]
    assert decode_logical(MSGPACK, declared, packed(value)) == {
        "n": Number("1.50"), "T": 1005, "x": ["extension type 3: 01"], "S": {"f": Number("1.0")},
    }  # fmt: skip
    assert decode_logical(BARE, declared[:1], packed("1.5")) == Number("1.50")


def test_plain_values_are_written_as_they_are() -> None:
    data = encode_logical(MSGPACK, COLUMNS, {"N": Number("1E+2"), "x": [None, b"a"]})
    assert data is not None
    assert msgpack.unpackb(data) == {"N": "100", "x": [None, b"a"]}
