"""An engine that starts again has the catalog it had, and its queries go on."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest
from waiting import eventually

from millstream.errors import InvalidStatement
from millstream.logcore.client import FetchedRows
from millstream.logcore.errors import InvalidTopic
from millstream.server.catalog.upgrades import with_kept_state
from millstream.server.engine.embedded import EmbeddedEngine, open_engine
from millstream.server.engine.session import Session

from ..logcore.log_records import rows

STATEMENTS = """
CREATE TYPE money AS DECIMAL(10, 2);
CREATE STREAM s (id INT KEY, v INT, m money) WITH (kafka_topic='s', value_format='JSON', partitions=2);
CREATE STREAM gone (id INT KEY, v INT) WITH (kafka_topic='gone', value_format='JSON', partitions=1);
CREATE STREAM c AS SELECT id, v FROM s WHERE v > 0;
CREATE TABLE n AS SELECT id, COUNT(*) AS c FROM s GROUP BY id;
INSERT INTO c SELECT id, v FROM gone;
TERMINATE INSERTQUERY_5;
DROP STREAM gone DELETE TOPIC;
PAUSE CTAS_N_4;
"""
EARLIEST = {"auto.offset.reset": "earliest", "millstream.executor": "duckdb"}


def _values(engine: EmbeddedEngine, topic: str) -> list[bytes]:
    found: list[bytes] = []
    for partition in range(engine.log.topics()[topic].partition_count):
        for run in engine.log.fetch(topic, partition, 0).runs:
            assert isinstance(run, FetchedRows)
            found += run.table["value"].to_pylist()
    return found


def _wait_for(engine: EmbeddedEngine, topic: str, count: int) -> list[bytes]:
    eventually(lambda: len(_values(engine, topic)) >= count)
    return _values(engine, topic)


def test_a_restarted_engine_has_the_same_catalog_and_plans(tmp_path: Path) -> None:
    with open_engine(tmp_path, EARLIEST, sync="never") as engine:
        engine.execute(STATEMENTS, Session())
        before = engine.catalog
    with open_engine(tmp_path, EARLIEST, sync="never") as engine:
        after = engine.catalog
        assert dict(after.sources) == dict(before.sources)
        assert dict(after.queries) == dict(before.queries)
        assert dict(after.types) == dict(before.types)
        assert after.queries["CTAS_N_4"].paused
        assert "gone" not in engine.log.topics()


def test_a_query_goes_on_after_a_restart_and_loses_and_doubles_nothing(tmp_path: Path) -> None:
    session = Session()
    with open_engine(tmp_path, EARLIEST, sync="never") as engine:
        engine.execute(STATEMENTS, session)
        engine.execute("INSERT INTO s (id, v) VALUES (1, 1); INSERT INTO s (id, v) VALUES (2, 2);", session)
        assert len(_wait_for(engine, "C", 2)) == 2
    with open_engine(tmp_path, EARLIEST, sync="never") as engine:
        engine.execute("INSERT INTO s (id, v) VALUES (3, 3); INSERT INTO s (id, v) VALUES (4, 0);", session)
        assert sorted(_wait_for(engine, "C", 3)) == [b'{"V":1}', b'{"V":2}', b'{"V":3}']


@pytest.mark.parametrize(
    "statement",
    [
        'CREATE STREAM "größe" AS SELECT id, v FROM s;',
        "CREATE STREAM big WITH (partitions=10001) AS SELECT id, v FROM s;",
        "CREATE STREAM bad (id INT KEY) WITH (kafka_topic='a/b', value_format='JSON', partitions=1);",
    ],
)
def test_a_topic_that_cannot_be_leaves_nothing_behind_and_the_engine_starts_again(
    tmp_path: Path, statement: str
) -> None:
    with open_engine(tmp_path, EARLIEST, sync="never") as engine:
        engine.execute(STATEMENTS, Session())
        before = engine.catalog
        with pytest.raises(InvalidTopic):
            engine.execute(statement, Session())
        assert engine.catalog == before
        engine.execute("SHOW QUERIES;", Session())
    with open_engine(tmp_path, EARLIEST, sync="never") as engine:
        assert dict(engine.catalog.queries) == dict(before.queries)


REPLACED = """
CREATE TABLE t (id INT PRIMARY KEY, v INT) WITH (kafka_topic='t', value_format='JSON', partitions=1);
CREATE TABLE few AS SELECT * FROM t;
"""


def _replace(engine: EmbeddedEngine, condition: str, *values: int) -> None:
    session = Session()
    engine.execute(f"CREATE OR REPLACE TABLE few AS SELECT * FROM t {condition};", session)
    for value in values:
        engine.execute(f"INSERT INTO t (id, v) VALUES (1, {value});", session)


def test_the_filter_of_a_copied_table_comes_changes_and_goes_also_over_restarts(tmp_path: Path) -> None:
    with open_engine(tmp_path, EARLIEST, sync="never") as engine:
        engine.execute(REPLACED + "INSERT INTO t (id, v) VALUES (1, 50);", Session())
        assert _wait_for(engine, "FEW", 1) == [b'{"V":50}']
        _replace(engine, "WHERE v < 10", 5, 60)
        assert _wait_for(engine, "FEW", 3)[1:] == [b'{"V":5}', None]
    with open_engine(tmp_path, EARLIEST, sync="never") as engine:
        _replace(engine, "WHERE v > 10", 70, 7)
        assert _wait_for(engine, "FEW", 5)[3:] == [b'{"V":70}', None]
        _replace(engine, "", 8)
        assert _wait_for(engine, "FEW", 6)[5:] == [b'{"V":8}']
    with open_engine(tmp_path, EARLIEST, sync="never") as engine:
        engine.execute("INSERT INTO t (id, v) VALUES (1, 9);", Session())
        assert _wait_for(engine, "FEW", 7)[6:] == [b'{"V":9}']
        _replace(engine, "WHERE v < 10", 6, 11)
        assert _wait_for(engine, "FEW", 9)[7:] == [b'{"V":6}', None]


WIDE = """
CREATE TABLE w (id INT PRIMARY KEY, g STRING, d STRING, e INT)
  WITH (kafka_topic='w', value_format='JSON', partitions=1);
