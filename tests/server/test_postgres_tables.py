"""One statement brings a table of PostgreSQL in as a live table, and goes on when PostgreSQL is killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from postgres_server import postgres_server
from waiting import eventually

from millstream.server.engine.embedded import EmbeddedEngine, open_engine
from millstream.server.engine.session import Session

DUCKDB = {"millstream.executor": "duckdb", "auto.offset.reset": "earliest"}


def create(settings: dict[str, str]) -> str:
    more = {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector", "topic.prefix": "pg",
        "transforms": "unwrap,key", "transforms.key.type": "ExtractField$Key", "transforms.key.field": "id",
        "key.converter": "integer", "heartbeat.interval.ms": "200",
    }  # fmt: skip
    pairs = ", ".join(f"'{name}'='{value}'" for name, value in {**settings, **more}.items())
    return f"CREATE SOURCE CONNECTOR pg WITH ({pairs});"


def rows(engine: EmbeddedEngine, query: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values) for row in engine.query(query, Session()))


def test_a_table_of_postgres_is_a_live_table(tmp_path: Path) -> None:
    with postgres_server() as server, open_engine(tmp_path, DUCKDB, sync="never") as engine:
        with server.connect() as sql:
            sql.execute("CREATE TABLE orders (id INT PRIMARY KEY, customer TEXT, amount NUMERIC(10, 2))")
            sql.execute("INSERT INTO orders VALUES (1, 'ada', 10.50), (2, 'bob', 5), (3, 'ada', 1.25)")
            engine.execute(create(server.parameters()), Session())
            eventually(lambda: engine.log.topic("pg.public.orders") is not None, otherwise="the topic")
            declared = """
                CREATE TABLE orders (id INT PRIMARY KEY, customer STRING, amount DECIMAL(10, 2))
                    WITH (kafka_topic='pg.public.orders', value_format='JSON');
                CREATE TABLE spent AS
                    SELECT customer, SUM(amount) AS total, COUNT(*) AS n FROM orders GROUP BY customer;
            """
            engine.execute(declared, Session())
            eventually(lambda: len(rows(engine, "SELECT * FROM spent;")) == 2, otherwise="the aggregate")
            sql.execute("UPDATE orders SET customer = 'bob', amount = 2 WHERE id = 1")
            sql.execute("DELETE FROM orders WHERE id = 2")
        server.stop()  # as a crash
        eventually(lambda: engine.connectors.status("PG").tasks[0].error is not None, otherwise="the error")
        server.start()
        with server.connect() as sql:
            sql.execute("INSERT INTO orders VALUES (4, 'eve', 99.99)")
            query = "SELECT id, customer, amount FROM orders"
            expected = sorted(sql.execute(query).fetchall())
        eventually(lambda: rows(engine, f"{query};") == expected, otherwise="the same rows")
        status = engine.connectors.status("PG").tasks[0]
        assert (status.state, status.restarts > 0) == ("RUNNING", True)
        totals = "SELECT customer, total, n FROM spent;"
        eventually(
            lambda: [row[0] for row in rows(engine, totals) if row[2]] == ["ada", "bob", "eve"],
            otherwise="the groups",
        )
        assert [str(row[1]) for row in rows(engine, totals)] == ["1.25", "2.00", "99.99"]
        engine.execute("DROP CONNECTOR pg;", Session())
        with server.connect() as sql:
            assert sql.execute("SELECT FROM pg_replication_slots").rowcount == 0
