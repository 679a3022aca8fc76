"""Push queries: changes as they come."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from hand_plans import count_plan, filter_plan, rows

from millstream.executor.answers.push_query import PushQuery
from millstream.logcore.client import LogClient, TopicPartition
from millstream.logcore.log import open_log
from millstream.planner.physical import PhysicalPlan


@pytest.fixture
def client(tmp_path: Path) -> Iterator[LogClient]:
    client = open_log(tmp_path / "log", sync="never")
    client.create_topic("input", 1)
    yield client
    client.close()


def without_sink(plan: PhysicalPlan, reset: str = "earliest") -> PhysicalPlan:
    properties = {**plan.properties, "auto.offset.reset": reset}
    return replace(plan, root=plan.root.input, properties=properties)  # pyrefly: ignore[missing-attribute]


def append(client: LogClient, *numbers: int) -> None:
    client.append("input", 0, rows([(f"k{number}", {"V": number, "W": "w"}, number) for number in numbers]))


def test_it_sends_what_is_there_and_what_comes_until_its_limit(client: LogClient) -> None:
    append(client, 1)
    push = PushQuery(without_sink(filter_plan()), client, limit=3)
    batches = iter(push)
    assert next(batches)["v0"].to_pylist() == [2]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: [row for batch in batches for row in batch["v0"].to_pylist()])
        append(client, 2, 3, 4)
        assert waiting.result(60) == [4, 6]
    assert push.finished


def test_from_the_end_it_sends_only_what_is_new(client: LogClient) -> None:
    append(client, 1)
    push = PushQuery(without_sink(filter_plan(), "latest"), client)
    assert push.poll() is None
    append(client, 2)
    rows_ = push.poll(5.0)
    assert rows_ is not None and rows_["v0"].to_pylist() == [4]


def test_close_ends_an_iteration_that_waits(client: LogClient, monkeypatch: pytest.MonkeyPatch) -> None:
    waits, wait = threading.Event(), client.wait

    def noted(positions: Mapping[TopicPartition, int], timeout_s: float) -> bool:
        waits.set()
        return wait(positions, timeout_s)

    monkeypatch.setattr(client, "wait", noted)
    push = PushQuery(without_sink(filter_plan()), client)
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(list, push)
        assert waits.wait(60)
        push.close()
        assert found.result(60) == []


def test_an_aggregate_sends_its_new_results_only(client: LogClient) -> None:
    append(client, 1, 1, 2)
    rows_ = PushQuery(without_sink(count_plan()), client).poll()
    assert rows_ is not None
    assert rows_.select(["k0", "v0", "_weight"]).to_pylist() == [
        {"k0": "k1", "v0": 1, "_weight": 1},
        {"k0": "k1", "v0": 2, "_weight": 1},
        {"k0": "k2", "v0": 1, "_weight": 1},
    ]


def test_push_queries_share_an_instance_of_duckdb_and_nothing_in_it(client: LogClient) -> None:
    append(client, 1, 2)
    first, second = (PushQuery(without_sink(count_plan()), client) for _ in range(2))
    with first, second:
        found = [query.poll() for query in (first, second)]
        assert [None if rows_ is None else rows_["v0"].to_pylist() for rows_ in found] == [[1, 1], [1, 1]]
        names = [query._connection.execute("SELECT current_database()").fetchall() for query in (first, second)]
        listed = first._connection.execute("SELECT database_name FROM duckdb_databases()").fetchall()
        assert names[0] != names[1]
        assert {*names[0], *names[1]} <= set(listed)
        first.close()
        append(client, 1)
        rows_ = second.poll(5.0)
        assert rows_ is not None and rows_["v0"].to_pylist()[-1] == 2
