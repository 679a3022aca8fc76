"""A Sandbox on Spark whose jobs run in this process: the stages, buckets and transactions of Spark without a JVM.

run_cases.py --impl staged_sandbox:StagedSandbox --path tests/support --executor spark --final
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, ClassVar, cast

from jobs_in_process import DriverInProcess

from millstream.executor.queries.stepwise import StepwiseExecutor
from millstream.executor.sources.journal import JournaledLog
from millstream.executor.spark.sandbox import SparkSandboxExecutor
from millstream.executor.spark.spark_settings import SparkSettings
from millstream.logcore.client import LogClient
from millstream.testing import MakeExecutor, Sandbox


def _in_process(log: JournaledLog, properties: Mapping[str, str]) -> SparkSandboxExecutor:
    driver = DriverInProcess(cast(LogClient, log))
    return SparkSandboxExecutor(log, properties, session=_no_session, jobs=driver.jobs)


def _no_session(settings: SparkSettings) -> Any:
    return SimpleNamespace(sparkContext=SimpleNamespace(master=settings.master))


class StagedSandbox(Sandbox):
    """See `Sandbox`."""

    executors: ClassVar[Mapping[str, MakeExecutor]] = {"duckdb": StepwiseExecutor, "spark": _in_process}
