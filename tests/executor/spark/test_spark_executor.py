"""Queries on Spark itself: the same records as on DuckDB, also when tasks die, and the life of a query."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest
from drawn import sampled
from spark_stages import MakeSparkExecutor, OnDuckDB, contents, plan_of, produce

from millstream.executor.errors import QueryFailed, UnknownQuery
from millstream.executor.spark import spark_trouble
from millstream.executor.spark.batches import Round
from millstream.executor.spark.bucket import Report
from millstream.executor.spark.spark_executor import SparkExecutor
from millstream.executor.spark.spark_jobs import SparkJobs
from millstream.executor.spark.spark_session import spark_session
from millstream.executor.spark.spark_settings import SparkSettings
from millstream.logcore.client import LogClient
from millstream.logcore.log import Log
from millstream.planner.catalog import PersistentQuery
from millstream.planner.physical import PhysicalPlan

pytestmark = pytest.mark.spark


def query(plan: PhysicalPlan) -> PersistentQuery:
    return PersistentQuery(plan.query_id, "", plan, "SPARK", ("CLICKS",), "CREATE_AS")


def eventually(condition: Callable[[], bool], timeout_s: float = 120.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


@pytest.mark.parametrize(
    "name",
    ["stateless", "tumbling window", "group by another column", "join with a table", "the first of each user"],
)
def test_both_executors_write_the_same_records(name: str, log: LogClient, make_executor: MakeSparkExecutor) -> None:
    duck, spark = OnDuckDB(plan_of(name, "DUCK"), log), make_executor().query(query(plan_of(name, "SPARK")))
    for begin in (0, 100):
        produce(log, begin, begin + 100)
        duck.drain()
        spark.run_available()
    assert contents(log, "SPARK") == contents(log, "DUCK") != {}


def test_a_query_runs_pauses_goes_on_and_is_dropped(log: LogClient, make_executor: MakeSparkExecutor) -> None:
    executor, duck = make_executor(), OnDuckDB(plan_of("group by another column", "DUCK"), log)
    plan = plan_of("group by another column", "SPARK")
    produce(log, 0, 50)
    executor.start(query(plan))
    eventually(lambda: executor.status(plan.query_id).metrics.rows_in == 50)
    metrics = executor.status(plan.query_id).metrics
    assert (metrics.rows_used, metrics.rows_failed, metrics.rows_out) == (48, 2, 48)
    executor.pause(plan.query_id)
    produce(log, 50, 100)
    assert executor.status(plan.query_id).state == "PAUSED"
    assert sum(executor.status(plan.query_id).lag.values()) == 50
    executor.resume(plan.query_id)
    eventually(lambda: sum(executor.status(plan.query_id).lag.values()) == 0)
    duck.drain()
    assert {key: len(records) for key, records in contents(log, "SPARK").items()} == {
        key: len(records) for key, records in contents(log, "DUCK").items()
    }
    executor.drop(plan.query_id)
    with pytest.raises(UnknownQuery):
        executor.status(plan.query_id)
    assert not [topic for topic in log.topics() if plan.query_id in topic]


@pytest.mark.parametrize("name", sampled(["group by another column", "group by the key"], 2))
def test_tasks_that_die_are_run_again_without_a_trace(
    name: str, log: LogClient, make_executor: MakeSparkExecutor
) -> None:
    executor, duck = make_executor(), OnDuckDB(plan_of(name, "DUCK"), log)
    environment = spark_session(SparkSettings.of({})).sparkContext.environment
    # The first bucket of a process passes; its second dies with an open transaction, or right after its commit.
    environment["MILLSTREAM_FP"] = (
        "spark.bucket_written:2:kill9" if "another" in name else "spark.bucket_committed:2:kill9"
    )
    try:
        for begin in (0, 100):
            produce(log, begin, begin + 100)
            duck.drain()
            executor.query(query(plan_of(name, "SPARK"))).run_available()
    finally:
        del environment["MILLSTREAM_FP"]
    assert contents(log, "SPARK") == contents(log, "DUCK") != {}


@pytest.mark.soak
def test_a_running_query_reads_the_partitions_that_its_topic_gets(log: Log, make_executor: MakeSparkExecutor) -> None:
    executor, plan = make_executor(), plan_of("group by another column", "SPARK")
    produce(log, 0, 50)
    executor.start(query(plan))
    eventually(lambda: executor.status(plan.query_id).metrics.rows_in == 50)
    log.add_partitions("clicks", 6)
    produce(log, 50, 150)
    eventually(lambda: executor.status(plan.query_id).metrics.rows_in == 150)
    assert executor.status(plan.query_id).metrics.restarts == 0
    assert_same_in_the_end(log, plan)


@pytest.mark.soak
def test_a_batch_with_which_workers_die_gets_smaller(
    log: Log, make_executor: MakeSparkExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_trouble, "LOST_MIN", 10)
    executor, plan = make_executor(), plan_of("group by another column", "SPARK")
    produce(log, 0, 100)
    environment = spark_session(SparkSettings.of({})).sparkContext.environment
    environment["MILLSTREAM_FP"] = "spark.bucket_processed:1:kill9"
    try:
        executor.start(query(plan))
        eventually(lambda: "the next batch has at most 50 records" in str(executor.status(plan.query_id).error))
    finally:
        del environment["MILLSTREAM_FP"]
    eventually(lambda: executor.status(plan.query_id).metrics.rows_in == 100)
    assert executor.status(plan.query_id).metrics.batches > 1
    assert_same_in_the_end(log, plan)


def assert_same_in_the_end(log: Log, plan: PhysicalPlan) -> None:
    OnDuckDB(plan_of("group by another column", "DUCK"), log).drain()
    last = [{key: records[-1] for key, records in contents(log, topic).items()} for topic in ("SPARK", "DUCK")]
    assert last[0] == last[1] != {}


class NotedJobs(SparkJobs):
    """State: `noted` has all reports."""

    noted: ClassVar[list[Report]] = []

    def run(self, round_: Round) -> list[Report]:
        reports = super().run(round_)
        self.noted.extend(reports)
        return reports


def test_a_buckets_state_stays_in_one_worker_from_batch_to_batch_and_run_to_run(log: Log, tmp_path: Path) -> None:
    NotedJobs.noted.clear()
    settings = {"spark.master": "local[2]", "spark.driver.memory": "512m"}
    executor = SparkExecutor(log, tmp_path / "queries", settings, jobs=NotedJobs)
    spark = executor.query(query(plan_of("group by another column", "SPARK")))
    for begin in range(0, 300, 60):
        produce(log, begin, begin + 60)
        spark.run_available()
    executor.close()
    homes = {(report.bucket, report.home) for report in NotedJobs.noted}
    assert {bucket for bucket, _ in homes} == {0, 1, 2}
    assert len(homes) == 3
    assert "" not in dict(homes).values()
    assert_same_in_the_end(log, plan_of("group by another column", "SPARK"))


def test_a_query_that_cannot_run_says_why(log: LogClient, make_executor: MakeSparkExecutor) -> None:
    produce(log, 0, 10)
    plan = plan_of("stateless", "NOWHERE")
    with pytest.raises(QueryFailed, match="NOWHERE"):
        make_executor().query(query(plan)).run_available()
