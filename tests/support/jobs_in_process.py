"""A driver of Spark's that runs each job in this process, fails when it is told to, and may hang."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from millstream.executor.spark.batches import Round
from millstream.executor.spark.bucket import BucketRuntime, Report
from millstream.executor.spark.markers import BatchId
from millstream.executor.spark.pieces import Piece
from millstream.executor.spark.spark_jobs import TaskCounts
from millstream.executor.spark.spec import RunSpec
from millstream.executor.spark.stage_one import StageOne
from millstream.logcore.client import LogClient


class JavaError(Exception):
    """As PySpark passes an error of the JVM on."""

    __module__ = "pyspark.errors.exceptions.captured"


@dataclass
class DriverInProcess:
    """State: `failures` are raised by the next jobs, one each; while `hangs` is set, a job does nothing until it is
    cancelled, or for ever where `deaf` is set as well. `room`: jobs with more records run out of memory.
    `buckets_left`: once so many have done their share, the driver is gone, in the middle of a batch."""

    client: LogClient
    failures: list[Exception] = field(default_factory=list)
    hangs: threading.Event = field(default_factory=threading.Event)
    deaf: bool = False
    room: int = 10**9
    buckets_left: int | None = None
    record_counts: list[int] = field(default_factory=list)
    job_began: threading.Event = field(default_factory=threading.Event)
    counts: TaskCounts = field(default_factory=lambda: TaskCounts(1, 0))

    @property
    def session(self) -> Callable[[], Any]:
        return lambda: SimpleNamespace(sparkContext=SimpleNamespace(master="local[2]"))

    def jobs(self, session: object, spec: RunSpec) -> JobsInProcess:
        """Stands where `SparkJobs` stands."""
        return JobsInProcess(self, spec)


class JobsInProcess:
    """The jobs of one run."""

    parallelism = 2

    def __init__(self, driver: DriverInProcess, spec: RunSpec) -> None:
        self._driver = driver
        self._spec = spec
        self._cancelled = threading.Event()

    def run(self, round_: Round) -> Sequence[Report]:
        self._driver.job_began.set()
        if self._driver.failures:
            raise self._driver.failures.pop(0)
        self._driver.record_counts.append(round_.record_count)
        if round_.record_count > self._driver.room:
            raise JavaError("Traceback\nMemoryError: Unable to allocate 3 GiB")
        while self._driver.hangs.is_set():
            if self._cancelled.wait(0.01) and not self._driver.deaf:
                raise JavaError("Job 0 cancelled part of cancelled job group")
        return self._reports(round_)

    def cancel(self) -> None:
        self._cancelled.set()

    def tasks(self) -> TaskCounts | None:
        return self._driver.counts

    def _reports(self, round_: Round) -> list[Report]:
        stages = self._spec.stages
        reading = StageOne(stages, stages.subplans[round_.subplan], self._driver.client)
        pieces: dict[int, list[Piece]] = {}
        for task in round_.tasks:
            for bucket, piece in reading.read(task, round_.topics):
                pieces.setdefault(bucket, []).append(piece)
        reading.close()
        return [self._apply(bucket, own, round_.batch) for bucket, own in pieces.items()]

    def _apply(self, bucket: int, pieces: list[Piece], batch: BatchId) -> Report:
        spec = self._spec
        if self._driver.buckets_left is not None:
            if not self._driver.buckets_left:
                raise ConnectionRefusedError("[Errno 111] Connection refused")
            self._driver.buckets_left -= 1
        runtime = BucketRuntime(spec.stages, bucket, spec.run, self._driver.client, spec.properties)
        try:
            return runtime.apply(pieces, batch)
        finally:
            runtime.close()
