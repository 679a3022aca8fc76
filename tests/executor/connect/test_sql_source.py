"""Rows of SQLite, DuckDB and PostgreSQL by polling: each row, or each version of it, is in the topic once."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
import sqlalchemy as sa
from postgres_server import PostgresServer, postgres_server

from bench.apache_kafka import free_ports
from millstream.executor.connect.connector import TaskInfo
from millstream.executor.connect.connector_errors import ConnectorFailed, InvalidConnector, SystemUnavailable
from millstream.executor.connect.connector_settings import read_settings
from millstream.executor.connect.sinks.sql_sink import SqlSinkSettings
from millstream.executor.connect.sources.far_times import FarTime
from millstream.executor.connect.sources.sql_settings import SqlSourceSettings
from millstream.executor.connect.sources.sql_source import SqlSource
from millstream.executor.connect.sources.sql_values import json_value
from millstream.executor.connect.task_clock import VirtualClock
from millstream.testing import ConnectorSandbox

START_MS = 1_750_000_000_000
POINTS = ("after_read", "after_records", "after_position", "after_commit", "after_acknowledge")


class Database:
    """A connection of a test's own, closed between two statements: DuckDB has one at a time."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.engine = sa.create_engine(url, poolclass=sa.NullPool)

    def run(self, *statements: str) -> None:
        with self.engine.begin() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as started:
        yield started


