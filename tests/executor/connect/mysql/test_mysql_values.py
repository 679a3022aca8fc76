"""Values of MariaDB's types: the same from the snapshot and from the binary log, and what Debezium documents."""

from __future__ import annotations

import base64
import struct
from decimal import Decimal
from typing import Any

import pytest
from connectors import read_topic
from mariadb_server import MariaDbServer, Sql
from mysql_runners import catch_up, runner, settings

from millstream.executor.connect.connector_errors import ConnectorFailed
from millstream.executor.connect.converters import converter_of
from millstream.executor.connect.mysql.mysql_values import (
    MySqlColumn,
    MySqlModes,
    binary_reader,
    decoder_of,
    shortest,
    text_reader,
)
from millstream.logcore.log import Log


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def wkb(kind: int, *numbers: float, counts: bytes = b"") -> str:
    return b64(struct.pack("<BI", 1, kind) + counts + struct.pack(f"<{len(numbers)}d", *numbers))


# Type, literal, JSON.
CASES: list[tuple[str, str, Any]] = [
    ("BOOLEAN", "TRUE", 1),
    ("TINYINT", "-128", -128),
    ("TINYINT UNSIGNED", "255", 255),
    ("SMALLINT", "-32768", -32768),
    ("YEAR", "1999", 1999),
    ("SMALLINT UNSIGNED", "65535", 65535),
    ("YEAR", "0", 0),
    ("YEAR", "2155", 2155),
    ("MEDIUMINT", "-8388608", -8388608),
    ("MEDIUMINT UNSIGNED", "16777215", 16777215),
    ("INT", "-2147483648", -2147483648),
    ("INT UNSIGNED", "4294967295", 4294967295),
    ("INT(5) UNSIGNED ZEROFILL", "42", 42),
    ("BIGINT", "-9223372036854775808", -9223372036854775808),
    ("BIGINT UNSIGNED", "18446744073709551615", 18446744073709551615),
    ("DECIMAL(10,2)", "-12.50", Decimal("-12.50")),
    ("DECIMAL(38,10)", "1234567890123456789012345678.0123456789", Decimal("1234567890123456789012345678.0123456789")),
    ("DECIMAL(65,30)", "-0.000000000000000000000000000001", Decimal("-0.000000000000000000000000000001")),
    ("DECIMAL(5,0)", "0", 0),
    ("DECIMAL(5,5)", "0.00001", Decimal("0.00001")),
    ("FLOAT", "0.1", Decimal("0.1")),
    ("FLOAT", "16777217", 16777216.0),
    ("FLOAT", "3.4028235e38", Decimal("3.4028235e38")),
    ("DOUBLE", "0.1", Decimal("0.1")),
    ("DOUBLE", "-1.7976931348623157e308", Decimal("-1.7976931348623157e308")),
    ("BIT(1)", "b'1'", True),
    ("BIT(1)", "b'0'", False),
    ("BIT(12)", "b'101000000001'", b64(b"\x01\x0a")),
    ("BIT(64)", "b'1'", b64(b"\x01" + b"\0" * 7)),
    ("DATE", "'2024-02-29'", 19782),
    ("DATE", "'1000-01-01'", -354285),
    ("DATE", "'0000-00-00'", None),
    ("DATE NOT NULL", "'0000-00-00'", 0),
    ("DATE", "'2010-00-00'", None),
    ("TIME", "'-838:59:59'", -3020399000000),
    ("TIME(6)", "'-00:00:00.000001'", -1),
    ("TIME(3)", "'-01:02:03.004'", -3723004000),
    ("TIME(1)", "'100:00:00.9'", 360000900000),
    ("TIME", "'25:00:00'", 90000000000),
    ("TIME(6)", "'838:59:58.999999'", 3020398999999),
    ("DATETIME", "'2024-02-29 12:00:00'", 1709208000000),
    ("DATETIME(1)", "'1969-12-31 23:59:59.5'", -500),
    ("DATETIME(3)", "'9999-12-31 23:59:59.999'", 253402300799999),
    ("DATETIME(4)", "'2024-02-29 12:00:00.1234'", 1709208000123400),
    ("DATETIME(6)", "'1000-01-01 00:00:00.000001'", -30610223999999999),
    ("DATETIME", "'0000-00-00 00:00:00'", None),
    ("DATETIME NOT NULL", "'0000-00-00 00:00:00'", 0),
    ("TIMESTAMP NULL", "'2024-02-29 12:00:00'", "2024-02-29T12:00:00Z"),
    ("TIMESTAMP(3) NULL", "'1970-01-01 00:00:01.5'", "1970-01-01T00:00:01.500Z"),
    ("TIMESTAMP(6) NULL", "'2038-01-19 03:14:07.999999'", "2038-01-19T03:14:07.999999Z"),
    ("TIMESTAMP NULL", "'0000-00-00 00:00:00'", None),
    ("ENUM('a','b,c','ü')", "'ü'", "ü"),
    ("ENUM('a','b')", "''", ""),
    ("ENUM('x','é') CHARACTER SET latin1", "'é'", "é"),
    ("SET('a','b','ü')", "'ü,a'", "a,ü"),
    ("SET('a','b')", "''", ""),
    ("JSON", """'{"a": [1, 2.5, null]}'""", '{"a": [1, 2.5, null]}'),
    ("CHAR(4)", "'ab'", "ab"),
    ("CHAR(200)", "'😀'", "😀"),
    ("VARCHAR(5)", "'abc'", "abc"),
    ("VARCHAR(300)", "'é€'", "é€"),
    ("VARCHAR(20) CHARACTER SET latin1", "'é€'", "é€"),
    ("VARCHAR(20) CHARACTER SET latin1", "X'4181'", "A\x81"),
    ("VARCHAR(20) CHARACTER SET ucs2", "'é€'", "é€"),
    ("VARCHAR(20) CHARACTER SET cp1251", "'Привет'", "Привет"),
    ("VARCHAR(20) CHARACTER SET sjis", "'日本'", "日本"),
    ("VARCHAR(20) COLLATE utf8mb4_uca1400_ai_ci", "'ö'", "ö"),
    ("TINYTEXT", "'t'", "t"),
    ("TEXT", "''", ""),
    ("MEDIUMTEXT", "REPEAT('m', 70000)", "m" * 70000),
    ("LONGTEXT", "'quote \\\\ \"'", 'quote \\ "'),
    ("BINARY(4)", "X'0100'", b64(b"\1\0\0\0")),
    ("BINARY(2)", "X'0000'", b64(b"\0\0")),
    ("VARBINARY(4)", "X'0100'", b64(b"\1\0")),
    ("TINYBLOB", "X'00'", b64(b"\0")),
    ("BLOB", "X'00FF'", b64(b"\0\xff")),
    ("MEDIUMBLOB", "X'01'", b64(b"\1")),
    ("LONGBLOB", "X''", ""),
    ("POINT", "ST_GeomFromText('POINT(1 2)')", {"x": 1.0, "y": 2.0, "wkb": wkb(1, 1, 2), "srid": None}),
    ("GEOMETRY", "ST_GeomFromText('POINT(1 2)', 4326)", {"wkb": wkb(1, 1, 2), "srid": 4326}),
    ("LINESTRING", "ST_GeomFromText('LINESTRING(0 0, 1 1)')",
     {"wkb": wkb(2, 0, 0, 1, 1, counts=struct.pack("<I", 2)), "srid": None}),
    ("UUID", "'0b0a2b3c-0000-4000-8000-000000000001'", "0b0a2b3c-0000-4000-8000-000000000001"),
    ("UUID", "'76f2af30-e9c6-11f1-b92c-02fc00000000'", "76f2af30-e9c6-11f1-b92c-02fc00000000"),
    ("INET6", "'::ffff:1.2.3.4'", "::ffff:1.2.3.4"),
    ("INET6", "'2001:db8::'", "2001:db8::"),
    ("INET4", "'1.2.3.0'", "1.2.3.0"),
    ("INT AS (7 + 1) VIRTUAL", "DEFAULT", 8),
    ("INT AS (7 + 1) STORED", "DEFAULT", 8),
]  # fmt: skip


