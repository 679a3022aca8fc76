"""ALTER QUERY … SET EXECUTOR, and servers that start with another executor: where queries run, and that they lose and
repeat nothing on the way. Spark's jobs run in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from moved_queries import (
    BOTH,
    COUNTS,
    DUCKDB,
    SPARK,
    STREAM,
    TABLE,
    assert_counted_once,
    counted_once,
    drained,
    engine_in,
    insert,
    query_id,
    run,
    shown,
)
from spark_in_process import SparkInProcess
from waiting import eventually

from millstream.errors import InvalidProperty, InvalidStatement, Unsupported
from millstream.executor.errors import SparkUnavailable
from millstream.executor.spark import spark_query
from millstream.logcore.log import open_log
from millstream.server.engine.embedded import EmbeddedEngine, engine_on
from millstream.server.engine.session import Session


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> SparkInProcess:
    return SparkInProcess(monkeypatch)


@pytest.fixture
def engine(spark: SparkInProcess, tmp_path: Path) -> Iterator[EmbeddedEngine]:
    with engine_in(tmp_path, DUCKDB) as opened:
        opened.execute(STREAM.format(2) + TABLE.format(2), Session())
        yield opened


# ------------------------------------------------------------------ the statement


def test_a_query_moves_and_comes_back_and_everybody_is_told_where_it_runs(engine: EmbeddedEngine) -> None:
    run(engine, COUNTS)
    assert shown(engine) == {"C": ("RUNNING", "duckdb")}
    insert(engine, 0, 40)
    answer = run(engine, f"ALTER QUERY {query_id(engine).lower()} SET EXECUTOR = 'Spark';")
    assert answer["commandStatus"]["message"] == f"Executor of {query_id(engine)} set to spark."
    assert shown(engine) == {"C": ("RUNNING", "spark")}
    explained = run(engine, f"EXPLAIN {query_id(engine)};")["queryDescription"]
    assert explained["executor"] == "spark"
    described = run(engine, "DESCRIBE c;")["sourceDescription"]
    assert described["writeQueries"][0]["executor"] == "spark"
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


def test_a_query_in_error_goes_on_where_it_is_moved_to(
    engine: EmbeddedEngine, spark: SparkInProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_query, "BACKOFF_S", 0.01)
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