@pytest.fixture(params=["sqlite", "duckdb", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    if request.param != "postgresql":
        if request.param == "duckdb":
            pytest.importorskip("duckdb_engine")
        yield Database(f"{request.param}:///{tmp_path}/shop.db")
        return
    server: PostgresServer = request.getfixturevalue("server")
    yield Database(server.url())
    with server.connect() as admin:
        admin.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")


def orders(database: Database, count: int, start: int = 1, second: str = "01:02:03") -> None:
    rows = ", ".join(f"({n}, 'item {n}', '2024-05-06 {second}')" for n in range(start, start + count))
    database.run(
        "CREATE TABLE IF NOT EXISTS orders (id BIGINT NOT NULL, item TEXT, changed TIMESTAMP)",
        f"INSERT INTO orders VALUES {rows}",
    )


def settings(database: Database, mode: str, **more: str) -> dict[str, str]:
    columns = {"incrementing.column.name": "id"} if "incrementing" in mode else {}
    if "timestamp" in mode:
        columns["timestamp.column.name"] = "changed"
    config = {"connection.url": database.url, "mode": mode, "topic.prefix": "shop_", "table.whitelist": "orders",
              "batch.max.rows": "10", **columns}  # fmt: skip
    return {**config, **{name.replace("_", "."): value for name, value in more.items()}}


def sandbox(database: Database, mode: str, **more: str) -> ConnectorSandbox:
    return ConnectorSandbox(SqlSource, settings(database, mode, **more), now_ms=START_MS)


def ids(box: ConnectorSandbox, topic: str = "shop_orders") -> list[int]:
    return [record.value["id"] for record in box.records(topic)]


@pytest.mark.parametrize("mode", ["incrementing", "timestamp", "timestamp+incrementing", "bulk"])
def test_each_row_comes_once_and_later_ones_with_the_next_look(database: Database, mode: str) -> None:
    orders(database, 35)
    with sandbox(database, mode, key_field="ID", key_converter="long") as box:
        box.run()
        assert sorted(ids(box)) == list(range(1, 36))
        first = box.records("shop_orders")[0]
        assert (first.key, first.value["item"]) == (first.value["id"], f"item {first.value['id']}")
        box.restart()
        orders(database, 12, 36, "01:02:04")
        box.run()
        if mode == "bulk":
            assert len(ids(box)) == 35
            box.clock.advance(5000)
            box.run()
            assert sorted(ids(box)[35:]) == list(range(1, 48))
            return
        assert sorted(ids(box)) == list(range(1, 48))
        orders(database, 1, 48, "01:02:05")
        box.run()
        assert len(ids(box)) == 47
        box.clock.advance(5000)
        box.run()
        assert ids(box)[-1] == 48


DEATHS = [
    *(("incrementing", point, 2) for point in POINTS),
    *(("timestamp", point, 2) for point in POINTS[1:4]),
    ("timestamp+incrementing", "after_commit", 2),
    ("timestamp+incrementing", "after_position", 1),
    ("bulk", "after_records", 2),
    ("bulk", "after_commit", 1),
]


@pytest.mark.parametrize(("mode", "point", "nth"), DEATHS)
def test_a_task_that_dies_anywhere_loses_and_repeats_nothing(tmp_path: Path, mode: str, point: str, nth: int) -> None:
    database = Database(f"sqlite:///{tmp_path}/shop.db")
    orders(database, 13)
    orders(database, 12, 14, "01:02:04")
    with sandbox(database, mode, poll_interval_ms="60000") as box:
        box.kill_at(point, nth)
        box.run()
        assert box.deaths == 1
        assert sorted(ids(box)) == list(range(1, 26))


@pytest.mark.parametrize(
    ("before", "after", "read"),
    [
        ("incrementing", "timestamp", False),
        ("incrementing", "timestamp+incrementing", False),
        ("timestamp+incrementing", "timestamp", True),
        ("timestamp+incrementing", "incrementing", True),
        ("bulk", "incrementing", False),
    ],
)
def test_another_mode_goes_on_where_the_position_says_enough(
    tmp_path: Path, before: str, after: str, read: bool
) -> None:
    database = Database(f"sqlite:///{tmp_path}/shop.db")
    orders(database, 3)
    with sandbox(database, before) as box:
        box.run()
        position = box.position
    source = SqlSource(read_settings(SqlSourceSettings, settings(database, after)), TaskInfo("s", clock=VirtualClock()))
    chunk = source.read(position, 0)
    source.close()
    assert (chunk is None) is read


def test_rows_of_one_time_are_one_transaction_however_many_they_are(database: Database) -> None:
    orders(database, 45)
    with sandbox(database, "timestamp") as box:
        box.kill_at("after_records", 3)
        box.run()
        assert box.deaths == 1
        assert sorted(ids(box)) == list(range(1, 46))


def test_a_changed_row_comes_again(database: Database) -> None:
    orders(database, 3)
    with sandbox(database, "timestamp+incrementing", poll_interval_ms="0") as box:
        box.run()
        database.run("UPDATE orders SET item = 'other', changed = '2024-05-07 00:00:00' WHERE id = 2")
        box.run()
        assert [record.value["item"] for record in box.records("shop_orders")] == [
            "item 1", "item 2", "item 3", "other"]  # fmt: skip


def test_rows_that_are_younger_than_the_delay_wait(database: Database) -> None:
    orders(database, 1)
    now = "CURRENT_TIMESTAMP" if "duckdb" not in database.url else "CAST(CURRENT_TIMESTAMP AS TIMESTAMP)"
    database.run(f"INSERT INTO orders VALUES (2, 'now', {now})")
    with sandbox(database, "timestamp", timestamp_delay_interval_ms="3600000") as box:
        box.run()
        assert ids(box) == [1]


def test_a_query_is_read_as_a_table_and_all_tables_without_a_list(database: Database) -> None:
    orders(database, 4)
    database.run("CREATE TABLE users (id INT NOT NULL)", "INSERT INTO users VALUES (7)")
    query = "SELECT o.id, '50%:x ' || item AS what FROM orders o WHERE item <> 'item 2';"
    with sandbox(database, "incrementing", query=query, table_whitelist="", topic_prefix="asked") as box:
        box.run()
        assert [record.value for record in box.records("asked")] == [
            {"id": n, "what": f"50%:x item {n}"} for n in (1, 3, 4)]  # fmt: skip
    with sandbox(database, "incrementing", table_whitelist="") as box:
        box.run()
        assert (ids(box), ids(box, "shop_users")) == ([1, 2, 3, 4], [7])
        assert box.position == {"tables": {"orders": {"number": 4}, "users": {"number": 7}}}
    with sandbox(database, "incrementing", table_whitelist="", table_blacklist="orders") as box:
        box.run()
        assert (ids(box), ids(box, "shop_users")) == ([], [7])


@pytest.mark.parametrize(
    ("insert", "mode", "says"),
    [
        ("(1, 'a', NULL)", "timestamp", "orders has a row with NULL in changed, which would never be read"),
        ("(1, 'a', NULL)", "timestamp+incrementing", "NULL in changed and id"),
    ],
)
def test_a_row_that_would_never_be_read_stops_the_task(database: Database, insert: str, mode: str, says: str) -> None:
    orders(database, 2)
    database.run(f"INSERT INTO orders VALUES {insert}")
    with sandbox(database, mode) as box, pytest.raises(ConnectorFailed, match=says):
        box.run()
    with sandbox(database, mode, validate_non_null="false") as box:
        box.run()
        assert ids(box) == [1, 2]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"incrementing_column_name": "item"}, "type str, which is no whole number"),
        ({"incrementing_column_name": "nr"}, "(no such column|nr.* does not exist|not found)"),
        ({"table_whitelist": "elsewhere"}, "elsewhere"),
        ({"key_field": "nr"}, "key.field is nr, but the rows of shop_orders have no such column"),
    ],
)
def test_what_somebody_has_to_change_fails_the_task(database: Database, more: dict[str, str], says: str) -> None:
    orders(database, 2)
    with sandbox(database, "incrementing", **more) as box, pytest.raises(ConnectorFailed, match=says):
        box.run()


