"""Engines whose Spark runs its jobs in this process: queries move between both executors without a JVM."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from jobs_in_process import DriverInProcess

from millstream.executor.executor import Executor, ExecutorKind
from millstream.executor.spark import spark_executor
from millstream.executor.spark.spark_executor import SparkExecutor
from millstream.executor.spark.spark_settings import SparkSettings
from millstream.logcore.client import LogClient
from millstream.server.engine import executors

_make_executor = executors.make_executor


class SparkInProcess:
    """Stands where Spark stands, in all engines that are opened after it was made. State: `is_there`: what statements
    and starting queries find; `driver`: of the engine that was opened last, once a query has run on Spark."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_there = True
        self.driver: DriverInProcess | None = None
        self.unreachable: Exception | None = None
        monkeypatch.setattr(executors, "why_no_spark", lambda: None if self.is_there else "there is no Java runtime")
        monkeypatch.setattr(executors, "make_executor", self._executor)
        monkeypatch.setattr(spark_executor, "require_spark", lambda: None)

    def _executor(
        self,
        kind: ExecutorKind,
        client: LogClient,
        data_directory: Path | None,
        properties: Mapping[str, str],
        kafka_address: str | None = None,
    ) -> Executor:
        if kind == "duckdb":
            return _make_executor(kind, client, data_directory, properties, kafka_address)
        assert data_directory is not None
        driver = self.driver = DriverInProcess(client)
        folder = data_directory.with_name(f"{data_directory.name}-spark")

        def session(settings: SparkSettings) -> Any:
            if self.unreachable is not None:
                raise self.unreachable
            return driver.session()

        return SparkExecutor(client, folder, properties, session=session, jobs=driver.jobs)
