"""When a follower counts as caught up: what the leader may say of it, and what it must not say."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from millstream.logcore.replication.machine import NodeId
from millstream.logcore.replication.replica.in_sync import InSyncReplicas

_LEADER, _FOLLOWER = NodeId(1), NodeId(2)


class Followed:
    """A leader whose log grows, and its follower, which fetches. State: the ends that the log had, by time."""

    def __init__(self) -> None:
        members = frozenset({_LEADER, _FOLLOWER})
        self.in_sync = InSyncReplicas(members, 0, members)
        self._ends: list[tuple[int, int]] = []
        self._life = 1

    def fetch(self, now_ms: int, offset: int, end: int) -> None:
        self._ends.append((now_ms, end))
        assert self.in_sync.note_fetch(_FOLLOWER, offset, self._life, end, now_ms)

    def begin_a_new_life(self) -> None:
        self._life += 1

    @property
    def caught_up_ms(self) -> int:
        return self.in_sync.followers[_FOLLOWER].caught_up_ms

    def had_all_at(self, offset: int) -> int:
        """The last time at which the log was no longer than that."""
        return max((at_ms for at_ms, end in self._ends if end <= offset), default=self._ends[0][0])


def test_a_follower_that_is_always_as_little_behind_is_as_little_late() -> None:
    """A producer keeps 16 batches under way, and a fetch brings two: at no fetch it has all that was there at the last.
    It is 80 ms behind, for as long as that goes on."""
    followed = Followed()
    for now_ms in range(0, 60_000, 10):
        end = now_ms // 5
        followed.fetch(now_ms, max(0, end - 16), end)
        assert now_ms - followed.caught_up_ms <= 2 * 80


def test_a_follower_that_falls_back_further_and_further_is_late() -> None:
    followed = Followed()
    for now_ms in range(0, 60_000, 10):
        followed.fetch(now_ms, now_ms // 10, now_ms // 5)
    assert 60_000 - followed.caught_up_ms >= 30_000


def test_a_follower_that_stands_still_is_caught_up_to_when_it_last_was() -> None:
    followed = Followed()
    followed.fetch(0, 10, 10)
    followed.fetch(10, 10, 12)
    followed.fetch(20, 12, 13)
    for now_ms in range(30, 5_000, 10):
        followed.fetch(now_ms, 12, 13)
    assert followed.caught_up_ms == 10


def test_a_follower_with_all_of_its_last_fetch_is_caught_up_to_that_and_not_only_to_an_earlier_one() -> None:
    followed = Followed()
    followed.fetch(0, 0, 10)
    followed.fetch(100, 5, 20)
    followed.fetch(200, 20, 40)
    assert followed.caught_up_ms == 100


@pytest.mark.parametrize("seed", range(50))
def test_it_never_counts_as_caught_up_to_a_later_time_than_it_is(seed: int) -> None:
    chance = random.Random(seed)
    followed = Followed()
    for now_ms, offset, end in _fetches(chance):
        followed.fetch(now_ms, offset, end)
        assert followed.caught_up_ms <= followed.had_all_at(offset)


def test_what_an_earlier_life_was_asked_for_says_nothing_of_the_next() -> None:
    """It may have come back with less than it had."""
    followed = Followed()
    followed.fetch(0, 0, 10)
    followed.fetch(500, 5, 10)
    followed.begin_a_new_life()
    followed.fetch(1_000, 10, 20)
    assert followed.caught_up_ms == 0
    followed.fetch(2_000, 20, 30)
    assert followed.caught_up_ms == 1_000


def _fetches(chance: random.Random) -> Iterator[tuple[int, int, int]]:
    """Time, the follower's offset, the end of the leader's log."""
    now_ms = offset = end = 0
    for _ in range(400):
        now_ms += chance.randrange(1, 50)
        end += chance.choice([0, 0, 1, 5, 20])
        offset = min(end, offset + chance.choice([0, 1, 4, 10, 100]))
        yield now_ms, offset, end
