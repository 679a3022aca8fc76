"""How much a push query reads at a time, by how quickly its client takes the rows."""

from __future__ import annotations

import pytest

from millstream.executor.answers.reading_pace import (
    BATCH_BYTES_MAX,
    BATCH_BYTES_MIN,
    QUICK_S,
    SLOW_S,
    ReadingPace,
)


class Client:
    """Takes batches, each in the given time."""

    def __init__(self) -> None:
        self._now = 0.0
        self._pace = ReadingPace(lambda: self._now)

    def took(self, seconds: float, *, more: bool = True) -> int:
        """The size of the batch after the one that it takes in this time."""
        self._pace.handed_out(more=more)
        self._now += seconds
        return self._pace.batch_bytes()


def test_the_first_batch_is_small() -> None:
    assert ReadingPace().batch_bytes() == BATCH_BYTES_MIN


def test_a_quick_client_soon_gets_the_largest_batches() -> None:
    client = Client()
    sizes = [client.took(QUICK_S / 2) for _ in range(7)]
    assert sizes[:2] == [2 * BATCH_BYTES_MIN, 4 * BATCH_BYTES_MIN]
    assert sizes[-2:] == [BATCH_BYTES_MAX, BATCH_BYTES_MAX]


def test_a_client_that_stalls_gets_the_smallest_again() -> None:
    client = Client()
    large = [client.took(0.0) for _ in range(3)][-1]
    assert client.took((QUICK_S + SLOW_S) / 2) == large
    assert client.took(SLOW_S + 0.1) == BATCH_BYTES_MIN


@pytest.mark.parametrize("batches", [1, 100])
def test_batches_that_end_at_the_end_of_the_topic_do_not_grow(batches: int) -> None:
    client = Client()
    assert {client.took(0.0, more=False) for _ in range(batches)} == {BATCH_BYTES_MIN}


def test_the_wait_for_records_is_not_the_clients() -> None:
    now = 0.0
    pace = ReadingPace(lambda: now)
    pace.handed_out(more=True)
    larger = pace.batch_bytes()
    now += 10 * SLOW_S
    assert pace.batch_bytes() == larger