def test_times_of_sqlite_that_do_not_sort_are_refused(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path}/shop.db")
    database.run("CREATE TABLE orders (id INT, changed)", "INSERT INTO orders VALUES (1, 17)")
    with sandbox(database, "timestamp") as box, pytest.raises(ConnectorFailed, match="type int, which is no time"):
        box.run()
    database.run("UPDATE orders SET changed = CAST(x'31ff' AS TEXT)")
    with sandbox(database, "timestamp") as box, pytest.raises(ConnectorFailed, match="Could not decode to UTF-8"):
        box.run()


def test_a_database_that_is_not_there_is_waited_for(tmp_path: Path) -> None:
    missing = Database(f"sqlite:///{tmp_path}/not yet.db")
    with sandbox(missing, "bulk") as box, pytest.raises(SystemUnavailable, match="there is no file"):
        box.run()
    assert not (tmp_path / "not yet.db").exists()
    away = Database(f"postgresql+psycopg://ana@127.0.0.1:{free_ports(1)[0]}/shop")
    with sandbox(away, "bulk", connection_password="hunter2") as box:
        with pytest.raises(SystemUnavailable, match="does not answer") as caught:
            box.run()
        assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"connection.url": "nonsense"}, "connection.url"),
        ({"connection.url": "sqlite://shop.db"}, "connection.url"),
        ({"connection.url": "postgresql://h:port/d"}, "connection.url"),
        ({"mode": "incrementing"}, "incrementing.column.name"),
        ({"mode": "timestamp+incrementing", "incrementing.column.name": "id"}, "timestamp.column.name"),
        ({"mode": "often"}, "mode"),
        ({"query": "SELECT 1", "table.whitelist": "t"}, "query"),
        ({"query": " "}, "query"),
        ({"batch.max.rows": "0"}, "batch.max.rows"),
        ({"poll.interval.ms": "-1"}, "poll.interval.ms"),
    ],
)
def test_an_error_points_at_its_property(changed: dict[str, str], name: str) -> None:
    config = {"connection.url": "sqlite:////tmp/x.db", "mode": "bulk", "topic.prefix": "p", **changed}
    with pytest.raises(InvalidConnector) as caught:
        read_settings(SqlSourceSettings, config)
    assert caught.value.setting == name


def test_the_sink_says_at_the_property_what_a_path_of_sqlite_looks_like() -> None:
    with pytest.raises(InvalidConnector, match=r"sqlite:////absolute/path\.db") as caught:
        read_settings(SqlSinkSettings, {"connection.url": "sqlite://secret:word@shop.db", "pk.fields": "id"})
    assert caught.value.setting == "connection.url"
    assert "word" not in str(caught.value)


