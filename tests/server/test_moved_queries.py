"""ALTER QUERY … SET EXECUTOR, and servers that start with another executor: where queries run, and that they lose and
repeat nothing on the way. Spark's jobs run in this process."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hand_plans import read_all
from spark_in_process import SparkInProcess

from millstream.errors import InvalidProperty, InvalidStatement, Unsupported
from millstream.executor.errors import SparkUnavailable
from millstream.logcore.client import TopicPartition
from millstream.logcore.log import open_log
from millstream.server.engine.embedded import EmbeddedEngine, engine_on, open_engine
from millstream.server.engine.session import Session

BOTH = {"auto.offset.reset": "earliest", "ksql.streams.cache.max.bytes.buffering": "0"}
DUCKDB = {**BOTH, "millstream.executor": "duckdb"}
SPARK = {**BOTH, "millstream.executor": "spark"}
STREAM = "CREATE STREAM s (id INT KEY, g INT, v INT) WITH (kafka_topic='s', value_format='JSON', partitions={});"
TABLE = "CREATE TABLE t (id INT PRIMARY KEY, name STRING) WITH (kafka_topic='t', value_format='JSON', partitions={});"
COUNTS = "CREATE TABLE c AS SELECT g, COUNT(*) AS n, SUM(v) AS total FROM s GROUP BY g;"


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> SparkInProcess:
    return SparkInProcess(monkeypatch)


def engine_in(folder: Path, properties: dict[str, str]) -> EmbeddedEngine:
    return open_engine(folder, properties, sync="never")


@pytest.fixture
def engine(spark: SparkInProcess, tmp_path: Path) -> Iterator[EmbeddedEngine]:
    with engine_in(tmp_path, DUCKDB) as opened:
        opened.execute(STREAM.format(2) + TABLE.format(2), Session())
        yield opened


def run(engine: EmbeddedEngine, text: str) -> dict[str, object]:
    return engine.execute(text, Session())[-1].as_json()


def query_id(engine: EmbeddedEngine) -> str:
    (only,) = engine.catalog.queries
    return only


def shown(engine: EmbeddedEngine) -> dict[str, tuple[str, str | None]]:
    """State and executor of each query, by what it writes, as SHOW QUERIES has them."""
    queries: list[dict[str, object]] = run(engine, "SHOW QUERIES;")["queries"]  # type: ignore[assignment]
    return {line["sinks"][0]: (line["state"], line["executor"]) for line in queries}  # type: ignore[index, misc]


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def drained(engine: EmbeddedEngine) -> None:
    """Waits until every query has read all there is."""

    def is_done(each: str) -> bool:
        status = engine.executor.status(each)
        assert status.state == "RUNNING", status.error
        ends = {
            TopicPartition(source.topic, n): engine.log.offsets(source.topic, n).last_stable_offset
            for source in engine.catalog.queries[each].plan.sources()
            for n in range(engine.log.partition_count(source.topic))
        }
        committed = engine.log.committed_offsets(each)
        return all(committed.get(lane, 0) >= end for lane, end in ends.items())

    for each in list(engine.catalog.queries):
        eventually(lambda each=each: is_done(each))


def written(engine: EmbeddedEngine, topic: str) -> list[tuple[object, object]]:
    """Keys and values of the topic, partition by partition."""
    records = read_all(engine.log, topic, range(engine.log.partition_count(topic)))
    return [(record["key"], record["value"]) for record in records]


def insert(engine: EmbeddedEngine, begin: int, end: int, first_group: int = 0) -> None:
    values = ", ".join(f"({i}, {i}, {first_group + i % 5}, {i})" for i in range(begin, end))
    engine.execute(f"INSERT INTO s (rowtime, id, g, v) VALUES {values};", Session())


def counted_once(engine: EmbeddedEngine) -> dict[object, list[dict[str, int]]]:
    """The rows of each group, whose counts are 1, 2, 3, …, each once."""
    by_key: dict[object, list[dict[str, int]]] = {}
    for key, value in written(engine, "C"):
        by_key.setdefault(key, []).append(value)  # type: ignore[arg-type]
    assert {key: [each["N"] for each in own] for key, own in by_key.items()} == {
        key: list(range(1, len(own) + 1)) for key, own in by_key.items()
    }
    return by_key


def assert_counted_once(engine: EmbeddedEngine, count: int) -> None:
    """Each group's counts are 1, 2, 3, …, each once; the sums are those of all rows."""
    by_key = counted_once(engine)
    groups = Counter(i % 5 for i in range(count))
    assert sorted((own[-1]["N"], own[-1]["TOTAL"]) for own in by_key.values()) == sorted(
        (n, sum(i for i in range(count) if i % 5 == g)) for g, n in groups.items()
    )


