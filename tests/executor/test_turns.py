"""Turns: who gets one when, however few threads there are; and that no news is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
from hand_plans import rows
from structlog.testing import capture_logs
from waiting import eventually

from millstream.executor.queries import turns as module
from millstream.executor.queries.turns import AT_ONCE, NEVER, WHEN_WOKEN, Due, Turns
from millstream.executor.work_pool import WorkPool
from millstream.logcore.client import LogAdmin, LogClient, TopicPartition
from millstream.logcore.errors import LogError
from millstream.logcore.log import open_log

PATIENCE_S = 30.0
AT = TopicPartition("input", 0)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[LogClient]:
    client = open_log(tmp_path / "log", sync="never")
    client.create_topic("input", 2)
    yield client
    client.close()


class Elsewhere:
    """The log as one that announces nothing."""

    def __init__(self, client: LogClient) -> None:
        self._client = client

    def advanced(
        self, positions: Mapping[TopicPartition, int], timeout_s: float
    ) -> Mapping[TopicPartition, int | None]:
        return self._client.advanced(positions, timeout_s)

    def partition_count(self, topic: str) -> int:
        return self._client.partition_count(topic)


@pytest.fixture(params=["announced", "asked for"])
def turns(request: pytest.FixtureRequest, client: LogClient) -> Iterator[Turns]:
    used = client if request.param == "announced" else cast(LogClient, Elsewhere(client))
    made = Turns(used, WorkPool(1))
    yield made
    made.close()


class Query:
    """Gives the next of `dues` after each turn, and the last one for ever. Never runs twice at once."""

    def __init__(self, *dues: Due, work: Callable[[], None] = lambda: None) -> None:
        self.dues = list(dues)
        self.count = 0
        self._work = work
        self._in_turn = threading.Lock()
        self._changed = threading.Condition()

    def turn(self) -> Due:
        assert self._in_turn.acquire(blocking=False), "two turns at once"
        self._work()
        due = self.dues.pop(0) if len(self.dues) > 1 else self.dues[0]
        self._in_turn.release()
        with self._changed:
            self.count += 1
            self._changed.notify_all()
        return due

    def had(self, count: int, timeout_s: float = PATIENCE_S) -> bool:
        """Whether it has had so many turns in time."""
        with self._changed:
            return self._changed.wait_for(lambda: self.count >= count, timeout_s)


def test_a_query_waits_for_records(client: LogClient, turns: Turns) -> None:
    query = Query(Due({AT: 0}), Due({AT: 1}), WHEN_WOKEN)
    turns.wake(query)
    assert query.had(1) and not query.had(2, 0.1)
    client.append("input", 0, rows([("a", None, 1)]))
    assert query.had(2)
    client.append("input", 1, rows([("a", None, 1)]))
    assert not query.had(3, 0.1)
    client.append("input", 0, rows([("a", None, 1)]))
    assert query.had(3)


def test_what_is_there_already_is_not_waited_for(client: LogClient, turns: Turns) -> None:
    client.append("input", 0, rows([("a", None, 1)]))
    query = Query(Due({AT: 0}), WHEN_WOKEN)
    turns.wake(query)
    assert query.had(2)


def test_a_query_whose_topic_got_partitions_gets_its_turn(client: LogClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PARTITIONS_S", 0.01)
    turns, all_of_it = Turns(client, WorkPool(1)), {TopicPartition("input", at): 0 for at in range(2)}
    query, other = Query(Due(all_of_it), WHEN_WOKEN), Query(Due({TopicPartition("gone", 0): 0}), WHEN_WOKEN)
    try:
        turns.wake(query)
        turns.wake(other)
        assert query.had(1) and not query.had(2, 0.5)
        cast(LogAdmin, client).add_partitions("input", 3)
        assert query.had(2)
    finally:
        turns.close()


def test_a_query_whose_topic_is_gone_gets_its_turn(
    client: LogClient, turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_EVERY_S", 0.01)
    query = Query(Due({TopicPartition("input", 1): 0}), WHEN_WOKEN)
    turns.wake(query)
    assert query.had(1) and not query.had(2, 0.1)
    client.delete_topic("input")
    assert query.had(2)


def test_a_query_that_is_behind_the_end_of_a_topic_that_was_created_again_gets_its_turn(
    client: LogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_EVERY_S", 0.01)
    client.append("input", 1, rows([("a", None, 1)]))
    turns = Turns(client, WorkPool(1))
    query = Query(Due({TopicPartition("input", 1): 1}), WHEN_WOKEN)
    turns.wake(query)
    assert query.had(1) and not query.had(2, 0.1)
    client.delete_topic("input")
    client.create_topic("input", 2)
    assert query.had(2)
    turns.close()


def test_a_time_comes(turns: Turns) -> None:
    began = time.monotonic()
    query = Query(Due(at_s=began + 0.2), WHEN_WOKEN)
    turns.wake(query)
    assert query.had(2)
    assert time.monotonic() - began >= 0.2


def test_a_wake_during_a_turn_makes_another(turns: Turns) -> None:
    woken = iter([True])
    query = Query(WHEN_WOKEN, work=lambda: turns.wake(query) if next(woken, False) else None)
    turns.wake(query)
    assert query.had(2) and not query.had(3, 0.1)


def test_who_is_over_gets_no_turn_until_somebody_begins_it_anew(turns: Turns) -> None:
    query = Query(NEVER, WHEN_WOKEN)
    turns.wake(query)
    assert query.had(1) and not query.had(2, 0.1)
    turns.wake(query)
    assert query.had(2)


def test_queries_that_always_have_more_take_turns(turns: Turns) -> None:
    queries = [Query(*[AT_ONCE] * 400, WHEN_WOKEN, work=lambda: time.sleep(0.0005)) for _ in range(6)]
    for query in queries:
        turns.wake(query)
    assert queries[0].had(200)
    assert all(query.had(60, 0.0) for query in queries)
    assert all(query.had(401) for query in queries)


def test_queries_that_take_long_do_not_starve_the_others(turns: Turns) -> None:
    go_on = threading.Event()
    slow = [Query(WHEN_WOKEN, work=lambda: cast(Any, go_on.wait(PATIENCE_S))) for _ in range(6)]
    quick = Query(*[AT_ONCE] * 20, WHEN_WOKEN)
    for query in (*slow, quick):
        turns.wake(query)
    assert quick.had(21)
    assert not any(query.count for query in slow)
    go_on.set()
    assert all(query.had(1) for query in slow)


def test_no_news_is_lost(client: LogClient, turns: Turns) -> None:
    """Appends at random moments: each is seen, though turns begin and end meanwhile."""
    seen = [0, 0, 0]
    random = Random(1)

    def reader(number: int) -> Query:
        def work() -> None:
            fetched = client.fetch("input", number % 2, seen[number])
            seen[number] = fetched.next_offset
            query.dues[:] = [Due({TopicPartition("input", number % 2): seen[number]})]
            time.sleep(random.random() / 1000)

        query = Query(WHEN_WOKEN, work=work)
        return query

    for number in range(3):
        turns.wake(reader(number))
    for count in range(1, 301):
        for partition in (0, 1):
            client.append("input", partition, rows([("a", None, count)]))
        if random.random() < 0.1:
            eventually(lambda count=count: seen == [count, count, count], PATIENCE_S, pause_s=0.001)


def test_many_queries_on_a_log_elsewhere_wait_with_few_threads(client: LogClient) -> None:
    turns = Turns(cast(LogClient, Elsewhere(client)), WorkPool(1))
    before = threading.active_count()
    client.create_topic("many", 30)
    queries = [Query(Due({TopicPartition("many", n): 0, AT: 0}), WHEN_WOKEN) for n in range(30)]
    for query in queries:
        turns.wake(query)
    assert all(query.had(1) for query in queries)
    assert threading.active_count() <= before + 12, "the log has some, too"
    time.sleep(0.6)  # all are asked for together
    for chosen in (3, 17, 29):
        began = time.monotonic()
        client.append("many", chosen, rows([("a", None, 1)]))
        assert queries[chosen].had(2)
        assert time.monotonic() - began < 2.0
    assert sum(query.count for query in queries) == 33
    client.append("input", 0, rows([("a", None, 1)]))
    assert all(query.had(2) for query in queries)
    turns.close()


def test_a_query_that_begins_to_wait_is_asked_for_at_once(client: LogClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the others are waited for, and for long."""
    monkeypatch.setattr(module, "ASK_S", PATIENCE_S)
    turns = Turns(cast(LogClient, Elsewhere(client)), WorkPool(1))
    queries = [Query(Due({TopicPartition("input", number % 2): 0}), WHEN_WOKEN) for number in range(8)]
    for query in queries:
        turns.wake(query)
        assert query.had(1)
        time.sleep(0.05)
    began = time.monotonic()
    client.append("input", 1, rows([("a", None, 1)]))
    assert queries[-1].had(2)
    assert time.monotonic() - began < PATIENCE_S / 2
    turns.close()


