"""CREATE TABLE … FROM CONNECTOR with MariaDB: columns, key and types come from it, and its rows can be read."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from mariadb_server import MariaDbServer, mariadb_server
from waiting import eventually

from millstream.server.engine.embedded import EmbeddedEngine, open_engine
from millstream.server.engine.session import Session
from millstream.server.handlers.from_connector import NoSourceTable

DUCKDB = {"millstream.executor": "duckdb", "auto.offset.reset": "earliest"}
# Column, type, literal, type here, value here.
COLUMNS: list[tuple[str, str, str, str, Any]] = [
    ("id", "INT PRIMARY KEY", "1", "INTEGER", 1),
    ("yes", "BOOLEAN", "TRUE", "INTEGER", 1),
    ("born", "YEAR", "1999", "INTEGER", 1999),
    ("many", "INT UNSIGNED", "4294967295", "BIGINT", 4294967295),
    ("more", "BIGINT", "-9223372036854775808", "BIGINT", -(2**63)),
    ("most", "BIGINT UNSIGNED", "18446744073709551615", "DECIMAL(20, 0)", Decimal(2**64 - 1)),
    ("exact", "DECIMAL(12, 3)", "123.456", "DECIMAL(12, 3)", Decimal("123.456")),
    ("long_one", "DECIMAL(65, 30)", "1.5", "STRING", "1.500000000000000000000000000000"),
    ("half", "FLOAT", "0.1", "DOUBLE", 0.1),
    ("whole", "DOUBLE", "1.25", "DOUBLE", 1.25),
    ("flag", "BIT(1)", "b'1'", "BOOLEAN", True),
    ("bits", "BIT(9)", "b'100000001'", "BYTES", base64.b64encode(b"\1\1").decode()),
    ("clock", "TIME(3)", "'-25:00:00.5'", "BIGINT", -90_000_500_000),
    ("moment", "DATETIME(6)", "'2024-02-03 04:05:06.789012'", "BIGINT", 1706933106789012),
    ("zoned", "TIMESTAMP NULL", "'2024-02-03 04:05:06'", "STRING", "2024-02-03T04:05:06Z"),
    ("kind", "ENUM('a', 'b')", "'b'", "STRING", "b"),
    ("`group`", "SET('a', 'b')", "'a,b'", "STRING", "a,b"),
    ("doc", "JSON", """'{"a": 1}'""", "STRING", '{"a": 1}'),
    ("raw", "VARBINARY(4)", "X'0001'", "BYTES", base64.b64encode(b"\0\1").decode()),
    ("words", "VARCHAR(9)", "'ü'", "STRING", "ü"),
]


@pytest.fixture(scope="module")
def server() -> Iterator[MariaDbServer]:
    with mariadb_server() as started, started.connect() as sql:
        kinds = ", ".join(f"{name} {kind}" for name, kind, *_ in COLUMNS)
        sql.run("CREATE DATABASE shop", "USE shop", "SET time_zone = '+00:00'", f"CREATE TABLE types ({kinds})")
        sql.run(f"INSERT INTO types VALUES ({', '.join(literal for _, _, literal, *_ in COLUMNS)})")
        sql.run("CREATE TABLE days (id INT PRIMARY KEY, d DATE, m DATETIME, s POINT)")
        sql.run("INSERT INTO days VALUES (1, '2024-02-29', '2024-02-29 12:00:00', ST_GeomFromText('POINT(1 2)'))")
        sql.run("CREATE TABLE keyless (v INT)", "CREATE TABLE hidden (id INT PRIMARY KEY)")
        sql.run("CREATE TABLE items (doc INT, line INT, v INT, secret TEXT, PRIMARY KEY (line, doc))")
        sql.run("INSERT INTO items VALUES (1, 1, 5, 'x'), (1, 2, 6, 'x')")
        yield started


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[EmbeddedEngine]:
    with open_engine(tmp_path, DUCKDB, sync="never") as opened:
        yield opened
        for name in list(opened.catalog.connectors):
            opened.execute(f"DROP CONNECTOR {name};", Session())


def connect(engine: EmbeddedEngine, server: MariaDbServer, **more: str) -> None:
    config = {
        **server.parameters("shop"), "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
        "topic.prefix": "m", "table.exclude.list": "shop.hidden", "column.exclude.list": ".*secret",
        **{name.replace("_", "."): value for name, value in more.items()},
    }  # fmt: skip
    settings = ", ".join(f"'{name}'='{value}'" for name, value in config.items())
    engine.execute(f"CREATE SOURCE CONNECTOR m WITH ({settings});", Session())


def rows(engine: EmbeddedEngine, query: str) -> list[list[Any]]:
    return sorted(list(row.values) for row in engine.query(query, Session()))


def test_each_type_is_one_whose_values_can_be_read(engine: EmbeddedEngine, server: MariaDbServer) -> None:
    connect(engine, server)
    engine.execute("CREATE TABLE types FROM CONNECTOR m TABLE 'shop.types';", Session())
    schema = {column.name: str(column.type) for column in engine.catalog.sources["TYPES"].schema.columns}
    assert list(schema.values()) == [kind for *_, kind, _ in COLUMNS]
    eventually(lambda: len(rows(engine, "SELECT * FROM types;")) == 1)
    (row,) = rows(engine, "SELECT * FROM types;")
    wanted = [value for *_, value in COLUMNS]
    assert [
        value if isinstance(want, Decimal) else _json(value) for value, want in zip(row, wanted, strict=True)
    ] == wanted


def _json(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def test_dates_structs_and_a_key_of_two_columns(engine: EmbeddedEngine, server: MariaDbServer) -> None:
    connect(engine, server)
    engine.execute("CREATE TABLE days FROM CONNECTOR m TABLE 'shop.days';", Session())
    engine.execute("CREATE TABLE items FROM CONNECTOR m TABLE 'shop.items';", Session())
    query = "SELECT CAST(d AS STRING), CAST(m AS STRING), s->`x` FROM days;"
    eventually(lambda: rows(engine, query) == [["2024-02-29", "2024-02-29T12:00:00.000", 1.0]])
    eventually(lambda: rows(engine, "SELECT doc, line, v FROM items;") == [[1, 1, 5], [1, 2, 6]])
    assert "SECRET" not in [column.name for column in engine.catalog.sources["ITEMS"].schema.columns]


@pytest.mark.parametrize(
    ("table", "message"),
    [("shop.typs", "no table shop.typs"), ("types", "no table types"), ("shop.hidden", "does not read the table"),
     ("shop.keyless", "has no primary key")],
)  # fmt: skip
def test_what_cannot_be_taken_over_is_refused(
    engine: EmbeddedEngine, server: MariaDbServer, table: str, message: str
) -> None:
    connect(engine, server)
    with pytest.raises(NoSourceTable, match=message) as caught:
        engine.execute(f"CREATE TABLE t FROM CONNECTOR m TABLE '{table}';", Session())
    if table == "shop.typs":
        assert "shop.types" in (caught.value.hint or "")
