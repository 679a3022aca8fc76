"""What a process of a backfill's crash test does: one engine whose query reads history on Spark, then more records."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from moved_queries import COUNTS, DUCKDB, STREAM, assert_counted_once, drained, engine_in, insert, run, shown, written
from spark_in_process import SparkInProcess
from waiting import eventually

from millstream.logcore.failpoints import arm

HISTORY, LATER = 200, 20
_BATCHES = {"millstream.spark.batch.records.max": "40"}
_LOCAL = {"spark.master": "local[2]", "spark.driver.memory": "512m"}


def prepare(directory: Path) -> None:
    """Writes the history."""
    with engine_in(directory, DUCKDB) as engine:
        run(engine, STREAM.format(3))
        insert(engine, 0, HISTORY)


def run_and_exit(directory: str, failpoints: str = "") -> None:
    """Until the query has left Spark, whose jobs run in this process, and has read everything; later records come in
    the process that gets so far. The end comes without any clean-up of the interpreter."""
    SparkInProcess(pytest.MonkeyPatch())
    _run(directory, DUCKDB, failpoints)


def run_on_pyspark(directory: str, failpoints: str = "") -> None:
    """The same in a JVM."""
    _run(directory, {**DUCKDB, **_LOCAL}, failpoints)


def _run(directory: str, properties: dict[str, str], failpoints: str) -> None:
    engine = engine_in(Path(directory), {**properties, **_BATCHES})
    arm(failpoints)
    if not engine.catalog.queries:
        run(engine, COUNTS.replace(" AS SELECT", " WITH (BACKFILL='spark') AS SELECT"))
    eventually(lambda: shown(engine) == {"C": ("RUNNING", "duckdb")}, 280)
    drained(engine)
    for row in range(len(written(engine, "s")), HISTORY + LATER):  # each alone: the next process goes on with them
        insert(engine, row, row + 1)
    drained(engine)
    engine.close()
    os._exit(0)


def check(directory: Path) -> None:
    """Each row counted once, wherever it was read."""
    with engine_in(directory, DUCKDB) as engine:
        assert_counted_once(engine, HISTORY + LATER)
