"""Batches that give nothing write nothing to the log; their offsets wait for others, and nothing is done twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hand_plans import filter_plan, read_all, rows

from millstream.executor.queries import query
from millstream.executor.queries.query import QueryRuntime
from millstream.executor.queries.query_log import offset_group
from millstream.logcore.client import LogClient, TopicPartition
from millstream.logcore.log import open_log

AT = TopicPartition("input", 0)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[LogClient]:
    client = open_log(tmp_path / "log", sync="never")
    for topic in ("input", "filtered"):
        client.create_topic(topic, 1)
    yield client
    client.close()


def run(client: LogClient, runtime: QueryRuntime, *values: int) -> None:
    """Each in a batch of its own."""
    for value in values:
        client.append("input", 0, rows([("a", {"V": value, "W": "w"}, 10)]))
        while runtime.step():
            pass


def committed(client: LogClient) -> int:
    return client.committed_offsets(offset_group("FILTER_1"))[AT]


def found(client: LogClient) -> list[int]:
    return [record["value"]["V"] for record in read_all(client, "filtered")]


def test_offsets_of_batches_that_give_nothing_go_with_the_next_one_that_gives_something(client: LogClient) -> None:
    runtime = QueryRuntime(filter_plan(), client, None)
    run(client, runtime, 1)
    begin = committed(client)
    run(client, runtime, -1, -2)
    assert committed(client) == begin
    assert runtime.positions == {AT: begin + 2}
    assert runtime.lag() == {AT: 0}
    assert runtime.metrics.rows_dropped == 2
    run(client, runtime, 3)
    assert committed(client) == begin + 3
    runtime.close()
    assert found(client) == [2, 6]


def test_they_do_not_wait_for_long(client: LogClient, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = QueryRuntime(filter_plan(), client, None)
    run(client, runtime, -1)
    assert committed(client) == 0
    assert runtime.rest_due_s > 0
    monkeypatch.setattr(query, "OFFSETS_S", 0.0)
    run(client, runtime, -2)
    assert committed(client) == 2
    assert runtime.rest_due_s == 0
    runtime.close()


def test_they_are_committed_at_rest_and_at_the_end(client: LogClient) -> None:
    runtime = QueryRuntime(filter_plan(), client, None)
    run(client, runtime, -1)
    runtime.rest()
    assert committed(client) == 1
    run(client, runtime, -2)
    runtime.close()
    assert committed(client) == 2


def test_one_that_is_killed_before_does_nothing_twice(client: LogClient) -> None:
    killed = QueryRuntime(filter_plan(), client, None)
    run(client, killed, 1, -1, -2)
    successor = QueryRuntime(filter_plan(), client, None)  # fences the other one
    run(client, successor, 4)
    successor.close()
    assert found(client) == [2, 8]
    assert committed(client) == 4


def test_a_record_that_cannot_be_decoded_is_reported_at_once(client: LogClient) -> None:
    runtime = QueryRuntime(filter_plan(), client, None)
    client.append("input", 0, rows([("a", {"V": "no number", "W": "w"}, 10)]))
    while runtime.step():
        pass
    assert committed(client) == 1
    assert runtime.metrics.rows_failed == 1
    runtime.close()
