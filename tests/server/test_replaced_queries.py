"""CREATE OR REPLACE with further columns of a table's rows: new stores are filled from the table's topic."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest
from spark_in_process import SparkInProcess
from waiting import eventually

from millstream.errors import InvalidStatement
from millstream.executor.queries.query_log import filling_group
from millstream.executor.queries.store_filling import StoreFilling
from millstream.logcore.client import FetchedRows
from millstream.logcore.failpoints import arm, hits
from millstream.server.engine.embedded import EmbeddedEngine, open_engine
from millstream.server.engine.session import Session
from millstream.testing import Sandbox

SETTINGS = {
    "auto.offset.reset": "earliest",
    "millstream.executor": "duckdb",
    "ksql.streams.cache.max.bytes.buffering": "0",
}
DECLARED = """
CREATE TABLE t (id INT PRIMARY KEY, a STRING, b STRING, n INT)
  WITH (kafka_topic='t', value_format='JSON', partitions={0});
CREATE STREAM s (id INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions={0});
CREATE STREAM joined AS SELECT s.id AS id, v, a FROM s {1} JOIN t ON s.id = t.id;
"""
JOINED = "CSAS_JOINED_2"
REPLACED = "CREATE OR REPLACE STREAM joined AS SELECT s.id AS id, v, a, b, n + v AS m FROM s {0} JOIN t ON s.id = t.id;"


Row = Mapping[str, object] | None


def _records(engine: EmbeddedEngine, topic: str) -> list[tuple[bytes, Row]]:
    """The keys and values of all records, partition by partition."""
    found: list[tuple[bytes, Row]] = []
    for partition in range(engine.log.partition_count(topic)):
        for run in engine.log.fetch(topic, partition, 0).runs:
            assert isinstance(run, FetchedRows)
            values = [None if value is None else json.loads(value) for value in run.table["value"].to_pylist()]
            found += zip(run.table["key"].to_pylist(), values, strict=True)
    return found


def _await(engine: EmbeddedEngine, topic: str, count: int) -> list[tuple[bytes, Row]]:
    eventually(lambda: len(_records(engine, topic)) >= count)
    return _records(engine, topic)


def _caught_up(engine: EmbeddedEngine) -> None:
    """Waits until the join has read everything."""

    def lag() -> int:
        committed = engine.log.committed_offsets(JOINED)
        read = {at: offset for at, offset in committed.items() if at.topic in ("t", "s")}
        return sum(engine.log.offsets(*at).last_stable_offset - offset for at, offset in read.items()) if read else 1

    eventually(lambda: lag() == 0)


def _fill_table(engine: EmbeddedEngine, random: Random) -> dict[int, tuple[str, str | None, int]]:
    """Inserts, updates and deletes rows. Out: the rows that are left."""
    rows: dict[int, tuple[str, str | None, int]] = {}
    statements: list[str] = []
    for number in range(60):
        id = random.randrange(20)
        if id in rows and random.random() < 0.3:
            del rows[id]
            statements.append(f"DELETE FROM t WHERE id = {id};")
            continue
        rows[id] = (f"a{number}", None if number % 7 == 0 else f"b{number}", number)
        values = ", ".join("NULL" if each is None else repr(each) for each in rows[id])
        statements.append(f"INSERT INTO t VALUES ({id}, {values});")
    engine.execute(" ".join(statements), Session())
    return rows


@pytest.mark.parametrize("partitions", [1, 2, 6])
@pytest.mark.parametrize(("kind", "restarted"), [("INNER", False), ("LEFT", True)])
def test_a_join_reads_further_columns_of_all_rows_of_its_table(
    tmp_path: Path, partitions: int, kind: str, restarted: bool
) -> None:
    with ExitStack() as engines:
        engine = engines.enter_context(open_engine(tmp_path, SETTINGS, sync="never"))
        engine.execute(DECLARED.format(partitions, kind), Session())
        rows = _fill_table(engine, Random(partitions))
        engine.execute("INSERT INTO s VALUES (100, 0);", Session())
        _caught_up(engine)
        before = len(_records(engine, "JOINED"))
        engine.execute(REPLACED.format(kind), Session())
        if restarted:
            engines.close()
            engine = engines.enter_context(open_engine(tmp_path, SETTINGS, sync="never"))
        engine.execute(" ".join(f"INSERT INTO s VALUES ({id}, {id});" for id in range(20)), Session())
        wanted: list[Row] = [{"V": id, "A": a, "B": b, "M": n + id} for id, (a, b, n) in rows.items()]
        if kind == "LEFT":
            wanted += [{"V": id, "A": None, "B": None, "M": None} for id in range(20) if id not in rows]
        found = _await(engine, "JOINED", before + len(wanted))
        after = [row for _, row in found if row is not None and "M" in row]
        assert sorted(after, key=str) == sorted(wanted, key=str)


def test_a_crash_while_stores_are_filled_begins_filling_again(tmp_path: Path) -> None:
    with open_engine(tmp_path, SETTINGS, sync="never") as engine:
        engine.execute(DECLARED.format(2, "INNER"), Session())
        rows = _fill_table(engine, Random(1))
        _caught_up(engine)
        arm("query.filling:1:raise")
        try:
            engine.execute(REPLACED.format("INNER"), Session())
            eventually(lambda: hits("query.filling") > 0)
        finally:
            arm("")
        for id in rows:
            engine.execute(f"INSERT INTO s VALUES ({id}, 0);", Session())
        found = _await(engine, "JOINED", len(rows))
        assert {(row["A"], row["B"], row["M"]) for _, row in found if row is not None} == {*rows.values()}
        assert StoreFilling.of(engine.log, engine.catalog.queries[JOINED].plan) is None
        assert engine.log.committed_offsets(filling_group(JOINED))
        engine.execute("DROP STREAM joined;", Session())
        eventually(lambda: not engine.log.committed_offsets(filling_group(JOINED)))


def test_each_replacement_that_keeps_other_columns_has_a_store_of_its_own(tmp_path: Path) -> None:
    with open_engine(tmp_path, SETTINGS, sync="never") as engine:
        engine.execute(DECLARED.format(1, "INNER") + "INSERT INTO t VALUES (1, 'a', 'b', 3);", Session())
        _caught_up(engine)
        for expressions, row, number in [
            ("v, LCASE(b) AS a", {"V": 1, "A": "b"}, 1),
            ("v, a", {"V": 1, "A": "a"}, 2),
            ("v, a, v AS w", {"V": 1, "A": "a", "W": 1}, 2),
            ("v, a, v AS w, n", {"V": 1, "A": "a", "W": 1, "N": 3}, 3),
        ]:
            engine.execute(
                f"CREATE OR REPLACE STREAM joined AS SELECT s.id AS id, {expressions} FROM s JOIN t ON s.id = t.id;",
                Session(),
            )
            count = len(_records(engine, "JOINED"))
            engine.execute("INSERT INTO s VALUES (1, 1);", Session())
            assert _await(engine, "JOINED", count + 1)[count:] == [(b"\0\0\0\1", row)]
            assert max(step.store_number for step in engine.catalog.queries[JOINED].plan.steps()) == number


@pytest.mark.parametrize("backfill", ["", "WITH (BACKFILL='spark') "])
@pytest.mark.parametrize("partitions", [1, 2, 6])
def test_a_query_on_spark_fills_its_stores_on_duckdb_and_moves_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partitions: int, backfill: str
) -> None:
    spark = SparkInProcess(monkeypatch)
    with open_engine(tmp_path / "data", {**SETTINGS, "millstream.executor": "spark"}, sync="never") as engine:
        engine.execute(DECLARED.format(partitions, "INNER"), Session())
        rows = _fill_table(engine, Random(partitions))
        _caught_up(engine)
        assert spark.driver is not None
        replaced = REPLACED.format("INNER").replace("joined AS", f"joined {backfill}AS")
        engine.execute(replaced + " ".join(f"INSERT INTO s VALUES ({id}, 0);" for id in rows), Session())
        found = _await(engine, "JOINED", len(rows))
        assert {(row["A"], row["B"], row["M"]) for _, row in found if row is not None} == {*rows.values()}
        eventually(lambda: engine.executor.status(JOINED).executor == "spark")
        batches = len(spark.driver.record_counts)
        engine.execute(" ".join(f"INSERT INTO s VALUES ({id}, 1);" for id in rows), Session())
        found = _await(engine, "JOINED", 2 * len(rows))
        assert len(found) == 2 * len(rows)
        assert {(row["A"], row["M"]) for _, row in found if row is not None and row["V"] == 1} == {
            (a, n + 1) for a, _, n in rows.values()
        }
        assert len(spark.driver.record_counts) > batches


@pytest.mark.parametrize("restarted", [False, True])
def test_a_filter_of_a_table_reads_further_columns_of_its_rows(tmp_path: Path, restarted: bool) -> None:
    with ExitStack() as engines:
        engine = engines.enter_context(open_engine(tmp_path, SETTINGS, sync="never"))
        table = DECLARED.format(2, "").split(";")[0]
        engine.execute(
            f"{table}; CREATE TABLE few AS SELECT id, a FROM t WHERE a <> 'no';"
            "CREATE TABLE per AS SELECT a, COUNT(*) AS c FROM t WHERE a <> 'no' GROUP BY a;"
            "INSERT INTO t VALUES (1, 'x', 'y', 1); INSERT INTO t VALUES (2, 'x', 'z', 2);",
            Session(),
        )
        _await(engine, "FEW", 2)
        _await(engine, "PER", 2)
        per = "CREATE OR REPLACE TABLE per AS SELECT a, COUNT(*) AS c FROM t WHERE b IN ('y', 'z') GROUP BY a;"
        engine.execute(f"CREATE OR REPLACE TABLE few AS SELECT id, a FROM t WHERE b = 'y'; {per}", Session())
        if restarted:
            engines.close()
            engine = engines.enter_context(open_engine(tmp_path, SETTINGS, sync="never"))
        engine.execute("INSERT INTO t VALUES (1, 'x', 'no', 1); INSERT INTO t VALUES (2, 'w', 'y', 2);", Session())
        assert dict(_await(engine, "FEW", 4)) == {b"\0\0\0\1": None, b"\0\0\0\2": {"A": "w"}}
        assert dict(_await(engine, "PER", 5)) == {b"x": {"C": 0}, b"w": {"C": 1}}


def test_columns_that_the_topic_no_longer_has_of_all_rows_are_refused(tmp_path: Path) -> None:
    with open_engine(tmp_path, SETTINGS, sync="never") as engine:
        engine.execute(DECLARED.format(1, "INNER"), Session())
        engine.execute("INSERT INTO t VALUES (1, 'a', 'b', 3); INSERT INTO t VALUES (2, 'a', 'b', 3);", Session())
        _caught_up(engine)
        engine.log.delete_records("t", 0, 1)
        with pytest.raises(InvalidStatement, match="topic t no longer has all records to read them from") as refused:
            engine.execute(REPLACED.format("INNER"), Session())
        assert "Drop the query's stream and create it again" in str(refused.value.hint)
        engine.execute(
            "CREATE OR REPLACE STREAM joined AS SELECT s.id AS id, v, a, v AS w FROM s JOIN t ON s.id = t.id;",
            Session(),
        )


@pytest.mark.parametrize("partitions", [1, 2, 6])
def test_a_sandbox_fills_new_stores(partitions: int) -> None:
    with Sandbox(properties={"auto.offset.reset": "earliest"}) as sandbox:
        sandbox.execute(DECLARED.format(partitions, "INNER"))
        sandbox.execute("INSERT INTO t VALUES (1, 'a', 'b', 3); INSERT INTO t VALUES (2, 'c', 'd', 4);")
        sandbox.execute("INSERT INTO t (id, a) VALUES (2, 'e');")
        sandbox.drain()
        sandbox.execute(REPLACED.format("INNER"))
        sandbox.execute("INSERT INTO s VALUES (1, 1); INSERT INTO s VALUES (2, 1); INSERT INTO s VALUES (3, 1);")
        sandbox.drain()
        assert [record["value"] for record in sandbox.consume("JOINED")] == [
            {"V": 1, "A": "a", "B": "b", "M": 4},
            {"V": 1, "A": "e", "B": None, "M": None},
        ]
