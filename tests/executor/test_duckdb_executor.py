"""Queries in threads."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hand_plans import count_plan, filter_plan, read_all, rows
from waiting import eventually

from millstream.executor.errors import UnknownQuery
from millstream.executor.queries.duckdb_executor import DuckDBExecutor
from millstream.executor.queries.query import QueryRuntime
from millstream.executor.queries.query_log import changelog_topic
from millstream.logcore.client import LogClient
from millstream.logcore.log import open_log
from millstream.planner.catalog import PersistentQuery
from millstream.planner.physical import PhysicalPlan


@pytest.fixture
def client(tmp_path: Path) -> Iterator[LogClient]:
    client = open_log(tmp_path / "log", sync="never")
    for topic in ("input", "filtered", "counts"):
        client.create_topic(topic, 1)
    yield client
    client.close()


@pytest.fixture
def executor(client: LogClient, tmp_path: Path) -> Iterator[DuckDBExecutor]:
    executor = DuckDBExecutor(client, tmp_path / "queries")
    yield executor
    executor.close()


def query(plan: PhysicalPlan) -> PersistentQuery:
    return PersistentQuery(plan.query_id, "", plan, "SINK", ("INPUT",), "CREATE_AS")


def records(client: LogClient, *numbers: int) -> None:
    client.append("input", 0, rows([(f"k{number}", {"V": number, "W": "w"}, number) for number in numbers]))


def test_a_started_query_follows_its_input(client: LogClient, executor: DuckDBExecutor) -> None:
    executor.start(query(filter_plan()))
    records(client, 1, 2)
    eventually(lambda: len(read_all(client, "filtered")) == 2)
    records(client, 3)
    eventually(lambda: len(read_all(client, "filtered")) == 3)
    status = executor.status("FILTER_1")
    assert status.state == "RUNNING"
    eventually(lambda: executor.status("FILTER_1").metrics.rows_in == 3)
    assert set(executor.status("FILTER_1").lag.values()) == {0}


def test_latest_is_the_moment_of_the_start(client: LogClient, executor: DuckDBExecutor) -> None:
    records(client, 1)
    plan = replace(filter_plan(), properties={"auto.offset.reset": "latest"})
    executor.start(query(plan))
    records(client, 2)  # at once: the query's thread has not opened anything yet
    eventually(lambda: executor.status("FILTER_1").metrics.rows_in == 1)
    assert len(read_all(client, "filtered")) == 1


def test_a_paused_query_does_nothing_until_it_is_resumed(client: LogClient, executor: DuckDBExecutor) -> None:
    executor.start(query(filter_plan()))
    executor.pause("FILTER_1")
    executor.start(query(count_plan()))
    records(client, 1)
    eventually(lambda: len(read_all(client, "counts")) == 1)  # one that is not paused has seen it
    assert read_all(client, "filtered") == []
    assert executor.status("FILTER_1").state == "PAUSED"
    executor.resume("FILTER_1")
    eventually(lambda: len(read_all(client, "filtered")) == 1)


def test_a_stopped_query_goes_on_where_it_was(client: LogClient, executor: DuckDBExecutor) -> None:
    executor.start(query(count_plan()))
    records(client, 1)
    eventually(lambda: len(read_all(client, "counts")) == 1)
    executor.stop("COUNT_1")
    records(client, 1)
    executor.start(query(count_plan()))
    eventually(lambda: len(read_all(client, "counts")) == 2)
    assert read_all(client, "counts")[1]["value"] == {"N": 2, "S": 2}


def test_queries_are_closed_side_by_side(
    client: LogClient, executor: DuckDBExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = [replace(filter_plan(), query_id=f"FILTER_{number}") for number in range(4)]
    closing = threading.Barrier(len(plans), timeout=60)  # nobody gets through it alone
    together: list[str] = []
    close = QueryRuntime.close

    def close_with_the_others(runtime: QueryRuntime) -> None:
        with contextlib.suppress(threading.BrokenBarrierError):
            closing.wait()
            together.append(runtime.plan.query_id)
        close(runtime)

    monkeypatch.setattr(QueryRuntime, "close", close_with_the_others)
    for plan in plans:
        executor.start(query(plan))
    eventually(lambda: all(executor.status(plan.query_id).positions for plan in plans))
    executor.close()
    assert sorted(together) == [plan.query_id for plan in plans]


def test_a_dropped_query_leaves_nothing_but_its_output(
    client: LogClient, tmp_path: Path, executor: DuckDBExecutor
) -> None:
    executor.start(query(count_plan()))
    records(client, 1)
    eventually(lambda: len(read_all(client, "counts")) == 1)
    executor.drop("COUNT_1")
    assert not (tmp_path / "queries" / "COUNT_1").exists()
    assert changelog_topic("COUNT_1") not in client.topics()
    with pytest.raises(UnknownQuery):
        executor.status("COUNT_1")
    executor.start(query(count_plan()))
    eventually(lambda: len(read_all(client, "counts")) == 2)
    assert read_all(client, "counts")[1]["value"] == {"N": 1, "S": 1}


def test_a_query_that_cannot_run_ends_in_error_with_its_cause(
    client: LogClient, executor: DuckDBExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.executor.queries.query_worker.BACKOFF_S", 0.001)
    executor.start(query(filter_plan(sink="no_such_topic")))
    records(client, 1)
    eventually(lambda: executor.status("FILTER_1").state == "ERROR")
    assert "no_such_topic" in (executor.status("FILTER_1").error or "")
    client.create_topic("no_such_topic", 1)
    executor.resume("FILTER_1")
    eventually(lambda: len(read_all(client, "no_such_topic")) == 1)


def test_the_status_of_a_query_whose_source_is_gone_says_so(
    client: LogClient, executor: DuckDBExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.executor.queries.query_worker.BACKOFF_S", 0.001)
    executor.start(query(filter_plan()))
    records(client, 1)
    eventually(lambda: len(read_all(client, "filtered")) == 1)
    client.delete_topic("input")
    eventually(lambda: executor.status("FILTER_1").state == "ERROR")
    status = executor.status("FILTER_1")
    assert "input" in (status.error or "")
    assert status.lag == {}


@pytest.mark.parametrize("count", [1, 3, 9])
def test_a_query_does_not_take_a_topic_that_was_created_again_for_the_one_that_it_reads(
    client: LogClient, executor: DuckDBExecutor, count: int
) -> None:
    executor.start(query(filter_plan()))
    records(client, 1, 2, 3)
    eventually(lambda: len(read_all(client, "filtered")) == 3)
    executor.pause("FILTER_1")
    client.delete_topic("input")
    client.create_topic("input", 1)
    records(client, *range(count))
    executor.resume("FILTER_1")
    eventually(lambda: executor.status("FILTER_1").state == "ERROR")
    assert "created again" in (executor.status("FILTER_1").error or "")
    executor.resume("FILTER_1")
    eventually(lambda: len(read_all(client, "filtered")) == 3 + count)


def test_a_quiet_query_notices_that_its_topic_was_created_again(client: LogClient, executor: DuckDBExecutor) -> None:
    executor.start(query(filter_plan()))
    records(client, 1, 2, 3)
    eventually(lambda: len(read_all(client, "filtered")) == 3)
    client.delete_topic("input")
    client.create_topic("input", 1)
    records(client, 4)
    eventually(lambda: executor.status("FILTER_1").state == "ERROR")
    assert "created again" in (executor.status("FILTER_1").error or "")


def test_a_query_that_another_executor_took_over_stops(
    client: LogClient, tmp_path: Path, executor: DuckDBExecutor
) -> None:
    executor.start(query(count_plan()))
    records(client, 1)
    eventually(lambda: len(read_all(client, "counts")) == 1)
    other = DuckDBExecutor(client, tmp_path / "elsewhere")
    other.start(query(count_plan()))
    eventually(lambda: bool(other.status("COUNT_1").positions))
    records(client, 1)
    eventually(lambda: len(read_all(client, "counts")) == 2)
    eventually(lambda: executor.status("COUNT_1").state == "ERROR")
    assert other.status("COUNT_1").state == "RUNNING"
    other.close()