# ------------------------------------------------------------------ the statement


def test_a_query_moves_and_comes_back_and_everybody_is_told_where_it_runs(engine: EmbeddedEngine) -> None:
    run(engine, COUNTS)
    assert shown(engine) == {"C": ("RUNNING", "duckdb")}
    insert(engine, 0, 40)
    answer = run(engine, f"ALTER QUERY {query_id(engine).lower()} SET EXECUTOR = 'Spark';")
    assert answer["commandStatus"]["message"] == f"Executor of {query_id(engine)} set to spark."  # type: ignore[index]
    assert shown(engine) == {"C": ("RUNNING", "spark")}
    explained = run(engine, f"EXPLAIN {query_id(engine)};")["queryDescription"]
    assert explained["executor"] == "spark"  # type: ignore[index]
    described = run(engine, "DESCRIBE c;")["sourceDescription"]
    assert described["writeQueries"][0]["executor"] == "spark"  # type: ignore[index]
    insert(engine, 40, 80)
    drained(engine)
    run(engine, f"ALTER QUERY {query_id(engine)} SET EXECUTOR = 'duckdb';")
    assert shown(engine) == {"C": ("RUNNING", "duckdb")}
    insert(engine, 80, 120)
    drained(engine)
    assert_counted_once(engine, 120)


def test_what_is_wrong_with_the_statement_is_said_and_nothing_is_changed(
    engine: EmbeddedEngine, spark: SparkInProcess
) -> None:
    run(engine, COUNTS)
    before = engine.catalog
    with pytest.raises(InvalidStatement, match="Query with id NOWHERE does not exist"):
        run(engine, "ALTER QUERY NOWHERE SET EXECUTOR = 'spark';")
    with pytest.raises(InvalidProperty, match="one of auto, spark, duckdb"):
        run(engine, f"ALTER QUERY {query_id(engine)} SET EXECUTOR = 'sparc';")
    spark.is_there = False
    with pytest.raises(Unsupported, match="Spark cannot run this query: there is no Java runtime"):
        run(engine, f"ALTER QUERY {query_id(engine)} SET EXECUTOR = 'spark';")
    assert engine.catalog is before
    assert shown(engine) == {"C": ("RUNNING", "duckdb")}


def test_what_only_duckdb_runs_stays_there(engine: EmbeddedEngine) -> None:
    finals = "CREATE TABLE f AS SELECT id, COUNT(*) AS n FROM s WINDOW TUMBLING (SIZE 1 DAY) GROUP BY id EMIT FINAL;"
    session = Session({"millstream.emit.final.idle.ms": "60000"})
    with pytest.raises(Unsupported) as refused:
        engine.execute(finals.replace(" AS SELECT", " WITH (EXECUTOR='spark') AS SELECT", 1), session)
    engine.execute(finals, session)
    with pytest.raises(Unsupported) as stays:
        run(engine, f"ALTER QUERY {query_id(engine)} SET EXECUTOR = 'spark';")
    assert (stays.value.message, stays.value.hint) == (refused.value.message, refused.value.hint)
    assert shown(engine) == {"F": ("RUNNING", "duckdb")}


def test_a_query_that_is_paused_moves_and_stays_paused(engine: EmbeddedEngine) -> None:
    run(engine, COUNTS + "PAUSE CTAS_C_2;")
    run(engine, f"ALTER QUERY {query_id(engine)} SET EXECUTOR = 'spark';")
    assert shown(engine) == {"C": ("PAUSED", "spark")}
    insert(engine, 0, 10)
    run(engine, "RESUME ALL;")
    drained(engine)
    assert_counted_once(engine, 10)