def test_values_keep_what_they_have(server: PostgresServer) -> None:
    database = Database(server.url())
    database.run(
        "CREATE TABLE wide (id INT, n NUMERIC(40, 2), d DATE, t TIMESTAMPTZ, h TIME, b BYTEA, f FLOAT8, x NUMERIC, "
        "j JSONB, a INT[], u UUID, l BIGINT, i INTERVAL)",
        "INSERT INTO wide VALUES (1, 12345678901234567890123456789012345678.90, '1970-01-02', "
        "'2024-05-06 07:08:09.123456+02', "
        """'00:00:01', '\\x00ff', 'NaN', '-Infinity', '{"k": [1]}', '{1,NULL}', """
        """'00000000-0000-0000-0000-00000000000a', """
        "9223372036854775807, '1 second')",
    )  # fmt: skip
    with sandbox(database, "bulk", table_whitelist="public.wide") as box:
        box.run()
        (record,) = box.records("shop_wide")
    assert record.value == {
        "id": 1, "n": Decimal("12345678901234567890123456789012345678.90"), "d": 1, "t": 1714972089123, "h": 1000,
        "b": "AP8=", "f": "NaN", "x": "-Infinity", "j": {"k": [1]}, "a": [1, None],
        "u": "00000000-0000-0000-0000-00000000000a", "l": 2**63 - 1, "i": 1_000_000,
    }  # fmt: skip
    with server.connect() as admin:
        admin.execute("DROP TABLE wide")


def test_what_pythons_times_do_not_hold_is_read(server: PostgresServer) -> None:
    database = Database(server.url())
    far = ["infinity", "-infinity", "12000-01-01", "0044-03-15 BC", "2024-02-29"]
    rows = ", ".join(f"({n}, '{at}', '{at}', '{at}'::timestamp AT TIME ZONE 'UTC')" for n, at in enumerate(far))
    database.run(
        "CREATE TABLE far (id INT, d DATE, t TIMESTAMP, z TIMESTAMPTZ, h TIME, j JSON)",
        f"INSERT INTO far (id, d, t, z) VALUES {rows}",
        """INSERT INTO far (id, h, j) VALUES (9, '24:00', '{"n": 0.12345678901234567890}')""",
        "ALTER DATABASE postgres SET timezone = 'Asia/Kolkata'",
    )
    with sandbox(database, "bulk", table_whitelist="far") as box:
        box.run()
        found = {record.value["id"]: record.value for record in box.records("shop_far")}
    database.run("ALTER DATABASE postgres RESET timezone", "DROP TABLE far")
    assert [(row["d"], row["t"], row["z"]) for row in list(found.values())[:5]] == [
        (2**31 - 1, 9223372036825200, 9223372036825200),
        (-(2**31), -9223372036832400, -9223372036832400),
        (3663382, 316516204800000, 316516204800000),
        (-735160, -63517824000000, -63517824000000),
        (19782, 1709164800000, 1709164800000),
    ]
    assert (found[9]["h"], found[9]["j"]) == (86_400_000, {"n": Decimal("0.12345678901234567890")})
    assert json_value(FarTime("timestamptz", "infinity"), "micros_long") == 9223372036825200000
    assert json_value(FarTime("timestamp", "12000-01-01 00:00:00"), "micros_string") == "12000-01-01T00:00:00"


def test_times_have_the_granularity_that_is_wanted() -> None:
    moment = datetime.datetime(2024, 5, 6, 7, 8, 9, 123456)
    assert json_value(moment) == 1714979289123
    assert json_value(moment, "micros_long") == 1714979289123456
    assert json_value(moment, "micros_string") == "2024-05-06T07:08:09.123456"
    assert json_value(datetime.time(0, 0, 1, 5), "micros_string") == "00:00:01.000005"
    assert json_value(2**100) == Decimal(2**100)
