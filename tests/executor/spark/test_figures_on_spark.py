"""What a query on Spark measures: per operator, partition and state what it measures on DuckDB. The jobs run in this
process."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest
from jobs_in_process import DriverInProcess
from spark_stages import QUERIES, plan_of, produce

from millstream.executor.figures import Meters, OpenWindows, OperatorCounts, QueryFigures
from millstream.executor.inspection import StateSeen
from millstream.executor.queries.query import QueryRuntime
from millstream.executor.spark.alignment import take_from_spark
from millstream.executor.spark.spark_figures import BucketFigures, StateLooks
from millstream.executor.spark.spark_query import SparkQuery
from millstream.logcore.client import TopicPartition
from millstream.logcore.log import Log

SHAPES = (
    "stateless",
    "final results",
    "join with a table",
    "join by a foreign key",
    "average of maxima",
)


def on_spark(query: str, log: Log, folder: Path) -> SparkQuery:
    driver = DriverInProcess(log)
    return SparkQuery(plan_of(query, "SPARK"), log, driver.session, lambda: "nowhere", folder, {}, jobs=driver.jobs)


def on_duckdb(query: str, sink: str, log: Log) -> QueryRuntime:
    plan = plan_of(query, sink)
    return QueryRuntime(plan, log, None, take_over=partial(take_from_spark, plan, log, {}))


def drain(runtime: QueryRuntime) -> None:
    while runtime.step():
        pass


def counts(figures: QueryFigures) -> dict[str, tuple[object, ...]]:
    """Of each step whose rows are counted."""
    return {
        each.steps[-1]: (each.steps, each.rows_in, each.rows_out, each.late_rows, each.state_rows)
        for each in figures.operators
    }


def windows(figures: QueryFigures) -> list[OpenWindows]:
    return sorted(figures.windows, key=lambda each: (each.step, each.part))


def largest(figures: QueryFigures) -> Mapping[TopicPartition, int]:
    return {at: times.largest_ms for at, times in figures.partitions.items()}


@pytest.mark.parametrize("query", [
    pytest.param(query, marks=() if query in SHAPES else pytest.mark.soak) for query in QUERIES
])  # fmt: skip
def test_they_are_those_of_the_same_query_on_duckdb(log: Log, tmp_path: Path, query: str) -> None:
    spark, duck = on_spark(query, log, tmp_path), on_duckdb(query, "DUCK", log)
    for begin, end in ((0, 60), (60, 140)):
        produce(log, begin, end)
        spark.run_available()
        drain(duck)
    got, wanted = spark.figures(), duck.figures(with_state=True)
    assert counts(got) == counts(wanted)
    assert (got.state_known, got.store_rows) == (True, wanted.store_rows)
    assert (windows(got), largest(got)) == (windows(wanted), largest(wanted))
    assert all(each.bytes_out > 0 or not each.rows_out for each in got.operators)
    duck.close()


def test_a_run_that_begins_knows_what_lies_in_the_state(log: Log, tmp_path: Path) -> None:
    produce(log, 0, 60)
    on_spark("final results", log, tmp_path).run_available()
    duck = on_duckdb("final results", "DUCK", log)
    drain(duck)
    wanted = duck.figures(with_state=True)
    again = on_spark("final results", log, tmp_path)
    assert not again.figures().state_known
    again.run_available()
    assert (again.figures().state_known, again.figures().store_rows) == (True, wanted.store_rows)
    assert windows(again.figures()) == windows(wanted) != []
    duck.close()


def test_of_a_state_that_another_executor_has_written_nothing_is_known_before_each_bucket_has_done_a_batch(
    log: Log, tmp_path: Path
) -> None:
    produce(log, 0, 60)
    here = on_duckdb("group by the key", "SPARK", log)
    drain(here)
    wanted = here.figures(with_state=True)
    here.close()
    spark = on_spark("group by the key", log, tmp_path)
    spark.run_available()
    assert not spark.figures().state_known
    produce(log, 60, 140)  # of the same users
    spark.run_available()
    assert (spark.figures().state_known, spark.figures().store_rows) == (True, wanted.store_rows)
    here = on_duckdb("group by the key", "SPARK", log)
    here.close()
    again = on_spark("group by the key", log, tmp_path)
    again.run_available()
    assert not again.figures().state_known


def test_what_a_bucket_reports_travels_as_text() -> None:
    windows = (OpenWindows("a", 1, 2, 3, None), OpenWindows("a", 2, 2, 3, 4))
    figures = BucketFigures(
        (OperatorCounts(("a", "b"), 1, 2, 3, 4, 5, 6),),
        {TopicPartition("a/b", 3): -1},
        StateSeen({"a.rows": (3, 40)}, windows),
    )
    assert BucketFigures.from_json(figures.to_json()) == figures
    assert BucketFigures.from_json(BucketFigures().to_json()) == BucketFigures()


def test_meters_give_what_was_counted_since_the_last_time() -> None:
    meters, elsewhere = Meters(), Meters()
    meter = meters.of(("a", "b"))
    meter.count(3, 2, 10, 0)
    (first,) = meters.take()
    assert (first.covers, first.batches, first.rows_in, first.rows_out, first.bytes_out) == (("a", "b"), 1, 3, 2, 10)
    assert meters.take() == []
    meter.late_rows += 1
    (second,) = meters.take()
    assert (second.rows_in, second.late_rows, second.busy_ns) == (0, 1, 0)
    for each in (first, second):
        elsewhere.add(each)
    assert elsewhere.of(("a", "b")) == meter


@pytest.mark.parametrize(("steadily", "rate"), [(True, 20.0), (False, 0.0)])
def test_a_batch_that_took_longer_than_rates_look_back_has_one_where_samples_are_steady(
    steadily: bool, rate: float
) -> None:
    now = 100.0
    meters = Meters(lambda: now, steadily=steadily)
    meter = meters.of(("a",))
    now = 105.0
    meters.sample()
    now = 125.0
    meter.count(400, 400, 1, 0)
    assert meters.rates()["a"][0] == rate


def test_a_look_that_took_long_is_not_taken_again_soon() -> None:
    looks = StateLooks()
    assert looks.is_due
    looks.took(0.001)
    assert looks.is_due
    looks.took(60.0)
    assert not looks.is_due
