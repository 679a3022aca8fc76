"""Values of PostgreSQL's types: the same from the snapshot and from the stream, and what Debezium documents."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from math import inf, nan
from pathlib import Path
from typing import Any

import orjson
import pytest
from connectors import read_topic
from postgres_server import PostgresServer, postgres_server

from millstream.executor.connect.connector import TaskInfo
from millstream.executor.connect.connector_settings import read_settings
from millstream.executor.connect.converters import converter_of
from millstream.executor.connect.postgres.pg_source import PostgresSource
from millstream.executor.connect.postgres.pg_values import ValueModes, value_reader
from millstream.executor.connect.postgres.postgres_settings import PostgresSettings
from millstream.executor.connect.source_runner import SourceRunner
from millstream.logcore.log import open_log


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def unscaled(number: int) -> str:
    return b64(number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True))


# Type, literal, JSON.
CASES: list[tuple[str, str, Any]] = [
    ("BOOLEAN", "true", True),
    ("SMALLINT", "-32768", -32768),
    ("INTEGER", "2147483647", 2147483647),
    ("BIGINT", "-9223372036854775808", -9223372036854775808),
    ("OID", "4294967295", 4294967295),
    ("REAL", "1.5", 1.5),
    ("REAL", "'NaN'", "NaN"),
    ("DOUBLE PRECISION", "0.1", 0.1),
    ("DOUBLE PRECISION", "'-Infinity'", "-Infinity"),
    ("NUMERIC(10,2)", "12.50", 12.5),
    ("NUMERIC", "'NaN'", "NaN"),
    ("MONEY", "1234.5", 1234.5),
    ("TEXT", "'ümlaut '' \"quote\" \\ {a}'", "ümlaut ' \"quote\" \\ {a}"),
    ("TEXT", "E'tab\\tline\\nend'", "tab\tline\nend"),
    ("TEXT", "''", ""),
    ("TEXT", "'\\N'", "\\N"),
    ("VARCHAR(5)", "'abc'", "abc"),
    ("CHAR(4)", "'ab'", "ab  "),
    ("BYTEA", "'\\x00ff10'", b64(b"\x00\xff\x10")),
    ("DATE", "'2024-02-29'", 19782),
    ("DATE", "'0044-03-15 BC'", -735160),
    ("DATE", "'infinity'", 2147483647),
    ("TIME", "'01:02:03.000004'", 3723000004),
    ("TIME(3)", "'01:02:03.004'", 3723004),
    ("TIMETZ", "'01:02:03+00'", "01:02:03Z"),
    ("TIMESTAMP", "'2024-02-29 12:00:00.123456'", 1709208000123456),
    ("TIMESTAMP(3)", "'2024-02-29 12:00:00.123'", 1709208000123),
    ("TIMESTAMP", "'1969-12-31 23:59:59.5'", -500000),
    ("TIMESTAMP", "'infinity'", 9223372036825200000),
    ("TIMESTAMP", "'294276-12-31 23:59:59'", 9224318015999000000),
    ("TIMESTAMPTZ", "'2024-02-29 12:00:00+02'", "2024-02-29T10:00:00Z"),
    ("TIMESTAMPTZ", "'0044-03-15 12:00:00+00 BC'", "-0043-03-15T12:00:00Z"),
    ("INTERVAL", "'1 day 02:00:00.5'", 93600500000),
    ("INTERVAL", "'-1 day'", -86400000000),
    ("INTERVAL", "'9999 years 00:00:00.000001'", 315544442400000001),
    ("INTERVAL", "'178000000 years'", 9223372036854775807),
    ("INTERVAL", "'-178000000 years'", -9223372036854775808),
    ("UUID", "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    ("JSON", "'{\"a\": [1, 2]}'", '{"a": [1, 2]}'),
    ("JSONB", "'{\"a\":1}'", '{"a": 1}'),
    ("XML", "'<a/>'", "<a/>"),
    ("INET", "'10.0.0.1/8'", "10.0.0.1/8"),
    ("MACADDR", "'08:00:2b:01:02:03'", "08:00:2b:01:02:03"),
    ("BIT(1)", "B'1'", True),
    ("BIT(10)", "B'1000000001'", b64(b"\x01\x02")),
    ("BIT VARYING(12)", "B'101'", b64(b"\x05")),
    ("CIDR", "'10.1.0.0/16'", "10.1.0.0/16"),
    ("MACADDR8", "'08:00:2b:01:02:03:04:05'", "08:00:2b:01:02:03:04:05"),
    ("INT4RANGE", "'[1,5)'", "[1,5)"),
    ("INT8RANGE", "'(1,5]'", "[2,6)"),
    ("NUMRANGE", "'[1.5,2.5]'", "[1.5,2.5]"),
    ("DATERANGE", "'[2024-02-28,2024-02-29]'", "[2024-02-28,2024-03-01)"),
    ("TSRANGE", "'[2024-02-29 12:00:00,)'", '["2024-02-29 12:00:00",)'),
    ("INT4RANGE", "'empty'", "empty"),
    ("PG_LSN", "'16/B374D848'", "16/B374D848"),
    ("NAME", "'a name'", "a name"),
    ("positive", "7", 7),
    ("cents", "12.50", 12.5),
    ("small", "3", 3),
    ("cents[]", "ARRAY[1.50, 2]::cents[]", [1.5, 2.0]),
    ("mood[]", "'{sad,NULL}'", ["sad", None]),
    ("place", "ROW('a, b', 1)::place", '("a, b",1)'),
    ("span", "'[1.5,2]'", "[1.5,2]"),
    ("UUID[]", "ARRAY['a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11']::uuid[]", ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]),
    ("BOOLEAN[]", "'{t,f,NULL}'", [True, False, None]),
    ("DATE[]", "'{2024-02-29}'", [19782]),
    ("TSVECTOR", "'a b'", "'a' 'b'"),
    ("mood", "'happy'", "happy"),
    ("INT[]", "'{1,NULL,3}'", [1, None, 3]),
    ("INT[]", "'{{1,2},{3,4}}'", [[1, 2], [3, 4]]),
    ("TEXT[]", "ARRAY['a,b', 'NULL', '\"', 'x\\y', '', NULL]", ["a,b", "NULL", '"', "x\\y", "", None]),
    ("NUMERIC(4,1)[]", "'{1.5,2.0}'", [1.5, 2.0]),
    ("TIMESTAMP[]", "'{\"2024-02-29 12:00:00\"}'", [1709208000000000]),
    ("POINT", "'(1.5,-2)'", {"x": 1.5, "y": -2.0, "wkb": "AQEAAAAAAAAAAAD4PwAAAAAAAADA", "srid": None}),
    ("POINT", "'(Infinity,NaN)'",
     {"x": "Infinity", "y": "NaN", "wkb": b64(struct.pack("<BIdd", 1, 1, inf, nan)), "srid": None}),
    ("TEXT", "NULL", None),
]  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as started:
        yield started


def test_each_type_has_its_value_in_the_snapshot_and_in_the_stream(server: PostgresServer, tmp_path: Path) -> None:
    columns = ", ".join(f"c{index} {type_}" for index, (type_, _, _) in enumerate(CASES))
    values = ", ".join(literal for _, literal, _ in CASES)
    with server.connect() as sql, open_log(tmp_path / "log", sync="never") as log:
        sql.execute("CREATE TYPE mood AS ENUM ('sad', 'happy')")
        sql.execute("CREATE DOMAIN positive AS INT CHECK (VALUE > 0)")
        sql.execute("CREATE DOMAIN small AS positive CHECK (VALUE < 10)")
        sql.execute("CREATE DOMAIN cents AS NUMERIC(10, 2)")
        sql.execute("CREATE TYPE place AS (name TEXT, floor INT)")
        sql.execute("CREATE TYPE span AS RANGE (SUBTYPE = NUMERIC)")
        sql.execute(
            f"CREATE TABLE all_types (id INT PRIMARY KEY, {columns}, made INT GENERATED ALWAYS AS (id + 1) STORED)"
        )
        sql.execute(f"INSERT INTO all_types VALUES (1, {values})")
        config = {**server.parameters(), "topic.prefix": "t", "table.include.list": "public.all_types"}
        source = PostgresSource(read_settings(PostgresSettings, config), TaskInfo("types"))
        running = SourceRunner(log, source, TaskInfo("types"), config)
        while running.position is None or running.position["phase"] != "stream":
            running.step(0.1)
        sql.execute(f"INSERT INTO all_types VALUES (2, {values})")
        sql.execute("ALTER TYPE mood ADD VALUE 'calm'")
        while running.records < 2:
            running.step(0.5)
        running.close()
        first, second = (record.json["after"] for record in read_topic(log, "t.public.all_types"))
    for index, (type_, literal, expected) in enumerate(CASES):
        assert (type_, literal, first[f"c{index}"]) == (type_, literal, expected)
    assert {**first, "id": 2} == second
    assert "made" not in first


@pytest.mark.parametrize(
    ("modes", "oid", "modifier", "text", "expected"),
    [
        (ValueModes("string"), 1700, -1, "12.50", "12.50"),
        (ValueModes("double"), 1700, -1, "12.50", 12.5),
        (ValueModes("precise"), 1700, (10 << 16) + 2 + 4, "12.50", b64(b"\x04\xe2")),
        (ValueModes("precise"), 1700, -1, "-1.5", {"scale": 1, "value": b64(b"\xf1")}),
        (ValueModes("precise"), 1700, (40 << 16) + 2 + 4, "-" + "7" * 38 + ".91", unscaled(-int("7" * 38 + "91"))),
        (ValueModes("precise"), 1700, (5 << 16) + (-2 & 0x7FF) + 4, "12300", unscaled(123)),
        (ValueModes("double"), 1700, -1, "-1" + "0" * 400, "-Infinity"),
        (ValueModes(times="connect"), 1114, -1, "2024-02-29 12:00:00.123456", 1709208000123),
        (ValueModes(times="isostring"), 1114, -1, "2024-02-29 12:00:00.123456", "2024-02-29T12:00:00.123456Z"),
        (ValueModes(times="isostring"), 1082, -1, "0044-03-15 BC", "-0043-03-15"),
        (ValueModes(times="isostring"), 1083, -1, "01:02:03", "01:02:03"),
    ],
)
def test_a_mode_gives_the_value_in_its_form(
    modes: ValueModes, oid: int, modifier: int, text: str, expected: Any
) -> None:
    assert value_reader(oid, modifier, modes)(text) == expected


def test_a_decimal_keeps_all_its_digits() -> None:
    value = value_reader(1700, -1, ValueModes())("12345678901234567890.123456789012345678900")
    encoded = converter_of({}, "value").to_bytes({"n": value})
    assert encoded == b'{"n":12345678901234567890.123456789012345678900}'
    assert orjson.loads(encoded)["n"] > 1
