"""Runs a subplan's part of a batch as one ordinary Spark job.

We do not use Structured Streaming: it would plan the batches in one process per query, and store offsets that we would
not use, because positions are in the log. So a job consists of DataFrame operations only, and Spark does not know about
streams.

All queries share one pool of Spark's scheduler, which runs the job first that was submitted first. A query has one job
at a time, so queries take turns, however much input waits for each of them, and a batch continues before later ones
begin. With one pool per query, Spark would order pools without a running task by their *names*, and while cores are
scarce the last ones would get none.
"""

from __future__ import annotations

import contextlib
import functools
import secrets
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from ...sql.settings.property import says_true
from ..errors import SparkUnavailable
from .batches import Round
from .bucket import Report
from .job_stages import PIECE_SCHEMA, REPORT_SCHEMA, ApplyStage, ReadAndApplyStage, ReadStage
from .spec import RunSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


POOL = "millstream"


@dataclass(frozen=True, slots=True)
class TaskCounts:
    """How many tasks of a job are running, and how many are done."""

    active: int
    completed: int


class Jobs(Protocol):
    """Runs the batches of one run."""

    @property
    def parallelism(self) -> int:
        """How many tasks can run in parallel at this moment."""
        ...

    def run(self, round_: Round) -> Sequence[Report]:
        """The reports of the buckets for which the round has rows."""
        ...

    def cancel(self) -> None:
        """Cancels the current job; `run` then raises."""
        ...

    def tasks(self) -> TaskCounts | None:
        """The tasks of the current job; None if no job runs."""
        ...


MakeJobs = Callable[["SparkSession", RunSpec], Jobs]


_ENCRYPTION = ("spark.network.crypto.enabled", "spark.ssl.enabled", "spark.ssl.rpc.enabled")


@functools.cache
def _home_secret() -> str:
    return secrets.token_hex(32)


def with_homes(spec: RunSpec, settings: Any) -> RunSpec:
    """The run with homes for its buckets. Without them if the application encrypts what its processes send each other:
    what goes to a home is not encrypted. In: `settings`: the `SparkConf` of the application."""
    if any(says_true(settings.get(name, "")) for name in _ENCRYPTION):
        return spec
    return replace(spec, home_secret=_home_secret(), driver_host=settings.get("spark.driver.host", "127.0.0.1"))


class SparkJobs:
    """Runs the batches of one run as Spark jobs, in a job group with the run's name."""

    def __init__(self, session: SparkSession, spec: RunSpec) -> None:
        self._session = session
        self._context: Any = session.sparkContext
        self._spec = with_homes(spec, self._context.getConf())
        self._spec_json = self._spec.to_json()
        self._group = f"{spec.query_id}-{spec.run}"

    @property
    def parallelism(self) -> int:
        """How many tasks the current executors can run in parallel."""
        return max(1, int(self._context.defaultParallelism))

    def run(self, round_: Round) -> list[Report]:
        """The reports of the buckets for which the round has rows. Raises the errors of Spark."""
        count, records = len(self._spec.stages.subplans), f"{round_.record_count:,} records"
        part = f", part {round_.subplan + 1} of {count}" if count > 1 else ""
        try:
            with self._described(f"{self._spec.query_id}: {records}{part}"):
                return [Report(**row.asDict()) for row in self._reports(round_).collect()]
        except (AttributeError, AssertionError) as error:
            if self._context._jsc is None:  # Spark was ended; PySpark only reports that None has no such attribute
                raise SparkUnavailable("Spark was ended, and is started again") from error
            raise

    def cancel(self) -> None:
        """Cancels the current job; `run` then raises."""
        self._context.cancelJobGroup(self._group)

    def tasks(self) -> TaskCounts | None:
        """The tasks of the current job; None if no job runs."""
        tracker: Any = self._context.statusTracker()
        infos = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self._group)]
        running = [info for info in infos if info is not None and info.status == "RUNNING"]
        stages = [found for info in running for stage in info.stageIds if (found := tracker.getStageInfo(stage))]
        if not stages:
            return None
        return TaskCounts(sum(stage.numActiveTasks for stage in stages), sum(each.numCompletedTasks for each in stages))

    def _reports(self, round_: Round) -> DataFrame:
        """The data frame with the reports. Spark moves all pieces of a bucket to one task. If one task reads all rows
        of a bucket, there is nothing to move, and both stages run in that task."""
        count, subplan = len(round_.tasks), self._spec.stages.subplans[round_.subplan]
        numbers = self._session.range(0, count, 1, count)  # one partition per task
        reading = self._spec_json, round_.subplan, round_.tasks, round_.topics
        if not subplan.shuffled:
            return numbers.mapInArrow(ReadAndApplyStage(*reading, round_.batch, round_.homes), REPORT_SCHEMA)
        pieces = numbers.mapInArrow(ReadStage(*reading), PIECE_SCHEMA)
        tasks = min(self.parallelism, subplan.bucket_count)
        together = pieces.repartitionById(tasks, pieces["bucket"] % tasks)
        return together.mapInArrow(ApplyStage(self._spec_json, round_.batch, round_.homes), REPORT_SCHEMA)

    @contextlib.contextmanager
    def _described(self, text: str) -> Generator[None]:
        """Sets pool, group and description of the job, and removes them afterwards: Spark keeps them per thread, and
        only in a server does a query have its own thread."""
        self._context.setLocalProperty("spark.scheduler.pool", POOL)
        self._context.setJobGroup(self._group, text)
        try:
            yield
        finally:
            for name in ("spark.scheduler.pool", "spark.jobGroup.id", "spark.job.description"):
                self._context.setLocalProperty(name, None)
