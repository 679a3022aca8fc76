"""Queries that move from DuckDB to Spark's stages and back: each change once, also where two want the query at once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from jobs_in_process import DriverInProcess
from spark_stages import OnDuckDB, StagedRun, contents, create_topics, plan_of, produce

from millstream.executor.queries.query import QueryRuntime
from millstream.executor.spark import alignment
from millstream.executor.spark.alignment import take_from_spark
from millstream.executor.spark.batch_size import BatchSize
from millstream.executor.spark.bucket import BucketRuntime, bucket_id
from millstream.executor.spark.markers import StaleRun
from millstream.executor.spark.spark_run import SparkRun
from millstream.executor.spark.spec import RunSpec
from millstream.executor.spark.stages import Stages
from millstream.logcore.client import LogClient
from millstream.logcore.errors import ProducerFenced
from millstream.logcore.log import open_log
from millstream.planner.physical import PhysicalPlan
from millstream.planner.serde import plan_to_json

SHAPES = (
    "group by another column",
    "tumbling window",
    "final results",
    "join with a table",
    "join by a foreign key",
    "join of streams",
    "average of maxima",
    "the first of each user",
)
COUNTS = "group by another column"
MANY_PARTITIONS = (COUNTS, "join with a table")
MOVED = {(query, 1 + number % 2) for number, query in enumerate(SHAPES)} | {(query, 6) for query in MANY_PARTITIONS}
"""Each shape moves with one partition or with two, some with more partitions than tasks; `make soak`: all with all."""


@pytest.fixture
def client(tmp_path: Path) -> Iterator[LogClient]:
    client = open_log(tmp_path / "log", sync="never")
    create_topics(client, "DUCK", "SPARK")
    yield client
    client.close()


def on_duckdb(plan: PhysicalPlan, client: LogClient, folder: Path | None = None) -> QueryRuntime:
    """As the DuckDB executor runs it."""
    return QueryRuntime(plan, client, folder, take_over=partial(take_from_spark, plan, client, {}))


def drain(runtime: QueryRuntime) -> None:
    while runtime.step():
        pass


def spark_run(plan: PhysicalPlan, client: LogClient, run: str) -> SparkRun:
    """As a SparkQuery runs it, with jobs in this process."""
    spec = RunSpec(plan_to_json(plan), "nowhere", run)
    jobs = DriverInProcess(client).jobs(None, spec)
    return SparkRun(plan, client, spec, jobs.run, lambda: 2, BatchSize(10**6), {})


@pytest.mark.parametrize(
    ("query", "partitions"),
    [
        pytest.param(*case, marks=() if case in MOVED else pytest.mark.soak)
        for case in itertools.product(SHAPES, (1, 2, 6))
    ],
)
def test_a_query_that_moves_to_and_fro_writes_what_one_writes_that_stays(
    query: str, partitions: int, tmp_path: Path
) -> None:
    client = open_log(tmp_path / "log", sync="never")
    create_topics(client, "DUCK", "SPARK", partitions=partitions)
    stays, moves = (plan_of(query, sink, partitions) for sink in ("DUCK", "SPARK"))
    duck = OnDuckDB(stays, client)

    def more(begin: int, end: int) -> None:
        produce(client, begin, end)
        duck.drain()

    for round_ in range(2):  # in the second one each finds the caches that it has left behind
        at = round_ * 160
        here = on_duckdb(moves, client, tmp_path / "state")
        more(at, at + 50)
        drain(here)
        here.close()
        more(at + 50, at + 70)  # nobody reads this before Spark does
        spark = StagedRun(moves, client, f"run {round_}", tmp_path / "buckets")
        spark.drain()
        more(at + 70, at + 110)
        spark.drain()
        more(at + 110, at + 130)
        spark.step(only={0})  # and here the driver is killed
        spark.close()
        here = on_duckdb(moves, client, tmp_path / "state")
        more(at + 130, at + 160)
        drain(here)
        here.close()
    duck.close()
    assert contents(client, "SPARK") == contents(client, "DUCK") != {}
    client.close()


def test_a_task_of_a_run_that_is_over_does_not_stop_who_takes_the_query(
    client: LogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(COUNTS, "SPARK")
    spark = StagedRun(plan, client, "run")
    produce(client, 0, 60)
    spark.step(only={1})
    compute = BucketRuntime._compute
    disturbed: list[str] = []

    def disturb(runtime: BucketRuntime, *arguments: Any) -> object:
        if runtime.run == alignment.NO_RUN and not disturbed:
            disturbed.append("once")
            for bucket in range(3):  # a task that Spark tries again takes its bucket first, and then looks whose it is
                client.transactional_producer(bucket_id(plan.query_id, bucket))
        return compute(runtime, *arguments)

    monkeypatch.setattr(BucketRuntime, "_compute", disturb)
    runtime = on_duckdb(plan, client)
    drain(runtime)
    runtime.close()
    OnDuckDB(plan_of(COUNTS, "DUCK"), client).drain()
    assert disturbed
    assert contents(client, "SPARK") == contents(client, "DUCK")


@pytest.mark.parametrize("moment", ["spark.aligning", "spark.aligned"])
def test_a_run_that_begins_too_slowly_does_nothing_once_duckdb_has_the_query(
    moment: str, client: LogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(COUNTS, "SPARK")
    StagedRun(plan, client, "first").close()
    produce(client, 0, 60)
    taken: list[QueryRuntime] = []
    moments = [moment]  # once: DuckDB comes by here as well

    def meanwhile(name: str) -> None:
        if name in moments:
            moments.clear()
            taken.append(on_duckdb(plan, client))
            drain(taken[0])

    monkeypatch.setattr(alignment, "fp", meanwhile)
    with pytest.raises((ProducerFenced, StaleRun)):
        spark_run(plan, client, "slow").step()
    produce(client, 60, 120)
    drain(taken[0])
    taken[0].close()
    again = on_duckdb(plan, client)
    drain(again)
    again.close()
    OnDuckDB(plan_of(COUNTS, "DUCK"), client).drain()
    assert contents(client, "SPARK") == contents(client, "DUCK") != {}


def test_markers_that_a_slow_run_writes_last_are_believed_by_nobody(
    client: LogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(COUNTS, "SPARK")
    StagedRun(plan, client, "first").close()
    produce(client, 0, 60)
    taken: list[QueryRuntime] = []
    begin_run: Callable[..., Any] = alignment._begin_run

    def slow(stages: Stages, run: str, *rest: Any) -> Any:
        if run == "slow" and not taken:
            taken.append(on_duckdb(plan, client))
        return begin_run(stages, run, *rest)

    monkeypatch.setattr(alignment, "_begin_run", slow)
    with pytest.raises((ProducerFenced, StaleRun)):
        spark_run(plan, client, "slow").step()
    drain(taken[0])
    taken[0].close()
    OnDuckDB(plan_of(COUNTS, "DUCK"), client).drain()
    assert contents(client, "SPARK") == contents(client, "DUCK") != {}


def test_a_runtime_that_recovers_takes_the_query_from_a_run_that_began_meanwhile(client: LogClient) -> None:
    plan = plan_of(COUNTS, "SPARK")
    runtime = on_duckdb(plan, client)
    produce(client, 0, 60)
    drain(runtime)
    spark = spark_run(plan, client, "run")
    produce(client, 60, 120)
    assert spark.step() is not None
    runtime.close()  # and so the next step recovers
    produce(client, 120, 180)
    drain(runtime)
    with pytest.raises((ProducerFenced, StaleRun)):
        spark.step()
    produce(client, 180, 240)
    with pytest.raises((ProducerFenced, StaleRun)):
        spark.step()
    drain(runtime)
    runtime.close()
    OnDuckDB(plan_of(COUNTS, "DUCK"), client).drain()
    assert contents(client, "SPARK") == contents(client, "DUCK")
