"""The two stages without Spark: the same records as the DuckDB executor, each once, whatever is cut short."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from drawn import sampled
from hand_plans import INPUT, count_plan, read_all, rows
from spark_stages import QUERIES, OnDuckDB, StagedRun, contents, create_topics, plan_of, produce

from millstream.executor import processing_log
from millstream.executor.queries.duckdb_executor import DuckDBExecutor
from millstream.executor.queries.query import QueryRuntime
from millstream.executor.queries.query_log import marker_topic, repartition_topic
from millstream.executor.spark.alignment import take_from_spark
from millstream.executor.spark.markers import NO_BATCH, StaleRun, check_run
from millstream.executor.spark.stages import split
from millstream.logcore.client import LogClient
from millstream.logcore.log import open_log
from millstream.planner.physical import PhysicalPlan
from millstream.planner.specs import SqlExpression
from millstream.planner.steps.aggregate import Aggregate
from millstream.planner.steps.project import Project
from millstream.planner.steps.sink import Sink
from millstream.sql.types import BIGINT, STRING

SUBPLANS = {
    "count of a table": 2,
    "join by a foreign key": 3,
    "the changes of each page": 2,
    "average of maxima": 2,
    "rows of a stream and of a table": 4,
    "rows of two aggregates": 3,
}
"""Of queries whose rows change their task behind state: one more for each such change. All others have one."""


@pytest.fixture
def client(tmp_path: Path) -> Iterator[LogClient]:
    client = open_log(tmp_path / "log", sync="never")
    create_topics(client, "DUCK", "SPARK")
    yield client
    client.close()


@pytest.mark.parametrize("query", QUERIES)
def test_both_executors_write_the_same_records(query: str, client: LogClient, tmp_path: Path) -> None:
    duck, run = OnDuckDB(plan_of(query, "DUCK"), client), StagedRun(plan_of(query, "SPARK"), client, "run", tmp_path)
    for begin in range(0, 200, 100):
        produce(client, begin, begin + 100)
        duck.drain()
        run.drain()
    assert contents(client, "SPARK") == contents(client, "DUCK") != {}


def test_each_subplan_has_a_bucket_per_task() -> None:
    buckets = {query: [each.bucket_count for each in split(plan_of(query, "SINK")).subplans] for query in QUERIES}
    assert buckets == {query: [3] * SUBPLANS.get(query, 1) for query in QUERIES}


@pytest.mark.parametrize("query", sampled(QUERIES, 2))
def test_small_batches_give_the_same_records(query: str, client: LogClient) -> None:
    produce(client, 0, 80)
    OnDuckDB(plan_of(query, "DUCK"), client).drain()
    run = StagedRun(plan_of(query, "SPARK"), client, "run", records_max=23)  # several batches
    run.drain()
    assert contents(client, "SPARK") == contents(client, "DUCK") != {}


def test_a_tables_row_is_there_for_a_streams_record_of_the_same_time(client: LogClient) -> None:
    client.append("clicks", 0, rows([("ada", {"PAGE": "/", "N": 1}, 10), ("bob", {"PAGE": "/", "N": 2}, 10)]))
    client.append("users", 0, rows([("ada", {"CITY": "rome"}, 10), ("bob", {"CITY": "bonn"}, 11)]))
    OnDuckDB(plan_of("join with a table", "DUCK"), client).drain()
    StagedRun(plan_of("join with a table", "SPARK"), client, "run").drain()
    written: list[Any] = [record["value"] for record in read_all(client, "DUCK", range(3))]
    assert sorted(row["CITY"] or "" for row in written) == ["", "rome"]
    assert contents(client, "SPARK") == contents(client, "DUCK")


@pytest.mark.parametrize("query", ["stateless", "group by another column", "tumbling window", "join with a table"])
@pytest.mark.parametrize("done", [{0}, {1, 2}, {0, 1, 2}])
def test_a_batch_that_some_buckets_have_done_is_finished_by_the_next_run(
    query: str, done: set[int], client: LogClient
) -> None:
    duck, first = OnDuckDB(plan_of(query, "DUCK"), client), StagedRun(plan_of(query, "SPARK"), client, "first")
    produce(client, 0, 100)
    duck.drain()
    first.drain()
    produce(client, 100, 200)
    duck.drain()
    first.step(only=done)
    produce(client, 200, 300)
    duck.drain()
    StagedRun(plan_of(query, "SPARK"), client, "second").drain()
    assert contents(client, "SPARK") == contents(client, "DUCK") != {}


@pytest.mark.parametrize("done", [{0}, {0, 1, 2}, {0, 1, 2, 4}, {0, 1, 2, 3, 4, 5}, {0, 1, 2, 3, 4, 5, 7}])
def test_what_lies_between_subplans_is_finished_by_the_next_run(done: set[int], client: LogClient) -> None:
    query = "join by a foreign key"  # three subplans of three buckets
    duck, first = OnDuckDB(plan_of(query, "DUCK"), client), StagedRun(plan_of(query, "SPARK"), client, "first")
    for begin, only in ((0, None), (60, done)):
        produce(client, begin, begin + 60)
        duck.drain()
        first.step(only)
    take_from_spark(plan_of(query, "SPARK"), client, {})
    assert contents(client, "SPARK") == contents(client, "DUCK") != {}


def test_markers_of_earlier_versions_are_taken_over_in_the_middle_of_a_batch(client: LogClient) -> None:
    plan = plan_of("group by another column", "SPARK")
    duck, first = OnDuckDB(plan_of("group by another column", "DUCK"), client), StagedRun(plan, client, "first")
    produce(client, 0, 60)
    first.drain()
    start = dict(first.at)
    produce(client, 60, 120)
    first.step(only={1})
    for bucket in range(3):
        marker = check_run(client, marker_topic(plan.query_id), bucket, "first")
        earlier = replace(marker, batch=NO_BATCH, earlier=first.at if bucket == 1 else start)
        client.append(marker_topic(plan.query_id), bucket, earlier.as_records())
    second = StagedRun(plan, client, "second")
    assert second.at == first.at
    duck.drain()
    assert contents(client, "SPARK") == contents(client, "DUCK") != {}
    produce(client, 120, 180)
    second.drain()
    duck.drain()
    assert contents(client, "SPARK") == contents(client, "DUCK")


@pytest.mark.parametrize("query", ["group by another column", "join by a foreign key"])
def test_a_batch_that_is_run_again_changes_nothing(query: str, client: LogClient) -> None:
    run = StagedRun(plan_of(query, "SPARK"), client, "run")
    start = dict(run.at)
    produce(client, 0, 100)
    run.step()
    written = contents(client, "SPARK")
    for _ in range(2):
        assert not any(report.rows_out for report in run.apply(run.last, start, run.at))
        run.close()
    assert contents(client, "SPARK") == written


def test_buckets_with_caches_elsewhere_see_what_was_done_here(client: LogClient, tmp_path: Path) -> None:
    plan = plan_of("group by the key", "SPARK")
    here = StagedRun(plan, client, "run", tmp_path / "here")
    elsewhere = StagedRun(plan, client, "run", None)
    for begin in range(0, 200, 50):
        produce(client, begin, begin + 50)
        at = elsewhere.at if begin % 100 else here.at
        run = elsewhere if begin % 100 else here
        run.step()
        here.at, here.last = elsewhere.at, elsewhere.last = run.at, run.last
        assert at != run.at
    OnDuckDB(plan_of("group by the key", "DUCK"), client).drain()
    assert contents(client, "SPARK") == contents(client, "DUCK")


def test_an_earlier_run_can_do_nothing_more(client: LogClient) -> None:
    plan = plan_of("group by the key", "SPARK")
    first = StagedRun(plan, client, "first")
    produce(client, 0, 50)
    first.step()
    second = StagedRun(plan, client, "second")
    produce(client, 50, 100)
    with pytest.raises(StaleRun):
        first.step()
    second.drain()
    OnDuckDB(plan_of("group by the key", "DUCK"), client).drain()
    assert contents(client, "SPARK") == contents(client, "DUCK")


def test_a_query_moves_to_duckdb_in_the_middle_of_a_batch_and_back(client: LogClient) -> None:
    plan = plan_of("group by another column", "SPARK")
    spark = StagedRun(plan, client, "first")
    produce(client, 0, 50)
    spark.step()
    produce(client, 50, 100)
    spark.step(only={1})
    take_from_spark(plan, client, {})
    runtime = QueryRuntime(plan, client, None)
    produce(client, 100, 150)
    while runtime.step():
        pass
    runtime.close()
    again = StagedRun(plan, client, "second")
    produce(client, 150, 200)
    again.drain()
    OnDuckDB(plan_of("group by another column", "DUCK"), client).drain()
    assert contents(client, "SPARK") == contents(client, "DUCK")


def test_broken_records_are_logged_once(client: LogClient) -> None:
    produce(client, 0, 100)
    run = StagedRun(plan_of("group by another column", "SPARK"), client, "run")
    reports = run.drain()
    assert sum(report.rows_failed for report in reports) == 4
    assert client.offsets(processing_log.TOPIC, 0).log_end_offset >= 4
    assert sum(report.rows_in for report in reports) == 100


def test_dropping_a_query_forgets_that_it_ran_on_spark(client: LogClient, tmp_path: Path) -> None:
    plan = plan_of("average of maxima", "SPARK")
    StagedRun(plan, client, "run").drain()
    assert repartition_topic(plan.query_id) in client.topics()
    executor = DuckDBExecutor(client, tmp_path / "queries")
    executor.drop(plan.query_id)
    assert not [topic for topic in client.topics() if plan.query_id in topic]


@pytest.mark.parametrize("stage", [1, 2])
def test_a_record_that_cannot_be_computed_is_logged_and_the_rest_goes_on(stage: int, client: LogClient) -> None:
    client.create_topic("input", 1)
    client.create_topic("counts", 1)
    numbers = [1, 2, 0, 4, 0, 5]
    client.append("input", 0, rows([("a", {"V": number, "W": "w"}, at) for at, number in enumerate(numbers)]))
    run = StagedRun(_dividing(stage), client, "run")
    (report,) = run.drain()
    assert (report.rows_in, report.rows_failed, report.rows_out) == (6, 2, 4)
    assert [record["value"] for record in read_all(client, "counts")] == [
        {"N": n, "S": s} for n, s in ((1, 100), (2, 150), (3, 175), (4, 195))
    ]
    logged = [record["value"]["message"]["recordProcessingError"] for record in read_all(client, processing_log.TOPIC)]
    assert [entry["offset"] for entry in logged] == [2, 4]
    assert "zero" in logged[0]["errorMessage"]


def _dividing(stage: int) -> PhysicalPlan:
    """A count and a sum of what a function makes of V, which fails for 0; before or within the aggregate."""
    failing = SqlExpression("CASE WHEN v0 = 0 THEN error('division by zero') ELSE 100 // v0 END", BIGINT)
    plan = count_plan()
    assert isinstance(plan.root, Sink) and isinstance(plan.root.input, Aggregate)
    aggregate = plan.root.input
    count, total = aggregate.calls
    if stage == 1:
        step = Project("p", aggregate.input, (failing, SqlExpression("v1", STRING)), None, INPUT)
        aggregate = replace(aggregate, input=step)
    else:
        aggregate = replace(aggregate, calls=(count, replace(total, arguments=(failing,))))
    return replace(plan, root=replace(plan.root, input=aggregate))
