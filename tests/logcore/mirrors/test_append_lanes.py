"""Lanes: in order within a partition, side by side between them, within their room, and over with the first failure."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from waiting import eventually

from millstream.logcore.client import TopicPartition
from millstream.logcore.mirrors.append_lanes import AppendLanes

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def lanes() -> Iterator[AppendLanes]:
    opened = AppendLanes("test-lanes", bytes_max=10)
    yield opened
    opened.close()


def test_pieces_of_a_partition_are_done_in_their_order(lanes: AppendLanes) -> None:
    done: list[int] = []
    for number in range(100):
        assert lanes.has_room(10)
        lanes.give(FIRST, 1, lambda number=number: done.append(number))
    eventually(lambda: len(done) == 100)
    assert done == list(range(100))


def test_partitions_do_not_wait_for_each_other(lanes: AppendLanes) -> None:
    go_on, done = threading.Event(), threading.Event()
    lanes.give(FIRST, 1, lambda: None if go_on.wait(30) else pytest.fail("never"))
    lanes.give(SECOND, 1, done.set)
    assert done.wait(10)
    go_on.set()


def test_more_partitions_than_threads_take_turns(lanes: AppendLanes) -> None:
    """The busy ones go on only after FIRST, which waits for one of their threads: without turns for ever."""
    done: list[bool] = []
    all_given, first_is_done = threading.Event(), threading.Event()
    for number in range(4):
        lanes.give(TopicPartition("busy", number), 0, lambda: done.append(all_given.wait(30)))
        lanes.give(TopicPartition("busy", number), 0, lambda: done.append(first_is_done.wait(30)))
    lanes.give(FIRST, 0, first_is_done.set)
    all_given.set()
    eventually(lambda: len(done) == 8, 60)
    assert all(done), "a partition waited until another one had nothing left"


def test_there_is_room_for_one_piece_too_many_and_then_for_none_until_some_are_done(lanes: AppendLanes) -> None:
    go_on = threading.Event()
    lanes.give(FIRST, 9, lambda: None if go_on.wait(30) else pytest.fail("never"))
    assert lanes.has_room(0)
    lanes.give(FIRST, 9, lambda: None)
    assert not lanes.has_room(0.01)
    go_on.set()
    assert lanes.has_room(10)


def test_the_first_failure_is_raised_and_nothing_behind_it_is_done(lanes: AppendLanes) -> None:
    go_on, done = threading.Event(), threading.Event()

    def fail() -> None:
        go_on.wait(10)
        raise ValueError("no room")

    lanes.give(FIRST, 1, fail)
    lanes.give(FIRST, 9, done.set)
    go_on.set()
    eventually(lambda: _fails(lanes))
    lanes.close()
    assert not done.is_set()


def _fails(lanes: AppendLanes) -> bool:
    try:
        lanes.has_room(0)
    except ValueError as error:
        return str(error) == "no room"
    return False


def test_closing_waits_for_what_has_begun_and_drops_the_rest(lanes: AppendLanes) -> None:
    begun, ended, later = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        later.wait(0.05)
        ended.set()

    lanes.give(FIRST, 1, work)
    lanes.give(FIRST, 1, later.set)
    assert begun.wait(10)
    lanes.close()
    assert ended.is_set()
    assert not later.is_set()
