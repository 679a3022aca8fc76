"""BACKFILL='spark': history is read on Spark, what follows on the query's own executor, and each row counts once.
Spark's jobs run in this process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from moved_queries import (
    COUNTS,
    DUCKDB,
    STREAM,
    TABLE,
    assert_counted_once,
    drained,
    engine_in,
    insert,
    query_id,
    run,
    shown,
    written,
)
from spark_in_process import SparkInProcess
from waiting import eventually

from millstream.errors import InvalidProperty, StatementError, Unsupported
from millstream.executor.queries.duckdb_executor import DuckDBExecutor
from millstream.logcore.client import FetchedRows, LogClient, RowRecords, TopicPartition
from millstream.planner.catalog import PersistentQuery
from millstream.server.catalog.command_codec import command_from_json, command_to_json
from millstream.server.catalog.commands import StartQuery
from millstream.server.engine.backfills import mark_of, records_left
from millstream.server.engine.embedded import EmbeddedEngine
from millstream.server.engine.session import Session
from millstream.testing import Sandbox

BACKFILLED = COUNTS.replace(" AS SELECT", " WITH (BACKFILL='spark') AS SELECT")
HERE, THERE = ("RUNNING", "duckdb"), ("RUNNING", "spark")


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> SparkInProcess:
    return SparkInProcess(monkeypatch)


@pytest.fixture(params=[1, 2, 6])
def engine(request: pytest.FixtureRequest, spark: SparkInProcess, tmp_path: Path) -> Iterator[EmbeddedEngine]:
    with engine_in(tmp_path, DUCKDB) as opened:
        opened.execute(STREAM.format(request.param) + TABLE.format(request.param), Session())
        yield opened


@pytest.fixture
def one(spark: SparkInProcess, tmp_path: Path) -> Iterator[EmbeddedEngine]:
    with engine_in(tmp_path, DUCKDB) as opened:
        opened.execute(STREAM.format(1) + TABLE.format(1), Session())
        yield opened


def moved_here(engine: EmbeddedEngine, *names: str) -> None:
    eventually(lambda: all(shown(engine)[name] == HERE for name in names))


def has_read(engine: EmbeddedEngine, topic: str) -> None:
    """Waits until all queries that read the topic have read it, wherever they run."""
    lanes = [TopicPartition(topic, n) for n in range(engine.log.partition_count(topic))]

    def is_read() -> bool:
        readers = [q for q in engine.catalog.queries.values() if topic in {s.topic for s in q.plan.sources()}]
        read = [engine.log.committed_offsets(query.id) for query in readers]
        return all(each.get(at, 0) >= engine.log.offsets(*at).last_stable_offset for each in read for at in lanes)

    eventually(is_read, 60)


def on_spark(spark: SparkInProcess) -> int:
    """Batches that were done there."""
    return 0 if spark.driver is None else len(spark.driver.record_counts)


# ------------------------------------------------------------------ where rows are read


def test_history_is_read_on_spark_and_what_follows_here(engine: EmbeddedEngine, spark: SparkInProcess) -> None:
    insert(engine, 0, 60)
    run(engine, BACKFILLED)
    insert(engine, 60, 80)
    moved_here(engine, "C")
    done = on_spark(spark)
    assert done
    insert(engine, 80, 100)
    drained(engine)
    assert on_spark(spark) == done
    assert_counted_once(engine, 100)


def test_joins_and_streams_are_as_without_a_backfill(engine: EmbeddedEngine) -> None:
    """A stream with a table, two streams, an aggregate of a join; rows come before, in and after the backfill."""
    shapes = {
        "enriched": "STREAM {} {} AS SELECT s.id, s.v, t.name FROM s JOIN t ON s.id = t.id;",
        "met": "STREAM {} {} AS SELECT a.id, a.v AS av, b.v AS bv FROM s a JOIN s2 b WITHIN 1 DAY ON a.id = b.id;",
        "sums": "TABLE {} {} AS SELECT t.name, SUM(s.v) AS total FROM s JOIN t ON s.id = t.id GROUP BY t.name;",
    }
    run(engine, STREAM.format(engine.log.partition_count("s")).replace("STREAM s", "STREAM s2").replace("'s'", "'s2'"))

    def more(begin: int, end: int) -> None:
        names = ", ".join(f"({begin}, {i}, 'n{i % 3}')" for i in range(begin, end))
        engine.execute(f"INSERT INTO t (rowtime, id, name) VALUES {names};", Session())
        has_read(engine, "t")  # queries join what is there when a record comes
        rows = ", ".join(f"({begin + i}, {i}, 0, {i})" for i in range(begin, end))
        engine.execute(f"INSERT INTO s2 (rowtime, id, g, v) VALUES {rows};", Session())
        insert(engine, begin, end)

    more(0, 20)
    for name, text in shapes.items():
        for sink, options in ((f"{name}_here", ""), (f"{name}_there", "WITH (BACKFILL='spark')")):
            run(engine, "CREATE " + text.format(sink, options))
    more(20, 30)
    moved_here(engine, *(f"{name}_there".upper() for name in shapes))
    more(30, 40)
    drained(engine)
    for name in shapes:
        here, there = (written(engine, f"{name}_{place}".upper()) for place in ("here", "there"))
        assert len(here) == len(there) > 0
        if name == "sums":  # what is between depends on which partition's rows come first
            assert dict(here) == dict(there)
        else:
            assert sorted(map(repr, here)) == sorted(map(repr, there))


@pytest.mark.parametrize("why", ["no records", "what is new", "nothing left by retention"])
def test_where_there_is_no_history_spark_does_not_begin(why: str, one: EmbeddedEngine, spark: SparkInProcess) -> None:
    if why != "no records":
        insert(one, 0, 10)
    if why == "nothing left by retention":
        one.log.delete_records("s", 0, one.log.offsets("s", 0).high_watermark)
    setting = "SET 'auto.offset.reset'='latest'; " if why == "what is new" else ""
    one.execute(setting + BACKFILLED, Session())
    assert shown(one) == {"C": HERE} and on_spark(spark) == 0
    insert(one, 0, 10)
    drained(one)
    assert_counted_once(one, 10)


def test_a_source_that_ends_with_markers_of_transactions_is_read_to_its_end(one: EmbeddedEngine) -> None:
    """Queries write so, and so do producers whose last transaction was aborted."""
    run(one, "CREATE STREAM copied AS SELECT * FROM s;")
    insert(one, 0, 30)
    drained(one)
    producer = one.log.transactional_producer("of a program")
    producer.begin()
    producer.append("COPIED", 0, records(one.log, "COPIED"))
    producer.abort()
    run(one, BACKFILLED.replace("FROM s", "FROM copied"))
    moved_here(one, "C")
    insert(one, 30, 50)
    drained(one)
    assert_counted_once(one, 50)


def records(log: LogClient, topic: str) -> RowRecords:
    """The first of them, to be written again."""
    first = log.fetch(topic, 0, 0, max_bytes=1 << 20).runs[0]
    assert isinstance(first, FetchedRows)
    return RowRecords(first.table.drop_columns(["offset"]))


# ------------------------------------------------------------------ statements meanwhile


@pytest.fixture
def slow(spark: SparkInProcess, one: EmbeddedEngine) -> EmbeddedEngine:
    """With a query whose backfill cannot go on before `spark.driver.hangs` is cleared."""
    insert(one, 0, 40)
    run(one, COUNTS.replace("TABLE c", "TABLE first").replace(" AS SELECT", " WITH (EXECUTOR='spark') AS SELECT"))
    drained(one)
    assert spark.driver is not None
    spark.driver.hangs.set()
    run(one, BACKFILLED)
    return one


def test_everybody_is_told_how_much_is_left(slow: EmbeddedEngine, spark: SparkInProcess) -> None:
    name = slow.catalog.source("C", None).created_by
    assert shown(slow)["C"] == THERE
    explained = run(slow, f"EXPLAIN {name};")["queryDescription"]
    assert (explained["executor"], explained["metrics"]["backfill_left"]) == ("spark", 40)
    lines = {line["sinks"][0]: line for line in run(slow, "SHOW QUERIES;")["queries"]}
    assert lines["C"]["detail"] == "reads its history on Spark: 40 records left"
    causes = {cause["code"]: cause for cause in run(slow, f"EXPLAIN STALL {name};")["causes"]}
    assert causes["BACKFILL"]["message"] == "The query reads its history on Spark: 40 records are left."
    assert spark.driver is not None
    spark.driver.hangs.clear()
    moved_here(slow, "C")
    explained = run(slow, f"EXPLAIN {name};")["queryDescription"]
    assert "backfill_left" not in explained["metrics"]


def test_a_query_that_is_paused_in_its_backfill_stays_so(slow: EmbeddedEngine, spark: SparkInProcess) -> None:
    name = slow.catalog.source("C", None).created_by
    run(slow, f"PAUSE {name};")
    assert spark.driver is not None
    spark.driver.hangs.clear()
    assert shown(slow)["C"] == ("PAUSED", "spark")
    run(slow, f"RESUME {name};")
    moved_here(slow, "C")
    drained(slow)
    assert_counted_once(slow, 40)


@pytest.mark.parametrize("executor", ["duckdb", "spark"])
def test_to_name_an_executor_ends_the_backfill(executor: str, slow: EmbeddedEngine, spark: SparkInProcess) -> None:
    name = slow.catalog.source("C", None).created_by
    assert spark.driver is not None
    run(slow, f"ALTER QUERY {name} SET EXECUTOR = '{executor}';")
    spark.driver.hangs.clear()
    insert(slow, 40, 50)
    drained(slow)
    assert shown(slow)["C"] == ("RUNNING", executor)
    assert_counted_once(slow, 50)


def test_a_query_that_is_dropped_in_its_backfill_is_gone(slow: EmbeddedEngine, spark: SparkInProcess) -> None:
    run(slow, "DROP TABLE c DELETE TOPIC;")
    assert spark.driver is not None
    spark.driver.hangs.clear()
    run(slow, COUNTS)
    drained(slow)
    assert shown(slow)["C"] == HERE
    assert_counted_once(slow, 40)


def test_a_reset_reads_history_on_spark_again(one: EmbeddedEngine, spark: SparkInProcess) -> None:
    insert(one, 0, 30)
    run(one, BACKFILLED)
    moved_here(one, "C")
    done = on_spark(spark)
    run(one, f"RESET {query_id(one)};")
    moved_here(one, "C")
    drained(one)
    assert on_spark(spark) > done
    assert_counted_once(one, 30)


# ------------------------------------------------------------------ restarts


def test_a_backfill_goes_on_after_a_restart_and_does_not_begin_again(spark: SparkInProcess, tmp_path: Path) -> None:
    with engine_in(tmp_path, DUCKDB) as engine:
        run(engine, STREAM.format(2))
        insert(engine, 0, 40)
        spark.unreachable = RuntimeError("no executors today")
        run(engine, BACKFILLED)
        assert shown(engine) == {"C": THERE}
    spark.unreachable = None
    with engine_in(tmp_path, DUCKDB) as engine:
        moved_here(engine, "C")
        insert(engine, 40, 60)
        drained(engine)
    spark.is_there = False  # nobody needs it any more
    with engine_in(tmp_path, DUCKDB) as engine:
        assert shown(engine) == {"C": HERE}
        insert(engine, 60, 80)
        drained(engine)
        assert_counted_once(engine, 80)


def test_a_backfill_whose_spark_is_gone_says_so_and_is_ended_by_hand(spark: SparkInProcess, tmp_path: Path) -> None:
    with engine_in(tmp_path, DUCKDB) as engine:
        run(engine, STREAM.format(1))
        insert(engine, 0, 40)
        spark.unreachable = RuntimeError("no executors today")
        run(engine, BACKFILLED)
    spark.is_there = False
    with engine_in(tmp_path, DUCKDB) as engine:
        assert shown(engine) == {"C": ("ERROR", "spark")}
        status = engine.executor.status(query_id(engine))
        assert status.error == "Spark cannot read the query's history: there is no Java runtime"
        run(engine, f"ALTER QUERY {query_id(engine)} SET EXECUTOR = 'duckdb';")
        drained(engine)
        assert_counted_once(engine, 40)


def test_a_move_that_fails_is_tried_again(one: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    start, failures = DuckDBExecutor.start, [RuntimeError("not now"), RuntimeError("nor now")]

    def failing(self: DuckDBExecutor, query: PersistentQuery) -> None:
        if failures:
            raise failures.pop()
        start(self, query)

    monkeypatch.setattr(DuckDBExecutor, "start", failing)
    insert(one, 0, 20)
    run(one, BACKFILLED)
    moved_here(one, "C")
    assert not failures
    drained(one)
    assert_counted_once(one, 20)


# ------------------------------------------------------------------ what is refused, and what is stored


def test_what_cannot_be_is_refused_before_anything_is_written(one: EmbeddedEngine, spark: SparkInProcess) -> None:
    with pytest.raises(InvalidProperty, match="BACKFILL cannot be 'duckdb'"):
        run(one, BACKFILLED.replace("'spark'", "'duckdb'"))
    with pytest.raises(StatementError, match=r"Invalid config variable\(s\) in the WITH clause: BACKFILL"):
        run(one, "CREATE STREAM x (v INT) WITH (kafka_topic='x', value_format='JSON', partitions=1, BACKFILL='spark');")
    spark.is_there = False
    with pytest.raises(Unsupported, match="Spark cannot read the query's history: there is no Java runtime"):
        run(one, BACKFILLED)
    assert list(one.catalog.queries) == [] and one.log.topic("C") is None


def test_the_mark_is_stored_with_the_query_and_older_commands_have_none(one: EmbeddedEngine) -> None:
    insert(one, 0, 7)
    run(one, COUNTS)
    (query,) = one.catalog.queries.values()
    assert query.backfill is None and records_left(one.log, query) == 0
    marked = replace(query, backfill=mark_of(one.log, query.plan))
    assert marked.backfill == {"s": (7,)}
    for each in (query, marked):
        command = StartQuery(query=each, statement="…", properties={})
        assert command_from_json(command_to_json(command)) == command
    assert b"backfill" not in command_to_json(StartQuery(query=query, statement="…", properties={}))


@pytest.mark.parametrize(("committed", "left"), [(None, 7), (0, 7), (6, 1), (7, 0), (8, 0), (-1, 7)])
def test_what_is_left_is_counted_up_to_the_mark(committed: int | None, left: int, one: EmbeddedEngine) -> None:
    insert(one, 0, 7)
    run(one, COUNTS)
    (query,) = one.catalog.queries.values()
    marked = replace(query, id="other", backfill=mark_of(one.log, query.plan))
    insert(one, 7, 9)
    if committed is not None:
        one.log.commit_offsets("other", {TopicPartition("s", 0): committed})
    assert records_left(one.log, marked) == left
    one.log.delete_records("s", 0, 5)
    assert records_left(one.log, marked) == min(left, 2)
    assert records_left(one.log, replace(marked, backfill={"s": (100,), "gone": (5,)})) == 9 - max(5, committed or 0)


def test_a_topic_that_was_made_anew_with_fewer_partitions_is_not_waited_for(one: EmbeddedEngine) -> None:
    insert(one, 0, 7)
    run(one, COUNTS)
    (query,) = one.catalog.queries.values()
    marked = replace(query, id="other", backfill={"s": (5, 3)})  # it had two, and has one
    assert records_left(one.log, marked) == 5


def test_a_sandbox_runs_a_backfill_as_any_other_query_and_needs_no_spark(spark: SparkInProcess) -> None:
    spark.is_there = False
    with Sandbox() as sandbox:
        sandbox.execute(STREAM.format(1))
        sandbox.execute("SET 'auto.offset.reset'='earliest';" + BACKFILLED)
        sandbox.execute("INSERT INTO s VALUES (1, 2, 3);")
        sandbox.drain()
        assert len(sandbox.consume("C")) == 1
