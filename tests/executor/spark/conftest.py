"""One Spark session for all tests that need one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from spark_stages import MakeSparkExecutor, create_topics

from millstream.executor.spark.spark_executor import SparkExecutor
from millstream.logcore.log import Log, open_log

MASTER = {"spark.master": "local[2]", "spark.driver.memory": "512m"}


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    log = open_log(tmp_path / "log", sync="never")
    create_topics(log, "DUCK", "SPARK")
    yield log
    log.close()


@pytest.fixture
def make_executor(log: Log, tmp_path: Path) -> Iterator[MakeSparkExecutor]:
    """Makes executors over the log, all in the same session."""
    made: list[SparkExecutor] = []

    def make(**properties: str) -> SparkExecutor:
        made.append(SparkExecutor(log, tmp_path / f"queries-{len(made)}", {**MASTER, **properties}))
        return made[-1]

    yield make
    for executor in made:
        executor.close()
