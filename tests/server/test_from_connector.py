"""CREATE STREAM|TABLE … FROM CONNECTOR: columns, key and types come from PostgreSQL, and its rows can be read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from postgres_server import PostgresServer, postgres_server
from waiting import eventually

from millstream.errors import InvalidProperty, SourceExists, StatementError
from millstream.server.engine.embedded import EmbeddedEngine, open_engine
from millstream.server.engine.session import Session
from millstream.server.handlers.connectors import UnknownConnector
from millstream.server.handlers.from_connector import NoSourceTable

DUCKDB = {"millstream.executor": "duckdb", "auto.offset.reset": "earliest"}
TYPES = """
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE TABLE types (
    id BIGINT PRIMARY KEY, "group" INT, small SMALLINT, yes BOOLEAN, half REAL, whole DOUBLE PRECISION,
    exact NUMERIC(12, 3), loose NUMERIC, cash MONEY, words TEXT, short VARCHAR(5), pad CHAR(3), u UUID, doc JSONB,
    raw BYTEA,
    day DATE, clock TIME, moment TIMESTAMP, at_ms TIMESTAMP(3), zoned TIMESTAMPTZ, span INTERVAL, flag BIT(1),
    bits BIT VARYING,
    spot POINT, numbers INT[], texts TEXT[], feeling mood, "Mixed Case" INT, valid_to DATE, grid INT[][]
);
INSERT INTO types VALUES (
    1, 2, 3, true, 0.5, 1.25, 123.456, 12345678901234567890.123456789, 9.99, 'ü', 'abc', 'x',
    '0b0a2b3c-0000-4000-8000-000000000001', '{"a": [1]}', '\\x0001',  '2024-02-03', '01:02:03',
    '2024-02-03 04:05:06.789012', '2024-02-03 04:05:06.789', '2024-02-03 04:05:06+02', '1 day', B'1', B'101', '(1,2)',
    '{1,NULL}', '{a,"b c"}', 'ok', 7, 'infinity', '{{1,2},{3,4}}'
);
CREATE TABLE nothing (v INT);
ALTER TABLE nothing REPLICA IDENTITY FULL;
CREATE TABLE lines (doc INT, line INT, words TEXT, PRIMARY KEY (line, doc));
INSERT INTO lines VALUES (1, 1, 'a'), (1, 2, 'b');
CREATE TABLE orders (id INT PRIMARY KEY, item TEXT, price NUMERIC(10, 2));
INSERT INTO orders VALUES (1, 'a', 1.50), (2, 'b', NULL);
CREATE SCHEMA other;
CREATE TABLE other.hidden (id INT PRIMARY KEY);
"""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as started:
        with started.connect() as sql:
            sql.execute(TYPES)
        yield started


@pytest.fixture
def engine(tmp_path: Path, server: PostgresServer) -> Iterator[EmbeddedEngine]:
    with open_engine(tmp_path, DUCKDB, sync="never") as opened:
        yield opened
        for name in list(opened.catalog.connectors):
            run(opened, f"DROP CONNECTOR {name};")


def run(engine: EmbeddedEngine, text: str) -> list[dict[str, Any]]:
    return [entity.as_json() for entity in engine.execute(text, Session())]


def rows(engine: EmbeddedEngine, query: str) -> list[list[Any]]:
    return sorted(list(row.values) for row in engine.query(query, Session()))


def connect(engine: EmbeddedEngine, server: PostgresServer, **more: str) -> None:
    config = {
        **server.parameters(), "connector.class": "postgres", "topic.prefix": "pg",
        "table.exclude.list": r"other\..*", **{name.replace("_", "."): v for name, v in more.items()},
    }  # fmt: skip
    settings = ", ".join(f"'{name}'='{value}'" for name, value in config.items())
    run(engine, f"CREATE SOURCE CONNECTOR pg WITH ({settings});")


def columns(engine: EmbeddedEngine, name: str) -> dict[str, str]:
    source = engine.catalog.sources[name]
    return {column.name: str(column.type) for column in source.schema.columns}


def test_a_table_has_the_columns_the_key_and_the_rows_of_the_source(
    engine: EmbeddedEngine, server: PostgresServer
) -> None:
    connect(engine, server)
    (created,) = run(engine, "CREATE TABLE orders FROM CONNECTOR pg TABLE 'public.orders';")
    assert created["commandStatus"]["message"] == "Table created"
    assert created["statementText"].startswith("CREATE TABLE ORDERS (ID INTEGER PRIMARY KEY, ITEM STRING")
    query = "SELECT id, item, price FROM orders;"
    eventually(lambda: len(rows(engine, query)) == 2)
    assert [[row[0], row[1], str(row[2])] for row in rows(engine, query)] == [[1, "a", "1.50"], [2, "b", "None"]]
    with server.connect() as sql:
        sql.execute("UPDATE orders SET item = 'A' WHERE id = 1; DELETE FROM orders WHERE id = 2")
    eventually(lambda: [row[1] for row in rows(engine, query)] == ["A"])
    with server.connect() as sql:
        sql.execute("UPDATE orders SET item = 'a' WHERE id = 1; INSERT INTO orders VALUES (2, 'b', NULL)")
    run(engine, "CREATE TABLE IF NOT EXISTS orders FROM CONNECTOR pg TABLE 'no such table';")
    run(engine, "CREATE OR REPLACE TABLE orders FROM CONNECTOR pg TABLE 'orders';")
    with pytest.raises(SourceExists, match="already exists") as caught:
        run(engine, "CREATE TABLE orders FROM CONNECTOR pg TABLE 'orders';")
    assert caught.value.span is not None and caught.value.span.start == 0


def test_each_type_is_one_whose_values_can_be_read(engine: EmbeddedEngine, server: PostgresServer) -> None:
    connect(engine, server)
    run(engine, "CREATE TABLE types FROM CONNECTOR pg TABLE 'types';")
    query = "SELECT * FROM types;"
    eventually(lambda: len(rows(engine, query)) == 1)
    (row,) = rows(engine, query)
    named = dict(zip((c.name for c in engine.catalog.sources["TYPES"].schema.columns), row, strict=True))
    assert [name for name, value in named.items() if value is None] == []
    seen = {name: str(value) for name, value in named.items()}
    assert (seen["EXACT"], seen["LOOSE"], seen["CASH"]) == ("123.456", "12345678901234567890.123456789", "9.99")
    assert (named["GROUP"], named["SMALL"], named["YES"], named["HALF"], named["Mixed Case"]) == (2, 3, True, 0.5, 7)
    assert (named["MOMENT"], seen["ZONED"]) == (1706933106789012, "2024-02-03T02:05:06Z")
    assert (seen["FEELING"], named["NUMBERS"], named["TEXTS"]) == ("ok", [1, None], ["a", "b c"])
    assert named["GRID"] == [[1, 2], [3, 4]]
    assert columns(engine, "TYPES")["DAY"] == "DATE" and columns(engine, "TYPES")["AT_MS"] == "TIMESTAMP"


@pytest.mark.parametrize(
    ("more", "types"),
    [({"decimal_handling_mode": "double", "time_precision_mode": "connect"},
      {"EXACT": "DOUBLE", "LOOSE": "DOUBLE", "CLOCK": "TIME", "MOMENT": "TIMESTAMP"}),
     ({"decimal_handling_mode": "string", "time_precision_mode": "isostring"},
      {"EXACT": "STRING", "CASH": "STRING", "DAY": "STRING", "CLOCK": "STRING", "MOMENT": "STRING"})],
)  # fmt: skip
def test_the_modes_of_the_connector_change_the_types(
    engine: EmbeddedEngine, server: PostgresServer, more: dict[str, str], types: dict[str, str]
) -> None:
    connect(engine, server, **more)
    run(engine, "CREATE TABLE types FROM CONNECTOR pg TABLE 'types';")
    assert types.items() <= columns(engine, "TYPES").items()
    eventually(lambda: len(rows(engine, "SELECT id FROM types WHERE moment IS NOT NULL AND exact IS NOT NULL;")) == 1)


def test_a_key_of_several_columns_and_a_stream(engine: EmbeddedEngine, server: PostgresServer) -> None:
    connect(engine, server)
    for kind, name, table in (("TABLE", "lines", "lines"), ("STREAM", "changes", "lines"), ("STREAM", "k", "nothing")):
        run(engine, f"CREATE {kind} {name} FROM CONNECTOR pg TABLE '{table}';")
    expected = [["1", "1", "a"], ["1", "2", "b"]]
    eventually(lambda: len(rows(engine, "SELECT doc FROM lines;")) == 2)
    for source in ("lines", "changes"):
        found = rows(engine, f"SELECT doc, line, words FROM {source};")
        assert [list(map(str, row)) for row in found] == expected


def test_unwrapped_rows_with_a_plain_key_are_read_too(engine: EmbeddedEngine, server: PostgresServer) -> None:
    connect(engine, server, transforms="unwrap,key", transforms_key_type="ExtractField$Key", transforms_key_field="id",
            key_converter="integer", table_include_list=r"public\.orders")  # fmt: skip
    run(engine, "CREATE TABLE orders FROM CONNECTOR pg TABLE 'orders';")
    eventually(lambda: [row[1] for row in rows(engine, "SELECT id, item FROM orders;")] == ["a", "b"])


@pytest.mark.parametrize(
    ("sql", "error", "message"),
    [
        ("CREATE TABLE t FROM CONNECTOR nope TABLE 'orders';", UnknownConnector, "Connector NOPE does not exist"),
        ("CREATE TABLE t FROM CONNECTOR pg TABLE 'public.order';", NoSourceTable, "no table public.order in"),
        ("CREATE TABLE t FROM CONNECTOR pg TABLE 'other.hidden';", NoSourceTable, "does not read the table"),
        ("CREATE TABLE t FROM CONNECTOR pg TABLE 'nothing';", NoSourceTable, "nothing has no primary key"),
        ("CREATE TABLE t FROM CONNECTOR gen TABLE 'orders';", NoSourceTable, "GEN has no tables"),
        ("CREATE TABLE t FROM CONNECTOR out TABLE 'orders';", NoSourceTable, "OUT is a sink"),
        ("CREATE TABLE t FROM CONNECTOR pg TABLE 'orders' WITH (format='JSON');", InvalidProperty, "FORMAT comes from"),
        ("CREATE TABLE t FROM CONNECTOR routed TABLE 'orders';", NoSourceTable, r"transforms \(RegexRouter\)"),
        ("CREATE TABLE t FROM CONNECTOR gone TABLE 'orders';", NoSourceTable, "PostgreSQL does not answer"),
    ],
)  # fmt: skip
def test_what_cannot_be_taken_over_is_refused(
    engine: EmbeddedEngine, server: PostgresServer, sql: str, error: type[StatementError], message: str
) -> None:
    connect(engine, server)
    common = ", ".join(f"'{name}'='{value}'" for name, value in server.parameters().items() if name != "database.port")
    run(
        engine,
        f"""CREATE SOURCE CONNECTOR gen WITH ('connector.class'='datagen', 'quickstart'='users', 'kafka.topic'='u',
                'iterations'=1);
            CREATE SINK CONNECTOR out WITH ('connector.class'='http', 'http.api.url'='http://127.0.0.1:1',
                'topics'='u');
            CREATE SOURCE CONNECTOR routed WITH ('connector.class'='postgres', {common}, 'topic.prefix'='r',
                'database.port'='{server.port}', 'transforms'='r', 'transforms.r.type'='RegexRouter',
                'transforms.r.regex'='.*', 'transforms.r.replacement'='x', 'table.include.list'='public.orders');
            CREATE SOURCE CONNECTOR gone WITH ('connector.class'='postgres', {common}, 'topic.prefix'='g',
                'database.port'='1');""",
    )
    with pytest.raises(error, match=message) as caught:
        run(engine, sql)
    assert caught.value.span is not None
    if "public.order'" in sql:
        assert "public.orders" in (caught.value.hint or "")
