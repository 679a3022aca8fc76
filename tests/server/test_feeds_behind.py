"""Push queries that read together: who joins gets what comes from where it begins, and nothing from before."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hand_plans import filter_plan, rows

from millstream.executor.answers.push_query import PushQuery
from millstream.logcore.client import LogClient, TopicPartition
from millstream.logcore.log import open_log
from millstream.server.engine import shared_feeds
from millstream.server.engine.shared_feeds import Offsets, SharedFeeds

AT = TopicPartition("input", 0)


class Sink:
    """A client. `given`: where the batches begin that it gets."""

    group: object = None

    def __init__(self) -> None:
        self.given: list[int] = []

    def encode(self, rows: pa.Table) -> bytes:
        return b"row" * rows.num_rows

    def deliver(self, chunk: bytes, begin: Offsets) -> None:
        self.given.append(begin[AT])

    def finish(self, error: Exception | None) -> None:
        pass


@pytest.fixture
def client(tmp_path: Path) -> Iterator[LogClient]:
    client = open_log(tmp_path / "log", sync="never")
    client.create_topic("input", 1)
    yield client
    client.close()


def test_who_begins_far_ahead_of_a_feed_gets_another_one(client: LogClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_feeds, "_JOIN_S", 0.01)
    goes_on = threading.Event()

    class Slow(PushQuery):
        def await_records(self, timeout_s: float) -> bool:
            return goes_on.wait(60) and super().await_records(timeout_s)

    def opened(begin: Offsets, *, time_order: bool) -> PushQuery:
        return Slow(filter_plan(), client, begin=begin, time_order=time_order)

    def refused(*_: Any) -> Any:
        raise AssertionError

    feeds, loop = SharedFeeds(client, refused), asyncio.new_event_loop()
    first, second = Sink(), Sink()
    feed, place = feeds.joined("key", opened, {AT: 0}, first, loop)
    client.append("input", 0, rows([(f"k{n}", {"V": n, "W": "w"}, n) for n in range(10)]))
    other, other_place = feeds.joined("key", opened, {AT: 10}, second, loop)
    assert (place[AT], other_place[AT]) == (0, 10)
    third = Sink()
    assert feeds.joined("key", opened, {AT: 10}, third, loop) == (other, {AT: 10})
    for each, sink in ((feed, first), (other, second), (other, third)):
        each.leave(sink)
    goes_on.set()
    feeds.join(60)
    loop.close()
