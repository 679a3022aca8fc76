"""Queries that want more cores than Spark has take turns, whatever their names are."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from spark_stages import plan_of

from millstream.executor.spark.batches import Round
from millstream.executor.spark.homes.known_homes import KnownHomes
from millstream.executor.spark.job_stages import REPORT_SCHEMA
from millstream.executor.spark.lanes import LaneRange
from millstream.executor.spark.markers import NO_BATCH
from millstream.executor.spark.spark_jobs import SparkJobs
from millstream.executor.spark.spark_session import spark_session
from millstream.executor.spark.spark_settings import SparkSettings
from millstream.executor.spark.spec import RunSpec
from millstream.logcore.client import TopicPartition
from millstream.planner.serde import plan_to_json

pytestmark = pytest.mark.spark

MANY = 30  # jobs of the others, after which one that has done none gets none


class SleepingJobs(SparkJobs):
    """Jobs of one task that holds a core and does nothing."""

    def _reports(self, round_: Round) -> Any:
        def sleep(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:  # a worker cannot import this module
            time.sleep(0.1)
            yield from (batch for batch in batches if not batch.num_rows)

        return self._session.range(0, 1, 1, 1).mapInArrow(sleep, REPORT_SCHEMA)


def test_a_query_gets_its_turn_while_others_have_work_without_end() -> None:
    """Of four on two cores at least two wait at any moment."""
    session = spark_session(SparkSettings.of({"spark.master": "local[2]", "spark.driver.memory": "512m"}))
    plan = plan_of("stateless", "SPARK")
    done: Counter[str] = Counter()
    over = threading.Event()
    work = Round(NO_BATCH, 0, [[LaneRange(TopicPartition("clicks", 0), 0, 1)]], {}, KnownHomes({}, 1))

    def run(name: str) -> None:
        jobs = SleepingJobs(session, RunSpec(plan_to_json(replace(plan, query_id=name)), "nowhere", "run"))
        try:
            while not over.is_set() and done.total() < MANY:
                jobs.run(work)
                done[name] += 1
        finally:
            over.set()

    threads = [threading.Thread(target=run, args=(name,)) for name in ("A", "B", "C", "Z")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert min(done[name] for name in ("A", "B", "C", "Z")) >= MANY // 6, done
