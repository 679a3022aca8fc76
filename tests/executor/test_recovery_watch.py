"""Recoveries tell how much is left, and end early when the query is not to run: at each batch, and without a loss."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hand_plans import count_plan, read_all, rows

from millstream.executor.queries.query import QueryRuntime
from millstream.executor.queries.recovery_watch import RecoveryInterrupted, RecoveryWatch
from millstream.logcore.client import LogClient
from millstream.logcore.failpoints import FailpointHit, arm
from millstream.logcore.log import open_log

BATCHES = 4


@pytest.fixture
def client(tmp_path: Path) -> Iterator[LogClient]:
    """A log in which a query has counted four records, one in each transaction."""
    client = open_log(tmp_path / "log", sync="never")
    for topic in ("input", "counts"):
        client.create_topic(topic, 1)
    runtime = QueryRuntime(count_plan(), client, None)
    for number in range(BATCHES):
        read(client, runtime, key=f"k{number}")
    runtime.close()
    yield client
    client.close()


def read(client: LogClient, runtime: QueryRuntime, key: str) -> None:
    client.append("input", 0, rows([(key, {"V": 1, "W": "w"}, 10)]))
    while runtime.step():
        pass


class Watched:
    """A watch that notes what is left each time, and interrupts at `interrupted_at` (from 1; 0: never)."""

    def __init__(self, interrupted_at: int = 0) -> None:
        self.seen: list[int | None] = []
        self.interrupted_at = interrupted_at
        self.watch = RecoveryWatch(self._is_wanted)

    def _is_wanted(self) -> bool:
        self.seen.append(self.watch.left)
        return len(self.seen) != self.interrupted_at


def test_what_is_left_counts_down_to_the_last_batch(client: LogClient) -> None:
    watched = Watched()
    QueryRuntime(count_plan(), client, None, watch=watched.watch).close()
    left = [each for each in watched.seen if each is not None]
    assert len(left) == BATCHES == len(watched.seen)
    assert left == sorted(left, reverse=True) and left[-1] > 0 and left[0] > left[-1]
    assert watched.watch.left is None


@pytest.mark.parametrize("in_file", [False, True])
@pytest.mark.parametrize("at", range(1, BATCHES + 1))
def test_it_ends_at_each_batch_and_goes_on_later(client: LogClient, tmp_path: Path, at: int, in_file: bool) -> None:
    state = tmp_path / "state" if in_file else None
    watched = Watched(at)
    with pytest.raises(RecoveryInterrupted):
        QueryRuntime(count_plan(), client, state, watch=watched.watch)
    assert (len(watched.seen), watched.watch.left) == (at, None)
    runtime = QueryRuntime(count_plan(), client, state, watch=watched.watch)
    already_in_file = at - 1 if in_file else 0
    assert len(watched.seen) == at + BATCHES - already_in_file
    for number in range(BATCHES):
        read(client, runtime, key=f"k{number}")
    runtime.close()
    assert counts(client) == [1] * BATCHES + [2] * BATCHES


def test_a_recovery_after_a_failure_ends_early_too(client: LogClient) -> None:
    wanted = [True]
    runtime = QueryRuntime(count_plan(), client, None, watch=RecoveryWatch(lambda: wanted[0]))
    arm("query.processed:1:raise")
    try:
        with pytest.raises(FailpointHit):
            read(client, runtime, key="k0")
    finally:
        arm("")
    wanted[0] = False
    with pytest.raises(RecoveryInterrupted):
        runtime.step()
    runtime.rest()  # what PAUSE does
    wanted[0] = True
    read(client, runtime, key="k1")
    runtime.close()
    assert counts(client) == [1] * BATCHES + [2, 2]


def test_a_failed_recovery_has_nothing_left(client: LogClient) -> None:
    def failed() -> bool:
        raise OSError("the disk is gone")

    watch = RecoveryWatch(failed)
    with pytest.raises(OSError, match="the disk is gone"):
        QueryRuntime(count_plan(), client, None, watch=watch)
    assert watch.left is None


def counts(client: LogClient) -> list[int]:
    return [record["value"]["N"] for record in read_all(client, "counts")]
