"""A query that leaves Spark itself, after the driver was killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from many_keys import ManyKeys
from moved_queries import COUNTS, DUCKDB, STREAM, assert_counted_once, drained, engine_in, insert, query_id, run, shown
from waiting import eventually

from millstream.executor.queries.query_log import marker_topic
from millstream.server.engine import executors
from millstream.server.engine.embedded import EmbeddedEngine

_KEYS = int(os.environ.get("MILLSTREAM_SOAK_MOVED_KEYS", "1000000"))
_LOCAL = {"spark.master": "local[2]", "spark.driver.memory": "512m"}


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_query_comes_back_from_a_spark_whose_driver_was_killed_in_the_middle_of_a_batch(tmp_path: Path) -> None:
    with engine_in(tmp_path, {**DUCKDB, **_LOCAL}) as engine:
        run(engine, STREAM.format(2) + COUNTS)
        insert(engine, 0, 40)
        drained(engine)
        run(engine, f"ALTER QUERY {query_id(engine)} SET EXECUTOR = 'spark';")
        insert(engine, 40, 80)
        drained(engine, timeout_s=280)  # Spark starts
        driver = driver_id()
        before = marker_ends(engine)
        insert(engine, 80, 4_000)
        eventually(lambda: marker_ends(engine) != before)
        os.kill(driver, signal.SIGKILL)
        run(engine, f"ALTER QUERY {query_id(engine)} SET EXECUTOR = 'duckdb';")
        assert shown(engine) == {"C": ("RUNNING", "duckdb")}
        insert(engine, 4_000, 4_040)
        drained(engine)
        assert_counted_once(engine, 4_040)


@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_a_query_with_a_million_keys_comes_back_exactly_and_spark_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine_in(tmp_path, {**DUCKDB, **_LOCAL}) as engine:
        run(engine, STREAM.format(3) + COUNTS)
        keys = ManyKeys(engine.log, _KEYS, seed=1)
        keys.send_each()
        drained(engine, timeout_s=1_800)
        run(engine, f"ALTER QUERY {query_id(engine)} SET EXECUTOR = 'spark';")
        keys.send(_KEYS // 4)
        drained(engine, timeout_s=1_800)
        before = marker_ends(engine)
        keys.send(_KEYS // 4)
        eventually(lambda: marker_ends(engine) != before, 600)
        os.kill(driver_id(), signal.SIGKILL)
        monkeypatch.setattr(executors, "why_no_spark", lambda: "there is no Java runtime")
        run(engine, f"ALTER QUERY {query_id(engine)} SET EXECUTOR = 'duckdb';")
        keys.send(_KEYS // 4)
        drained(engine, timeout_s=1_800)
        assert shown(engine) == {"C": ("RUNNING", "duckdb")}
        assert keys.differences("C") == []


def driver_id() -> int:
    """The process of the JVM."""
    context = pytest.importorskip("pyspark").SparkContext
    return int(context._jvm.java.lang.ProcessHandle.current().pid())


def marker_ends(engine: EmbeddedEngine) -> list[int]:
    """Where the markers end that say what each bucket has done."""
    topic = marker_topic(query_id(engine))
    return [engine.log.offsets(topic, n).last_stable_offset for n in range(engine.log.partition_count(topic))]