def test_snapshot_and_binary_log_give_debeziums_values(
    server: MariaDbServer, sql: Sql, database: str, log: Log
) -> None:
    """All types in one table: one row is there before the connector begins, the other one comes after."""
    sql.run("SET SESSION sql_mode = 'ALLOW_INVALID_DATES'", "SET SESSION time_zone = '+00:00'")
    columns = ", ".join(f"v{index} {kind}" for index, (kind, _, _) in enumerate(CASES))
    names = ", ".join(f"v{index}" for index in range(len(CASES)))
    values = ", ".join(literal for _, literal, _ in CASES)
    sql.run(f"CREATE TABLE types (id INT PRIMARY KEY, {columns})")
    sql.run(f"INSERT INTO types (id, {names}) VALUES (1, {values})")
    running = runner(log, settings(server, database))
    catch_up(running)
    sql.run(f"INSERT INTO types (id, {names}) VALUES (2, {values})")
    catch_up(running)
    running.close()
    decode = converter_of({}, "value").from_bytes
    snapshot, streamed = (decode(record.value)["after"] for record in read_topic(log, f"m.{database}.types"))
    wrong = [
        (kind, literal, row[f"v{index}"])
        for index, (kind, literal, expected) in enumerate(CASES)
        for row in (snapshot, streamed)
        if row[f"v{index}"] != expected
    ]
    assert wrong == []


