"""Turns of scans: as many as there are places, those that have read least first, and nobody beyond its time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

import millstream
from millstream.executor.answers import pull_query
from millstream.executor.answers.pull_limits import Deadline, PullClient, PullLimitExceeded, PullLimits
from millstream.executor.answers.scan_turns import ScanTurns, StreamScan

SOON = 30.0


def deadline(seconds: float = SOON, client: PullClient | None = None) -> Deadline:
    return Deadline(time.monotonic() + seconds, PullLimits(seconds=seconds), client)


class Reader:
    """Has its turn in a thread of its own, until it is told to end."""

    def __init__(self, turns: ScanTurns, scan: StreamScan, order: list[Reader]) -> None:
        self.has_turn, self._ends = threading.Event(), threading.Event()
        self._turns, self._scan, self._order = turns, scan, order
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with self._turns.turn(self._scan, deadline()):
            self._order.append(self)
            self.has_turn.set()
            self._ends.wait(SOON)

    def end(self) -> None:
        assert self.has_turn.wait(SOON)
        self._ends.set()
        self._thread.join(SOON)
        assert not self._thread.is_alive()


def waiting(turns: ScanTurns, count: int) -> None:
    """Returns once so many wait."""
    ends = time.monotonic() + SOON
    while len(turns._waiting) != count:
        assert time.monotonic() < ends
        time.sleep(0.001)


def have_read(turns: ScanTurns, *seconds: float) -> list[StreamScan]:
    scans = [turns.begin() for _ in seconds]
    for scan, taken_s in zip(scans, seconds, strict=True):
        scan.taken_s = taken_s
    return scans


@pytest.mark.parametrize("places", [1, 2, 3])
def test_as_many_read_as_there_are_places(places: int) -> None:
    turns, order = ScanTurns(places), list[Reader]()
    readers = [Reader(turns, turns.begin(), order) for _ in range(places)]
    for reader in readers:
        assert reader.has_turn.wait(SOON)
    late = Reader(turns, turns.begin(), order)
    waiting(turns, 1)
    assert not late.has_turn.is_set()
    for reader in (*readers, late):
        reader.end()
    assert order[-1] is late


def test_those_that_have_read_least_go_first_and_of_these_the_oldest() -> None:
    turns, order = ScanTurns(1), list[Reader]()
    first = Reader(turns, turns.begin(), order)
    assert first.has_turn.wait(SOON)
    scans = have_read(turns, 15.1, 2.9, 3.1, 0.0, 2.0)
    readers = [Reader(turns, scan, order) for scan in scans]
    waiting(turns, len(readers))
    first.end()
    for place in (1, 3, 4, 2, 0):
        readers[place].end()
    assert [reader in readers and readers.index(reader) for reader in order[1:]] == [1, 3, 4, 2, 0]


def test_a_turn_counts_as_long_as_it_took() -> None:
    now = [100.0]
    turns = ScanTurns(1, lambda: now[0])
    scan = turns.begin()
    for _ in range(2):
        with turns.turn(scan, deadline()):
            now[0] += 2.5
        now[0] += 50.0
    assert scan.taken_s == 5.0


def test_who_fails_leaves_the_place() -> None:
    turns = ScanTurns(1)
    with pytest.raises(ZeroDivisionError), turns.turn(turns.begin(), deadline()):
        raise ZeroDivisionError
    with turns.turn(turns.begin(), deadline()):
        pass


def test_who_waits_too_long_is_told_so_and_is_in_nobodys_way() -> None:
    turns = ScanTurns(1)
    with turns.turn(turns.begin(), deadline()):
        with (
            pytest.raises(PullLimitExceeded, match=r"longer than 0\.01 seconds"),
            turns.turn(turns.begin(), deadline(0.01)),
        ):
            pass
        gone = PullClient()
        gone.leave()
        with pytest.raises(PullLimitExceeded, match="gone away"), turns.turn(turns.begin(), deadline(client=gone)):
            pass
    with turns.turn(turns.begin(), deadline()):
        pass


@pytest.fixture
def clicks(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[millstream.Connection, ScanTurns]]:
    """A stream of 40 rows, of which a scan reads a few at a time, with one place for scans that read on."""
    turns = ScanTurns(1)
    monkeypatch.setattr(pull_query, "scan_turns", lambda: turns)
    monkeypatch.setattr(pull_query, "MAX_BATCH_BYTES", 1)
    with millstream.connect(properties={"millstream.query.pull.max.seconds": "2"}) as ms:
        topic = "kafka_topic='clicks', value_format='JSON', partitions=1"
        ms.sql(f"CREATE STREAM clicks (user STRING KEY, size INT) WITH ({topic});")
        for size in range(40):
            ms.insert("clicks", {"user": ["ada"], "size": [size]})
        yield ms, turns


def test_a_query_of_one_batch_waits_for_nobody(
    clicks: tuple[millstream.Connection, ScanTurns], monkeypatch: pytest.MonkeyPatch
) -> None:
    ms, turns = clicks
    counts = "SELECT user, COUNT(*) AS n FROM clicks GROUP BY user;"
    with turns.turn(turns.begin(), deadline()):
        with pytest.raises(PullLimitExceeded):
            ms.sql(counts).fetchall()
        monkeypatch.setattr(pull_query, "MAX_BATCH_BYTES", 1 << 20)
        assert ms.sql(counts).fetchall() == [("ada", 40)]
    monkeypatch.setattr(pull_query, "MAX_BATCH_BYTES", 1)
    assert ms.sql(counts).fetchall() == [("ada", 40)]
