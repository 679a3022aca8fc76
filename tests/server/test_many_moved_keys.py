"""A query with many keys goes from DuckDB to Spark, whose driver is killed, and back: each row is counted once. Jobs
run in this process; `make soak` does the same with Spark itself and a million keys (`test_moved_from_spark.py`)."""

from __future__ import annotations

from pathlib import Path

import pytest
from many_keys import ManyKeys
from moved_queries import COUNTS, DUCKDB, STREAM, drained, engine_in, query_id, run, shown
from spark_in_process import SparkInProcess
from waiting import eventually

from millstream.executor.errors import SparkUnavailable

KEYS, MORE = 3_000, 1_500


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 12))])
def test_each_row_is_counted_once_where_the_driver_dies_in_the_middle_of_a_batch(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seed: int
) -> None:
    spark = SparkInProcess(monkeypatch)
    with engine_in(tmp_path, DUCKDB) as engine:
        run(engine, STREAM.format(3) + COUNTS)
        keys = ManyKeys(engine.log, KEYS, seed)
        keys.send_each()
        drained(engine)
        run(engine, f"ALTER QUERY {query_id(engine)} SET EXECUTOR = 'spark';")
        keys.send(MORE)
        drained(engine)
        assert spark.driver is not None
        spark.driver.buckets_left = seed % 3
        spark.unreachable = SparkUnavailable("Spark does not start with master spark://gone:7077")
        keys.send(MORE)
        eventually(lambda: "does not start" in str(engine.executor.status(query_id(engine)).error))
        spark.is_there = False
        run(engine, f"ALTER QUERY {query_id(engine)} SET EXECUTOR = 'duckdb';")
        keys.send(MORE)
        drained(engine)
        assert shown(engine) == {"C": ("RUNNING", "duckdb")}
        assert keys.differences("C") == []


def test_what_is_counted_twice_or_never_is_told(tmp_path: Path) -> None:
    with engine_in(tmp_path, DUCKDB) as engine:
        run(engine, STREAM.format(2) + COUNTS)
        keys = ManyKeys(engine.log, 50, 1)
        keys.send_each()
        keys.send(100)
        drained(engine)
        assert keys.differences("C") == []
        missing = int(keys.groups[1][0])
        keys.groups[1], keys.values[1] = keys.groups[1][1:], keys.values[1][1:]
        ((group, *_),) = keys.differences("C")
        assert group == missing
