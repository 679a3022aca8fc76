"""KAFKA and NONE, and the windows behind keys."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest

from millstream.errors import FormatError
from millstream.executor.formats import RowError, add_window, decoder, encoder, take_window
from millstream.planner.schema import Column
from millstream.planner.specs import FormatSpec, KeyWindow
from millstream.sql.types import BIGINT, BOOLEAN, BYTES, DOUBLE, INTEGER, STRING, SqlType

KAFKA = FormatSpec("KAFKA")


@pytest.mark.parametrize(
    ("type_", "value", "data"),
    [
        (INTEGER, -2, b"\xff\xff\xff\xfe"),
        (BIGINT, 1, b"\0\0\0\0\0\0\0\1"),
        (DOUBLE, 1.1, struct.pack(">d", 1.1)),
        (STRING, "é", b"\xc3\xa9"),
        (STRING, "", b""),
        (BYTES, b"\xff", b"\xff"),
    ],
)
def test_values_are_written_as_kafka_does_and_read_back(type_: SqlType, value: Any, data: bytes) -> None:
    column = [Column("V", type_)]
    written = encoder(KAFKA, column).encode([pa.array([value, None, value], type_.arrow)])
    assert written.to_pylist() == [data, None, data]
    decoded = decoder(KAFKA, column).decode(written[1:])
    assert decoded.columns[0].to_pylist() == [None, value]
    assert decoded.null_rows.to_pylist() == [True, False]
    assert decoded.columns[0].type == type_.arrow


def test_bytes_of_the_wrong_length_or_encoding_are_error_rows() -> None:
    numbers = decoder(KAFKA, [Column("V", INTEGER)]).decode(pa.array([b"\0\0\0\1", b"\0", None, b""]))
    assert numbers.columns[0].to_pylist() == [1, None, None, None]
    assert numbers.errors == [
        RowError(1, "INTEGER wants 4 bytes, 1 came"),
        RowError(3, "INTEGER wants 4 bytes, 0 came"),
    ]
    texts = decoder(KAFKA, [Column("V", STRING)]).decode(pa.array([b"a", b"\xff"]))
    assert texts.columns[0].to_pylist() == ["a", None]
    assert texts.errors == [RowError(1, "invalid UTF-8 at byte 0")]


@pytest.mark.parametrize("type_", [STRING, BYTES, BIGINT])
def test_null_rows_of_a_slice_are_written_as_null(type_: SqlType) -> None:
    values = pa.array([b"1", b"2", b"3"]).cast(pa.string())
    array = (values.cast(pa.int64()) if type_ == BIGINT else values.cast(type_.arrow))[1:]
    written = encoder(KAFKA, [Column("V", type_)]).encode([array], null_rows=pa.array([True, False]))
    assert [row is None for row in written.to_pylist()] == [True, False]
    assert written[1].as_py() == (b"\0\0\0\0\0\0\0\3" if type_ == BIGINT else b"3")


def test_a_part_without_columns_is_left_alone() -> None:
    for spec in (KAFKA, FormatSpec("NONE")):
        decoded = decoder(spec, []).decode(pa.array([b"anything", None]))
        assert (decoded.columns, decoded.errors) == ([], [])
        assert encoder(spec, []).encode([], null_rows=pa.array([False, True])).to_pylist() == [None, None]


def test_formats_refuse_what_they_cannot_hold() -> None:
    with pytest.raises(FormatError, match="does not support type 'BOOLEAN'\n"):
        decoder(KAFKA, [Column("V", BOOLEAN)])
    with pytest.raises(FormatError, match="only supports a single field"):
        encoder(KAFKA, [Column("A", STRING), Column("B", STRING)])
    with pytest.raises(FormatError, match="can only be used when no columns are defined"):
        encoder(FormatSpec("NONE"), [Column("A", STRING)])
    with pytest.raises(FormatError, match="unknown format FOO"):
        decoder(FormatSpec("FOO"), [])


@pytest.mark.parametrize("spec", [KAFKA, FormatSpec("JSON", wrap_single=False)])
@pytest.mark.parametrize(
    "window", [KeyWindow("TUMBLING", 1000), KeyWindow("HOPPING", 1000), KeyWindow("SESSION"), KeyWindow("CUMULATE")]
)
@pytest.mark.parametrize("copies", [1, 64])
def test_windows_stand_behind_the_key(spec: FormatSpec, window: KeyWindow, copies: int) -> None:
    columns = [Column("K", STRING, "KEY")]
    keys = pa.array(["a", None, "", "long key"] * copies, pa.string())
    start = pa.array([0, 5, -1000, 2**40] * copies, pa.int64())
    end = pa.array([1000, 1005, 0, 2**40 + 1000] * copies, pa.int64())
    written = encoder(spec, columns, window).encode([keys], window_start=start, window_end=end)
    plain = encoder(spec, columns).encode([keys])
    assert written[3].as_py() == add_window(plain[3].as_py(), window, 2**40, 2**40 + 1000)
    assert take_window(written[3].as_py(), window) == (plain[3].as_py(), 2**40, 2**40 + 1000)
    assert written[1].as_py() is None

    decoded = decoder(spec, columns, window=window).decode(written)
    assert decoded.columns[0].to_pylist() == keys.to_pylist()
    assert decoded.window_start is not None
    assert decoded.window_end is not None
    assert decoded.window_start.to_pylist() == [0, None, -1000, 2**40] * copies
    assert decoded.window_end.to_pylist() == [1000, None, 0, 2**40 + 1000] * copies
    assert decoded.errors == []


def test_a_session_key_ends_with_its_end_and_then_its_start() -> None:
    assert add_window(b"k", KeyWindow("SESSION"), 1, 2) == b"k" + struct.pack(">qq", 2, 1)


def test_a_key_too_short_for_its_window_is_an_error_row() -> None:
    decoded = decoder(KAFKA, [Column("K", STRING, "KEY")], window=KeyWindow("SESSION")).decode(
        pa.array([b"short", None])
    )
    assert decoded.errors == [RowError(0, "a windowed key has at least 16 bytes, 5 came")]
    assert decoded.null_rows.to_pylist() == [False, True]


def test_a_window_at_the_end_of_time_does_not_wrap_around() -> None:
    data = b"k" + struct.pack(">q", 2**63 - 1)
    decoded = decoder(KAFKA, [Column("K", STRING, "KEY")], window=KeyWindow("TUMBLING", 1000)).decode(pa.array([data]))
    assert decoded.window_end is not None
    assert decoded.window_end.to_pylist() == [2**63 - 1]