def test_a_query_that_waits_for_a_resume_after_a_start_waits_on_the_other_executor(
    spark: SparkInProcess, tmp_path: Path
) -> None:
    with engine_in(tmp_path, DUCKDB) as engine:
        run(engine, STREAM.format(1) + COUNTS)
    log = open_log(tmp_path / "log", sync="never")
    with engine_on(log, tmp_path, DUCKDB, paused=True) as paused:
        paused.execute("ALTER QUERY CTAS_C_1 SET EXECUTOR = 'spark';", Session())
        assert paused.executor.status("CTAS_C_1").state == "PAUSED"
        assert not paused.catalog.queries["CTAS_C_1"].paused
    log.close()


def test_a_query_in_error_goes_on_where_it_is_moved_to(engine: EmbeddedEngine, spark: SparkInProcess) -> None:
    run(engine, COUNTS)
    run(engine, f"ALTER QUERY {query_id(engine)} SET EXECUTOR = 'spark';")
    insert(engine, 0, 20)
    drained(engine)
    assert spark.driver is not None
    spark.driver.failures += [RuntimeError("a step that does not know what to do")] * 100
    insert(engine, 20, 40)
    eventually(lambda: shown(engine)["C"] == ("ERROR", "spark"))
    run(engine, f"ALTER QUERY {query_id(engine)} SET EXECUTOR = 'duckdb';")
    assert shown(engine) == {"C": ("RUNNING", "duckdb")}
    drained(engine)
    assert_counted_once(engine, 40)


@pytest.mark.parametrize("how", ["no session", "a job that hangs"])
def test_a_query_leaves_a_spark_that_is_gone_without_waiting_for_it(
    how: str, engine: EmbeddedEngine, spark: SparkInProcess
) -> None:
    run(engine, COUNTS)
    run(engine, f"ALTER QUERY {query_id(engine)} SET EXECUTOR = 'spark';")
    insert(engine, 0, 20)
    drained(engine)
    driver = spark.driver
    assert driver is not None
    if how == "no session":
        spark.unreachable = SparkUnavailable("Spark does not start with master spark://gone:7077")
        driver.failures.append(ConnectionRefusedError("[Errno 111] Connection refused"))
    else:
        driver.job_began.clear()
        driver.deaf = True
        driver.hangs.set()
    insert(engine, 20, 40)
    if how == "no session":
        eventually(lambda: "does not start" in str(engine.executor.status(query_id(engine)).error))
    else:
        assert driver.job_began.wait(60)
    run(engine, f"ALTER QUERY {query_id(engine)} SET EXECUTOR = 'duckdb';")
    drained(engine)
    driver.hangs.clear()  # what it does now comes too late
    insert(engine, 40, 60)
    drained(engine)
    assert_counted_once(engine, 60)


def test_a_query_that_was_reset_elsewhere_finds_no_old_state_when_it_comes_back(engine: EmbeddedEngine) -> None:
    run(engine, COUNTS)
    insert(engine, 0, 40)
    drained(engine)
    run(engine, f"ALTER QUERY {query_id(engine)} SET EXECUTOR = 'spark';")
    for partition in range(2):  # as retention does
        engine.log.delete_records("s", partition, engine.log.offsets("s", partition).high_watermark)
    run(engine, f"RESET {query_id(engine)};")
    for begin in range(40, 160, 20):  # of others, until its changelog is longer than the one that it had
        insert(engine, begin, begin + 20, first_group=10)
        drained(engine)
    run(engine, f"ALTER QUERY {query_id(engine)} SET EXECUTOR = 'duckdb';")
    insert(engine, 0, 40)
    drained(engine)
    assert {len(own) for own in counted_once(engine).values()} == {8, 24}


def test_nothing_is_left_on_disk_of_a_query_that_is_dropped(engine: EmbeddedEngine, tmp_path: Path) -> None:
    run(engine, COUNTS)
    insert(engine, 0, 10)
    drained(engine)
    name = query_id(engine)
    run(engine, f"ALTER QUERY {name} SET EXECUTOR = 'spark';")
    drained(engine)
    run(engine, "DROP TABLE c;")
    assert not [path for path in tmp_path.glob("state*/*") if path.name == name]
    assert not [topic for topic in engine.log.topics() if name in topic]


