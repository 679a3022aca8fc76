"""A subplan's part of a batch as one ordinary Spark job.

Structured Streaming would plan the batches in a process for each query, and write down offsets that nobody believes:
positions live in the log. So a job is nothing but DataFrame operations, and Spark knows nothing of streams.

All queries share one pool of Spark's scheduler, in which the job that was submitted first comes first. A query has one
job at a time, so queries take turns, whatever waits for each: a batch goes on before later ones begin. With a pool for
each, those without a running task are served by their *names*, and while cores are scarce the last ones get none.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

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
    """How many tasks of a job run, and how many are done."""

    active: int
    completed: int


class Jobs(Protocol):
    """Runs the batches of one run."""

    @property
    def parallelism(self) -> int:
        """How many tasks run side by side at this moment."""
        ...

    def run(self, round_: Round) -> Sequence[Report]:
        """What each bucket did that the round has rows of."""
        ...

    def cancel(self) -> None:
        """Ends the job that is under way; `run` raises then."""
        ...

    def tasks(self) -> TaskCounts | None:
        """Of the job that is under way; None where there is none."""
        ...


MakeJobs = Callable[["SparkSession", RunSpec], Jobs]


class SparkJobs:
    """Runs a run's batches as jobs. They are a group by the run's name."""

    def __init__(self, session: SparkSession, spec: RunSpec) -> None:
        self._session = session
        self._context: Any = session.sparkContext
        self._spec = spec
        self._spec_json = spec.to_json()
        self._group = f"{spec.query_id}-{spec.run}"

    @property
    def parallelism(self) -> int:
        """How many tasks the executors of this moment run side by side."""
        return max(1, int(self._context.defaultParallelism))

    def run(self, round_: Round) -> list[Report]:
        """What each bucket did that the round has rows of. Spark's errors pass through."""
        count, records = len(self._spec.stages.subplans), f"{round_.record_count:,} records"
        part = f", part {round_.subplan + 1} of {count}" if count > 1 else ""
        try:
            with self._described(f"{self._spec.query_id}: {records}{part}"):
                return [Report(**row.asDict()) for row in self._reports(round_).collect()]
        except (AttributeError, AssertionError) as error:
            if self._context._jsc is None:  # all that PySpark says of it is that None has no attributes
                raise SparkUnavailable("Spark was ended, and is started again") from error
            raise

    def cancel(self) -> None:
        """Ends the job that is under way; `run` raises then."""
        self._context.cancelJobGroup(self._group)

    def tasks(self) -> TaskCounts | None:
        """Of the job that is under way; None where there is none."""
        tracker: Any = self._context.statusTracker()
        infos = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self._group)]
        running = [info for info in infos if info is not None and info.status == "RUNNING"]
        stages = [found for info in running for stage in info.stageIds if (found := tracker.getStageInfo(stage))]
        if not stages:
            return None
        return TaskCounts(sum(stage.numActiveTasks for stage in stages), sum(each.numCompletedTasks for each in stages))

    def _reports(self, round_: Round) -> DataFrame:
        """Each bucket's pieces come together in one task; where a bucket is what one task has read, they are there
        already."""
        count, subplan = len(round_.tasks), self._spec.stages.subplans[round_.subplan]
        numbers = self._session.range(0, count, 1, count)  # a partition for each
        reading = self._spec_json, round_.subplan, round_.tasks, round_.topics
        if not subplan.shuffled:
            return numbers.mapInArrow(ReadAndApplyStage(*reading, round_.batch), REPORT_SCHEMA)
        pieces = numbers.mapInArrow(ReadStage(*reading), PIECE_SCHEMA)
        tasks = min(self.parallelism, subplan.bucket_count)
        together = pieces.repartitionById(tasks, pieces["bucket"] % tasks)
        return together.mapInArrow(ApplyStage(self._spec_json, round_.batch), REPORT_SCHEMA)

    @contextlib.contextmanager
    def _described(self, text: str) -> Generator[None]:
        """Spark keeps these by thread, and a query has a thread of its own only in a server."""
        self._context.setLocalProperty("spark.scheduler.pool", POOL)
        self._context.setJobGroup(self._group, text)
        try:
            yield
        finally:
            for name in ("spark.scheduler.pool", "spark.jobGroup.id", "spark.job.description"):
                self._context.setLocalProperty(name, None)