CREATE TABLE per AS SELECT g, COUNT(*) AS n FROM w GROUP BY g;
CREATE TABLE narrow AS SELECT id, g FROM w WHERE g <> 'no';
CREATE TABLE copied AS SELECT id, g FROM w;
"""


def _begin_wide(engine: EmbeddedEngine, session: Session) -> None:
    engine.execute(WIDE + "INSERT INTO w VALUES (1, 'x', 'z', 1); INSERT INTO w VALUES (2, 'x', 'z', 2);", session)
    assert _wait_for(engine, "PER", 2) == [b'{"N":1}', b'{"N":2}']
    assert _wait_for(engine, "NARROW", 2) == [b'{"G":"x"}'] * 2


@pytest.mark.parametrize(
    ("replacement", "problem"),
    [
        ("SELECT id, g FROM w WHERE g <> 'y'", None),
        ("SELECT id, g, g + '!' AS more FROM w WHERE g <> 'y'", None),
        ("SELECT id, g FROM w", None),  # keeps no rows
        ("SELECT id, g, d FROM w WHERE g <> 'no'", None),  # in a new store
        ("SELECT id, g, f FROM w WHERE g <> 'no'", "it would keep other columns of a table's rows"),
        ("SELECT id, g FROM w WHERE d = 'z'", None),  # in a new store
    ],
)
def test_where_the_log_does_not_name_the_columns_of_a_state_they_stay_the_same(
    tmp_path: Path, replacement: str, problem: str | None
) -> None:
    plans = []
    for folder, query in (("old", "SELECT id, g FROM w WHERE g <> 'no'"), ("new", replacement)):
        with open_engine(tmp_path / folder, EARLIEST, sync="never") as engine:
            declared = WIDE if folder == "old" else WIDE.replace("e INT)", "e INT, f INT)")
            engine.execute(declared + f"CREATE TABLE z AS {query};", Session())
            plans.append(engine.catalog.queries["CTAS_Z_4"])
    old, new = plans
    if problem is None:
        with_kept_state(old, new.plan, None, columnar=False, whole=lambda topic: True)
    else:
        with pytest.raises(InvalidStatement, match=problem):
            with_kept_state(old, new.plan, None, columnar=False, whole=lambda topic: True)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_query_over_a_table_that_got_a_column_is_replaced_by_one_that_reads_it(
    tmp_path: Path, restarted: bool
) -> None:
    session, every_change = Session(), {**EARLIEST, "ksql.streams.cache.max.bytes.buffering": "0"}
    with ExitStack() as engines:
        engine = engines.enter_context(open_engine(tmp_path, every_change, sync="never"))
        _begin_wide(engine, session)
        engine.execute("ALTER TABLE w ADD COLUMN f INT;", session)
        engine.execute(
            "CREATE OR REPLACE TABLE per AS SELECT g, COUNT(*) AS n FROM w WHERE f IS NULL GROUP BY g;", session
        )
        engine.execute("CREATE OR REPLACE TABLE narrow AS SELECT id, g, f FROM w WHERE g <> 'no';", session)
        if restarted:
            engines.close()
            engine = engines.enter_context(open_engine(tmp_path, every_change, sync="never"))
        engine.execute("INSERT INTO w VALUES (1, 'x', 'z', 1, 5); INSERT INTO w VALUES (2, 'no', 'z', 2, 6);", session)
        assert _wait_for(engine, "PER", 4)[2:] == [b'{"N":1}', b'{"N":0}']
        assert _wait_for(engine, "NARROW", 4)[2:] == [b'{"G":"x","F":5}', None]


def test_a_join_with_a_table_is_replaced_by_one_that_reads_more_of_its_stream(tmp_path: Path) -> None:
    select = "FROM met m JOIN w ON m.id = w.id"
    stream = "CREATE STREAM met (id INT KEY, v INT, n INT) WITH (kafka_topic='met', value_format='JSON', partitions=1);"
    declared = f"{WIDE}{stream} CREATE STREAM seen AS SELECT m.id AS id, v, g {select};"
    every_change = {**EARLIEST, "ksql.streams.cache.max.bytes.buffering": "0"}
    with open_engine(tmp_path, every_change, sync="never") as engine:
        session = Session()
        engine.execute(
            declared + "INSERT INTO w VALUES (1, 'x', 'z', 1); INSERT INTO w VALUES (2, 'x', 'z', 2);", session
        )
        assert _wait_for(engine, "PER", 2)
        engine.execute("INSERT INTO met VALUES (1, 2, 3);", session)
        assert _wait_for(engine, "SEEN", 1) == [b'{"V":2,"G":"x"}']
        for further in ("n", "n, n + v AS both"):
            columns = f"m.id AS id, v, g, {further}"
            engine.execute(f"CREATE OR REPLACE STREAM seen AS SELECT {columns} {select} WHERE n > 0;", session)
    with open_engine(tmp_path, every_change, sync="never") as engine:
        engine.execute("INSERT INTO met VALUES (2, 3, 4); INSERT INTO met VALUES (1, 1, 0);", Session())
        assert _wait_for(engine, "SEEN", 2)[1:] == [b'{"V":3,"G":"x","N":4,"BOTH":7}']


def test_rows_of_an_insert_that_was_killed_in_the_middle_hide_nothing(tmp_path: Path) -> None:
    with open_engine(tmp_path / "data", {"millstream.executor": "duckdb"}) as engine:
        engine.execute(
            "CREATE STREAM s (k INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=2);", Session()
        )
        engine.execute("INSERT INTO s VALUES (1, 1);", Session())
        producer = engine.log.transactional_producer("millstream-insert")
        producer.begin()
        producer.append("s", 0, rows(b'{"V":666}'))
        producer.append("s", 1, rows(b'{"V":666}'))
        # What is just being written beside a file may be gone before it is copied, and counts for nothing.
        shutil.copytree(tmp_path / "data", tmp_path / "killed", ignore=shutil.ignore_patterns("*.new"))
    with open_engine(tmp_path / "killed", {"millstream.executor": "duckdb"}) as engine:
        for number in (2, 3, 4):
            engine.execute(f"INSERT INTO s VALUES ({number}, {number});", Session())
        found = engine.query("SELECT v FROM s;", Session())
        assert sorted(row.values[0] for row in found) == [1, 2, 3, 4]
