"""A query that leaves Spark itself, after the driver was killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from moved_queries import COUNTS, DUCKDB, STREAM, assert_counted_once, drained, engine_in, insert, query_id, run, shown
from waiting import eventually

from millstream.executor.queries.query_log import marker_topic
from millstream.server.engine.embedded import EmbeddedEngine


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_query_comes_back_from_a_spark_whose_driver_was_killed_in_the_middle_of_a_batch(tmp_path: Path) -> None:
    local = {"spark.master": "local[2]", "spark.driver.memory": "512m"}
    with engine_in(tmp_path, {**DUCKDB, **local}) as engine:
        run(engine, STREAM.format(2) + COUNTS)
        insert(engine, 0, 40)
        drained(engine)
        run(engine, f"ALTER QUERY {query_id(engine)} SET EXECUTOR = 'spark';")
        insert(engine, 40, 80)
        drained(engine, timeout_s=280)  # Spark starts
        context = pytest.importorskip("pyspark").SparkContext
        driver = int(context._jvm.java.lang.ProcessHandle.current().pid())
        before = marker_ends(engine)
        insert(engine, 80, 4_000)
        eventually(lambda: marker_ends(engine) != before)
        os.kill(driver, signal.SIGKILL)
        run(engine, f"ALTER QUERY {query_id(engine)} SET EXECUTOR = 'duckdb';")
        assert shown(engine) == {"C": ("RUNNING", "duckdb")}
        insert(engine, 4_000, 4_040)
        drained(engine)
        assert_counted_once(engine, 4_040)


def marker_ends(engine: EmbeddedEngine) -> list[int]:
    """Where the markers end that say what each bucket has done."""
    topic = marker_topic(query_id(engine))
    return [engine.log.offsets(topic, n).last_stable_offset for n in range(engine.log.partition_count(topic))]
