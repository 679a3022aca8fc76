"""Tables that come, go and change their names while a connector runs, partitioned ones, and publications of others."""

from __future__ import annotations

from typing import Any

import pytest
from connectors import read_topic
from pg_runners import catch_up, opened_runner, runner, settings
from postgres_changes import table_of
from postgres_server import PostgresServer
from waiting import eventually, without_error

from millstream.executor.connect.connector_errors import ConnectorFailed, SystemUnavailable
from millstream.executor.connect.source_runner import SourceRunner
from millstream.logcore.log import Log

T = "CREATE TABLE t (id INT PRIMARY KEY, v INT)"


class Life:
    """A task that is opened anew, as the server does, when PostgreSQL does not let it begin yet."""

    def __init__(self, log: Log, config: dict[str, str]) -> None:
        self._log, self._config = log, config
        self._running: SourceRunner = runner(log, config)

    def catch_up(self) -> None:
        try:
            catch_up(self._running)
        except SystemUnavailable:
            self.restart()

    def restart(self, **changed: str) -> None:
        self._config.update({name.replace("_", "."): value for name, value in changed.items()})
        self.close()
        self._running = opened_runner(self._log, self._config)
        catch_up(self._running)

    def has(self, topic: str, rows: list[tuple[Any, ...]]) -> bool:
        self.catch_up()
        found = [tuple(row["after"].values()) for row in table_of(read_topic(self._log, topic)).values()]
        return sorted(found) == sorted(rows)

    def close(self) -> None:
        self._running.close()


@pytest.mark.parametrize("restarts", [False, True])
def test_a_table_that_takes_the_place_of_another_is_read(
    server: PostgresServer, sql: Any, log: Log, *, restarts: bool
) -> None:
    sql.execute(T)
    sql.execute("INSERT INTO t VALUES (1, 1), (2, 2)")
    life = Life(log, settings(server, sql, table_include_list="public.t"))
    life.catch_up()
    if restarts:
        life.close()  # the rows of the old table are still to be read when the new one is there
    with sql.transaction():
        sql.execute("INSERT INTO t VALUES (3, 3)")
        sql.execute("ALTER TABLE t RENAME TO old")
        sql.execute(T)
        sql.execute("INSERT INTO t VALUES (2, 20), (4, 40)")
    sql.execute("INSERT INTO old VALUES (5, 5)")
    if restarts:
        life.restart()
    eventually(lambda: life.has("pg.public.t", [(2, 20), (4, 40)]))
    sql.execute("UPDATE t SET v = 41 WHERE id = 4")
    eventually(lambda: life.has("pg.public.t", [(2, 20), (4, 41)]))
    sql.execute("DROP TABLE t")
    eventually(lambda: life.has("pg.public.t", []))
    sql.execute(T)
    sql.execute("INSERT INTO t VALUES (7, 7)")
    eventually(lambda: life.has("pg.public.t", [(7, 7)]))
    life.close()
    assert read_topic(log, "pg.public.old") == []


def test_a_new_table_that_the_settings_name_is_read(server: PostgresServer, sql: Any, log: Log) -> None:
    sql.execute(T)
    life = Life(log, settings(server, sql))
    life.catch_up()
    sql.execute("CREATE TABLE without (id INT)")
    life.catch_up()  # cannot be published, and stops nothing
    sql.execute("DROP TABLE without")
    sql.execute("CREATE TABLE later (id INT PRIMARY KEY)")
    sql.execute("INSERT INTO later VALUES (1), (2)")
    eventually(lambda: life.has("pg.public.later", [(1,), (2,)]))
    sql.execute("DELETE FROM later WHERE id = 2")
    sql.execute("INSERT INTO t VALUES (1, 1)")
    eventually(lambda: life.has("pg.public.later", [(1,)]) and life.has("pg.public.t", [(1, 1)]))
    life.close()


def test_a_table_that_is_not_named_any_more_is_not_read(server: PostgresServer, sql: Any, log: Log) -> None:
    sql.execute(T)
    sql.execute("CREATE TABLE other (id INT PRIMARY KEY)")
    life = Life(log, settings(server, sql, table_include_list="public.t,public.other"))
    life.catch_up()
    life.restart(table_include_list="public.t")
    sql.execute("INSERT INTO other VALUES (1)")
    eventually(lambda: life.has("pg.public.other", []))
    life.restart(table_include_list="public.t,public.other")
    eventually(lambda: life.has("pg.public.other", [(1,)]))
    life.close()
    running = runner(log, settings(server, sql, table_include_list="public.nothing"))
    with pytest.raises(ConnectorFailed, match="no table is named"):
        eventually(lambda: without_error(lambda: running.step(0.1), SystemUnavailable))
    running.close()


def test_a_publication_of_all_tables_gives_those_that_the_settings_name(
    server: PostgresServer, sql: Any, log: Log
) -> None:
    sql.execute("CREATE PUBLICATION everything FOR ALL TABLES")
    for name in ("t", "other"):
        sql.execute(f"CREATE TABLE {name} (id INT PRIMARY KEY)")
        sql.execute(f"INSERT INTO {name} VALUES (1)")
    life = Life(log, settings(server, sql, table_include_list="public.t", publication_name="everything"))
    life.catch_up()
    sql.execute("INSERT INTO other VALUES (2)")
    sql.execute("TRUNCATE other")
    sql.execute("INSERT INTO t VALUES (2)")
    eventually(lambda: life.has("pg.public.t", [(1,), (2,)]))
    life.close()
    assert read_topic(log, "pg.public.other") == []


@pytest.mark.parametrize("added", [False, True])
def test_a_partitioned_table_is_one_topic(server: PostgresServer, sql: Any, log: Log, *, added: bool) -> None:
    sql.execute("CREATE TABLE parts (id INT PRIMARY KEY, v INT) PARTITION BY RANGE (id)")
    sql.execute("CREATE TABLE low PARTITION OF parts FOR VALUES FROM (0) TO (10)")
    sql.execute("CREATE TABLE high PARTITION OF parts FOR VALUES FROM (10) TO (20)")
    sql.execute("INSERT INTO parts VALUES (1, 1), (11, 11)")
    sql.execute(T)
    life = Life(log, settings(server, sql, table_include_list="public.t" if added else "public.parts"))
    life.catch_up()
    if added:
        life.restart(table_include_list="public.t,public.parts")
    eventually(lambda: life.has("pg.public.parts", [(1, 1), (11, 11)]))
    sql.execute("UPDATE parts SET v = 2 WHERE id = 1")
    sql.execute("UPDATE parts SET id = 12 WHERE id = 1")
    sql.execute("DELETE FROM parts WHERE id = 11")
    eventually(lambda: life.has("pg.public.parts", [(12, 2)]))
    life.restart()
    sql.execute("TRUNCATE parts")
    eventually(lambda: life.has("pg.public.parts", []))
    life.close()
    assert {topic for topic in log.topics() if topic.startswith("pg.")} <= {"pg.public.parts", "pg.public.t"}