# ------------------------------------------------------------------ restarts


def test_a_move_outlives_a_restart_and_a_replacement(spark: SparkInProcess, tmp_path: Path) -> None:
    with engine_in(tmp_path, DUCKDB) as engine:
        run(engine, STREAM.format(2) + COUNTS)
        insert(engine, 0, 20)
        run(engine, f"ALTER QUERY {query_id(engine)} SET EXECUTOR = 'spark';")
        insert(engine, 20, 40)
    with engine_in(tmp_path, DUCKDB) as engine:
        assert shown(engine) == {"C": ("RUNNING", "spark")}
        insert(engine, 40, 60)
        run(engine, COUNTS.replace("CREATE", "CREATE OR REPLACE").replace("FROM s", "FROM s WHERE v >= 0"))
        assert shown(engine) == {"C": ("RUNNING", "spark")}
        drained(engine)
        assert_counted_once(engine, 60)
        run(engine, f"ALTER QUERY {query_id(engine)} SET EXECUTOR = 'duckdb';")
    with engine_in(tmp_path, SPARK) as engine:
        assert shown(engine) == {"C": ("RUNNING", "duckdb")}


def test_a_server_that_starts_with_another_executor_moves_queries_that_name_none(
    spark: SparkInProcess, tmp_path: Path
) -> None:
    with engine_in(tmp_path, DUCKDB) as engine:
        run(engine, STREAM.format(2) + COUNTS)
        run(engine, "CREATE STREAM named WITH (EXECUTOR='duckdb') AS SELECT * FROM s;")
        run(engine, "CREATE STREAM unnamed AS SELECT * FROM s; INSERT INTO unnamed SELECT * FROM s WHERE v < 0;")
        engine.execute("SET 'millstream.executor'='duckdb'; CREATE STREAM of_session AS SELECT * FROM s;", Session())
        insert(engine, 0, 20)
    here, there = ("RUNNING", "duckdb"), ("RUNNING", "spark")
    for count, properties, expected in ((20, SPARK, there), (40, DUCKDB, here), (60, BOTH, there)):
        with engine_in(tmp_path, properties) as engine:
            assert shown(engine) == {"C": expected, "NAMED": here, "UNNAMED": expected, "OF_SESSION": here}
            insert(engine, count, count + 20)
            drained(engine)
            assert_counted_once(engine, count + 20)


def test_a_server_on_spark_leaves_on_duckdb_what_only_that_runs(spark: SparkInProcess, tmp_path: Path) -> None:
    idle = {"millstream.emit.final.idle.ms": "60000"}
    with engine_in(tmp_path, {**DUCKDB, **idle}) as engine:
        run(engine, STREAM.format(1) + COUNTS)
        run(engine, "CREATE TABLE f AS SELECT id, COUNT(*) AS n FROM s WINDOW TUMBLING (SIZE 1 DAY) "
            "GROUP BY id EMIT FINAL;")  # fmt: skip
    with engine_in(tmp_path, {**SPARK, **idle}) as engine:
        assert shown(engine) == {"C": ("RUNNING", "spark"), "F": ("RUNNING", "duckdb")}


def test_a_query_that_was_moved_to_a_spark_that_is_not_there_after_a_restart_comes_back(
    spark: SparkInProcess, tmp_path: Path
) -> None:
    with engine_in(tmp_path, DUCKDB) as engine:
        run(engine, STREAM.format(2) + COUNTS)
        run(engine, f"ALTER QUERY {query_id(engine)} SET EXECUTOR = 'spark';")
        insert(engine, 0, 20)
        drained(engine)
    spark.is_there = False
    with engine_in(tmp_path, DUCKDB) as engine:
        assert shown(engine) == {"C": ("ERROR", "spark")}
        run(engine, f"ALTER QUERY {query_id(engine)} SET EXECUTOR = 'duckdb';")
        insert(engine, 20, 40)
        drained(engine)
        assert_counted_once(engine, 40)
