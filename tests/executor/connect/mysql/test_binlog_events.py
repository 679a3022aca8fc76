"""Events of the binary log, of bytes made by the rules of MySQL's documentation, and of bytes that break them."""

from __future__ import annotations

import random
import struct
import uuid
import zlib

import pytest

from millstream.executor.connect.connector_errors import ConnectorFailed
from millstream.executor.connect.mysql.binlog_events import (
    ANONYMOUS_GTID,
    FORMAT,
    GTID,
    QUERY,
    ROTATE,
    EventReader,
    length_coded,
)
from millstream.executor.connect.mysql.binlog_tables import logged_table
from millstream.executor.connect.mysql.mysql_envelope import MySqlEnvelopeSettings, MySqlTableEnvelope
from millstream.executor.connect.mysql.mysql_values import MySqlModes

SERVER = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
CHARSETS = {8: "latin1", 45: "utf8mb4", 63: "binary"}


def event(kind: int, body: bytes, *, checksum: bool = True) -> bytes:
    size = 19 + len(body) + (4 if checksum else 0)
    data = struct.pack("<IBIIIH", 1_700_000_000, kind, 7, size, 500, 0) + body
    return data + struct.pack("<I", zlib.crc32(data)) if checksum else data


def text(value: str) -> bytes:
    return bytes([len(value)]) + value.encode()


def layout() -> bytes:
    """A table of MySQL: INT UNSIGNED, VARCHAR in latin1, POINT, ENUM, JSON, DATETIME(3)."""
    types = bytes([3, 15, 255, 254, 245, 18])
    meta = struct.pack("<H", 20) + b"\4" + bytes([247, 1]) + b"\4" + b"\3"
    named = b"".join(map(text, ("id", "word", "spot", "kind", "doc", "made")))
    optional = [(1, b"\x80"), (2, b"\x08"), (4, named), (6, b"\2" + text("a") + text("b")), (7, b"\1"), (8, b"\0"),
                (10, b"\x2d")]  # fmt: skip
    data = text("shop") + b"\0" + text("t") + b"\0" + b"\6" + types + bytes([len(meta)]) + meta + b"\x3e"
    return data + b"".join(bytes([kind, len(each)]) + each for kind, each in optional)


def test_a_table_of_mysql_says_its_columns_and_gives_its_rows() -> None:
    table = logged_table(layout(), "mysql", CHARSETS)
    assert (table.database, table.name, table.key) == ("shop", "t", ("id",))
    assert [(column.name, column.kind) for column in table.columns] == [
        ("id", "int"), ("word", "text"), ("spot", "point"), ("kind", "enum"), ("doc", "json"), ("made", "datetime"),
    ]  # fmt: skip
    assert table.columns[0].unsigned and not table.columns[0].nullable and table.columns[1].nullable
    point = b"\0\0\0\0\1" + struct.pack("<Idd", 1, 1.0, 2.0)
    json = b"\x00" + struct.pack("<HHHHBH", 1, 12, 11, 1, 5, 3) + b"a"
    moment = ((2024 * 13 + 5) << 5 | 6) << 17 | 7 << 12 | 8 << 6 | 9
    row = struct.pack("<BI", 0, 4_000_000_000) + b"\2\xe9!" + struct.pack("<I", len(point)) + point + b"\2"
    row += struct.pack("<I", len(json)) + json + (moment + (1 << 39)).to_bytes(5, "big") + struct.pack(">H", 1230)
    settings = MySqlEnvelopeSettings("p", "mysql", True, (), MySqlModes())
    (image,) = MySqlTableEnvelope(table, settings, logged=True).row_images(row)
    assert image["id"] == 4_000_000_000 and image["word"] == "é!" and image["kind"] == "b"
    assert image["spot"]["x"] == 1.0 and image["doc"] == '{"a": 3}' and image["made"] == 1714979289123


def test_ids_of_transactions_statements_and_files() -> None:
    reader = EventReader(checksums=True)
    data = event(GTID, b"\1" + uuid.UUID(SERVER).bytes + struct.pack("<q", 42) + b"\2" + b"\0" * 16)
    assert reader.begin(reader.header(data), data).gtid == f"{SERVER}:42"
    data = event(ANONYMOUS_GTID, b"\1" + b"\0" * 41)
    assert reader.begin(reader.header(data), data).gtid is None
    data = event(QUERY, struct.pack("<IIBHH", 1, 0, 4, 0, 3) + b"abcshop\0TRUNCATE TABLE t")
    found = reader.statement(reader.header(data), data)
    assert (found.database, found.text) == ("shop", "TRUNCATE TABLE t")
    data = event(ROTATE, struct.pack("<Q", 4) + b"binlog.000002")
    assert reader.rotation(data) == ("binlog.000002", 4)


def test_each_file_says_whether_its_events_have_checksums() -> None:
    reader = EventReader(checksums=True)
    described = event(FORMAT, struct.pack("<H50sIB", 4, b"8.0.36", 0, 19) + b"\0" * 40 + b"\0")
    reader.header(described)
    plain = event(ROTATE, struct.pack("<Q", 4) + b"b.1", checksum=False)
    assert reader.header(plain).kind == ROTATE and reader.rotation(plain) == ("b.1", 4)


def test_broken_events_are_errors() -> None:
    reader, data = EventReader(checksums=True), event(ROTATE, struct.pack("<Q", 4) + b"binlog.000002")
    chance = random.Random(1)
    for _ in range(500):
        spoilt = bytearray(data)
        at = chance.randrange(19, len(data))
        spoilt[at] ^= 1 << chance.randrange(8)
        with pytest.raises(ValueError):
            reader.header(bytes(spoilt))
    for size in (0, 5, 18, 19, len(data) - 1):
        with pytest.raises(ValueError):
            reader.header(data[:size])


def test_broken_tables_and_rows_never_hang() -> None:
    chance, whole = random.Random(2), layout()
    for _ in range(3000):
        spoilt = bytearray(whole[: chance.randrange(8, len(whole) + 1)])
        spoilt[chance.randrange(8, len(spoilt)) if len(spoilt) > 8 else 7] = chance.randrange(256)
        try:
            logged_table(bytes(spoilt), "mysql", CHARSETS)
        except (ValueError, IndexError, KeyError, ConnectorFailed):
            pass


def test_numbers_of_one_to_nine_bytes() -> None:
    long = (1 << 40).to_bytes(8, "little")
    cases = ((250, b"\xfa"), (251, b"\xfc\xfb\0"), (70000, b"\xfd\x70\x11\1"), (1 << 40, b"\xfe" + long))
    for number, data in cases:
        assert length_coded(b"x" + data, 1) == (number, 1 + len(data))