MODES = [
    ("decimal", MySqlColumn("v", "decimal", 10, 2), MySqlModes(decimals="string"), "-12.50", "-12.50"),
    ("decimal", MySqlColumn("v", "decimal", 10, 2), MySqlModes(decimals="double"), "-12.50", -12.5),
    ("decimal", MySqlColumn("v", "decimal", 10, 2), MySqlModes(decimals="precise"), "-12.50", b64(b"\xfb\x1e")),
    ("digits", MySqlColumn("v", "decimal", 65, 2), MySqlModes(decimals="precise"), "1" + "0" * 61 + "7.25",
     b64((10**64 + 725).to_bytes(27, "big"))),
    ("bigint", MySqlColumn("v", "int", 8, unsigned=True), MySqlModes(unsigned_bigints="precise"),
     "18446744073709551615", b64(b"\0" + b"\xff" * 8)),
    ("time", MySqlColumn("v", "time", 6), MySqlModes(times="connect"), "-00:00:01.999999", -1999),
    ("time", MySqlColumn("v", "time", 3), MySqlModes(times="isostring"), "-100:02:03.004000", "-100:02:03.004"),
    ("datetime", MySqlColumn("v", "datetime", 6), MySqlModes(times="connect"), "1969-12-31 23:59:59.999999", -1),
    ("datetime", MySqlColumn("v", "datetime", 2), MySqlModes(times="isostring"), "2024-02-29 01:02:03.450000",
     "2024-02-29T01:02:03.45Z"),
    ("date", MySqlColumn("v", "date"), MySqlModes(times="isostring"), "2024-02-29", "2024-02-29"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "column", "modes", "text", "expected"), MODES)
def test_modes_choose_another_form(name: str, column: MySqlColumn, modes: MySqlModes, text: str, expected: Any) -> None:
    assert text_reader(column, modes)(text) == expected


def test_a_float_has_the_fewest_digits_that_are_it() -> None:
    for value in (0.1, 1.0, 123456.7, 16777216.0, 3.4028235e38, 8.589973e9):
        single = struct.unpack("<f", struct.pack("<f", value))[0]
        assert struct.pack("<f", shortest(single)) == struct.pack("<f", single)
        assert len(repr(shortest(single))) <= len(repr(value))


def test_what_cannot_be_read_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(ConnectorFailed, match="character set swe7") as caught:
        decoder_of(MySqlColumn("v", "text", charset="swe7"))
    assert "column.exclude.list" in (caught.value.hint or "")
    for reader in (binary_reader, text_reader):
        with pytest.raises(ConnectorFailed, match="has a type that cannot be read"):
            reader(MySqlColumn("v", "xmltype"), MySqlModes())
    cut = binary_reader(MySqlColumn("v", "text", length_bytes=2), MySqlModes())
    with pytest.raises(IndexError):
        cut(b"\x05\x00abc", 0)


def test_a_point_is_read_in_either_order_of_bytes() -> None:
    for form, first in (("<", b"\1"), (">", b"\0")):
        data = b"\0\0\0\0" + first + struct.pack(f"{form}Idd", 1, 1.0, 2.0)
        value = text_reader(MySqlColumn("v", "point"), MySqlModes())(data)
        assert (value["x"], value["y"]) == (1.0, 2.0)
