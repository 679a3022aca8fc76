"""The order in which records of several partitions are processed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hand_plans import stream_source
from hypothesis import given
from hypothesis import strategies as st

from millstream.executor.sources.time_order import BEFORE_ALL, lane_ranks, ranks, ready_counts, running_maximum
from millstream.logcore.client import TopicPartition

lanes = st.lists(st.lists(st.integers(0, 20), max_size=8), min_size=1, max_size=4)


def test_a_late_record_waits_for_the_one_before_it() -> None:
    assert running_maximum(np.array([5, 3, 7])).tolist() == [5, 5, 7]
    assert running_maximum(np.array([5, 3, 7]), 6).tolist() == [6, 6, 7]


def test_ties_go_by_the_order_of_the_lanes() -> None:
    # two lanes: [1, 5] and [1, 2, 5]
    assert ranks(np.array([1, 5, 1, 2, 5])).tolist() == [0, 3, 1, 2, 4]


def test_records_wait_while_something_older_may_still_come() -> None:
    counts = ready_counts([np.array([1, 5]), np.array([1, 2, 9])], [False, True])
    assert counts == [2, 2]  # 9 waits: the first lane goes on after 5


def test_an_empty_lane_that_is_not_complete_holds_back_all() -> None:
    assert ready_counts([np.array([1]), np.empty(0, np.int64)], [True, False]) == [0, 0]


@given(lanes, st.data())
def test_the_order_does_not_depend_on_where_fetches_end(times: list[list[int]], data: st.DataObject) -> None:
    """Feeding the lanes piece by piece gives the order of feeding them whole; nothing is known of what was taken."""
    arrays = [np.array(lane, np.int64) for lane in times]
    whole = _merge(arrays)
    taken: list[tuple[int, int]] = []
    start, fetched = [0] * len(arrays), [0] * len(arrays)
    while any(begin < len(lane) for begin, lane in zip(start, arrays, strict=True)):
        for index, lane in enumerate(arrays):
            if start[index] == fetched[index]:
                fetched[index] = min(len(lane), fetched[index] + data.draw(st.integers(1, 3)))
        pending = [_running(lane[a:b]) for lane, a, b in zip(arrays, start, fetched, strict=True)]
        complete = [b == len(lane) for lane, b in zip(arrays, fetched, strict=True)]
        counts = ready_counts(pending, complete)
        assert sum(counts) > 0
        now = _merge([lane[a : a + count] for lane, a, count in zip(arrays, start, counts, strict=True)])
        taken += [(index, start[index] + place) for index, place in now]
        start = [begin + count for begin, count in zip(start, counts, strict=True)]
    assert taken == whole


@given(lanes)
def test_of_the_next_records_of_all_lanes_the_smallest_goes_first(times: list[list[int]]) -> None:
    left = [list(enumerate(lane)) for lane in times]
    one_by_one: list[tuple[int, int]] = []
    while any(left):
        _, lane = min((waiting[0][1], lane) for lane, waiting in enumerate(left) if waiting)
        one_by_one.append((lane, left[lane].pop(0)[0]))
    assert _merge([np.array(lane, np.int64) for lane in times]) == one_by_one


def _running(times: np.ndarray) -> np.ndarray:
    return running_maximum(times) if len(times) else times


def _merge(lanes: list[np.ndarray]) -> list[tuple[int, int]]:
    places = [(index, place) for index, lane in enumerate(lanes) for place in range(len(lane))]
    order = ranks(np.concatenate([np.array([], np.int64), *map(_running, lanes)]))
    return [place for _, place in sorted(zip(order.tolist(), places, strict=True))]


def test_of_equal_times_tables_go_first_then_the_order_of_the_sources_then_the_partition() -> None:
    sources = [stream_source("s1"), stream_source("s2"), replace(stream_source("t"), kind="TABLE")]
    lanes = [TopicPartition(topic, partition) for topic in ("t", "s2", "s1") for partition in (1, 0)]
    ordered = sorted(lanes, key=lane_ranks(sources, lanes).__getitem__)
    assert ordered == [TopicPartition(topic, partition) for topic in ("t", "s1", "s2") for partition in (0, 1)]


def test_nothing_is_before_all() -> None:
    assert running_maximum(np.array([-1]), int(BEFORE_ALL)).tolist() == [-1]