def test_a_look_that_takes_long_is_not_repeated_at_once(client: LogClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often the log advances: what many idle queries cost stays bounded."""
    looks = 0
    offsets = client.offsets

    def slowly(topic: str, partition: int) -> object:
        nonlocal looks
        looks += 1
        time.sleep(0.02)
        return offsets(topic, partition)

    monkeypatch.setattr(client, "offsets", slowly)
    turns = Turns(client, WorkPool(1))
    query = Query(Due({AT: 200}), WHEN_WOKEN)
    turns.wake(query)
    assert query.had(1)
    began = time.monotonic()
    for count in range(200):
        client.append("input", 0, rows([("a", None, count)]))
        time.sleep(0.002)
    assert looks <= 3 + (time.monotonic() - began) / 0.06
    client.append("input", 0, rows([("a", None, 1)]))
    assert query.had(2)
    turns.close()


def test_news_of_other_partitions_costs_no_look(client: LogClient, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int]] = []
    offsets = client.offsets

    def noted(topic: str, partition: int) -> object:
        asked.append((topic, partition))
        return offsets(topic, partition)

    monkeypatch.setattr(module, "LOOK_EVERY_S", PATIENCE_S)
    monkeypatch.setattr(client, "offsets", noted)
    turns = Turns(client, WorkPool(1))
    query = Query(Due({AT: 0}), Due({AT: 1}), WHEN_WOKEN)
    turns.wake(query)
    eventually(lambda: asked == [AT], PATIENCE_S)  # who begins to wait looks himself
    for count in range(20):
        client.append("input", 1, rows([("a", None, count)]))
    client.append("input", 0, rows([("a", None, 1)]))
    assert query.had(2)
    turns.close()
    assert len(asked) <= 3


def test_news_that_nobody_waits_for_any_more_costs_nothing(client: LogClient) -> None:
    turns = Turns(client, WorkPool(1))
    query = Query(Due({AT: 0}), WHEN_WOKEN)
    turns.wake(query)
    assert query.had(1)
    turns._late, turns._look_from_s = True, 0.0
    turns.wake(query)
    assert query.had(2)
    time.sleep(0.1)
    used = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - used < 0.2
    turns.close()


def test_a_turn_that_fails_is_not_repeated(turns: Turns) -> None:
    def fail() -> None:
        raise LogError("a mistake of ours")

    broken, other = Query(WHEN_WOKEN, work=fail), Query(WHEN_WOKEN)
    with capture_logs() as logged:
        turns.wake(broken)
        turns.wake(other)
        assert other.had(1)
        eventually(lambda: logged, PATIENCE_S)
    assert [entry["error"] for entry in logged] == ["a mistake of ours"]
    assert broken.count == 0
