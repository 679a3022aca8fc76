"""Partitions that a topic gets while a query on Spark reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from jobs_in_process import DriverInProcess
from spark_stages import OnDuckDB, StagedRun, contents, plan_of, produce
from waiting import eventually

from millstream.executor.spark import spark_run
from millstream.executor.spark.spark_query import SparkQuery
from millstream.logcore.client import TopicPartition
from millstream.logcore.log import Log


@pytest.fixture
def make_query(log: Log, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[str], SparkQuery]]:
    monkeypatch.setattr(spark_run, "PARTITIONS_S", 0.01)
    driver = DriverInProcess(log)
    made: list[SparkQuery] = []

    def make(query: str) -> SparkQuery:
        plan = plan_of(query, "SPARK")
        made.append(SparkQuery(plan, log, driver.session, lambda: "nowhere", tmp_path, {}, jobs=driver.jobs))
        made[-1].start()
        return made[-1]

    yield make
    for each in made:
        each.stop()


def grow(log: Log, *topics: str) -> None:
    for topic in topics:
        log.add_partitions(topic, 6)


def has_read_all(log: Log, query: SparkQuery, *topics: str) -> bool:
    lanes = {TopicPartition(topic, n) for topic in topics for n in range(log.partition_count(topic))}

    def has_read() -> bool:
        status = query.status()
        assert status.state == "RUNNING", status.error
        return set(status.lag) == lanes and not any(status.lag.values())

    return eventually(has_read, 60)


def last_of_each_key(log: Log, topic: str) -> dict[tuple[int, object], tuple[object, ...]]:
    return {key: records[-1] for key, records in contents(log, topic).items()}


@pytest.mark.parametrize(("query", "topics"), [
    ("stateless", ("clicks",)),
    ("group by the key", ("clicks",)),  # rows of a key stay in the task that has counted it
    ("group by another column", ("clicks",)),
    ("join of tables", ("users",)),
])  # fmt: skip
def test_a_running_query_reads_them(
    log: Log, make_query: Callable[[str], SparkQuery], query: str, topics: tuple[str, ...]
) -> None:
    produce(log, 0, 60)
    running = make_query(query)
    assert has_read_all(log, running, *topics)
    grow(log, "clicks", "users")
    produce(log, 60, 120)
    assert has_read_all(log, running, *topics)
    duck = OnDuckDB(plan_of(query, "DUCK"), log)
    duck.drain()
    assert running.metrics.restarts == 0
    if query == "stateless":
        assert sorted(map(str, contents(log, "SPARK").items())) == sorted(map(str, contents(log, "DUCK").items()))
    assert last_of_each_key(log, "SPARK") == last_of_each_key(log, "DUCK") != {}


@pytest.mark.parametrize("query", ["final results", "tumbling window"])
def test_batches_that_are_cut_short_keep_the_order_of_partitions_that_share_a_task(log: Log, query: str) -> None:
    grow(log, "clicks", "users")
    produce(log, 0, 200)
    OnDuckDB(plan_of(query, "DUCK"), log).drain()
    run = StagedRun(plan_of(query, "SPARK"), log, "run", records_max=20)
    run.drain()
    assert contents(log, "SPARK") == contents(log, "DUCK") != {}
