"""The order in which records of several partitions are processed."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from millstream.executor.sources.time_order import BEFORE_ALL, ranks, ready_counts, running_maximum

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
    """Feeding the lanes piece by piece gives the order of feeding them whole."""
    running = [running_maximum(np.array(lane, np.int64)) if lane else np.empty(0, np.int64) for lane in times]
    whole = _merge(running)
    taken: list[tuple[int, int]] = []
    start, fetched = [0] * len(running), [0] * len(running)
    while any(begin < len(lane) for begin, lane in zip(start, running, strict=True)):
        for index, lane in enumerate(running):
            if start[index] == fetched[index]:
                fetched[index] = min(len(lane), fetched[index] + data.draw(st.integers(1, 3)))
        pending = [lane[a:b] for lane, a, b in zip(running, start, fetched, strict=True)]
        complete = [b == len(lane) for lane, b in zip(running, fetched, strict=True)]
        counts = ready_counts(pending, complete)
        assert sum(counts) > 0
        now = _merge([lane[:count] for lane, count in zip(pending, counts, strict=True)])
        taken += [(index, start[index] + place) for index, place in now]
        start = [begin + count for begin, count in zip(start, counts, strict=True)]
    assert taken == whole


def _merge(running: list[np.ndarray]) -> list[tuple[int, int]]:
    places = [(index, place) for index, lane in enumerate(running) for place in range(len(lane))]
    order = ranks(np.concatenate([np.array([], np.int64), *running]))
    return [place for _, place in sorted(zip(order.tolist(), places, strict=True))]


def test_nothing_is_before_all() -> None:
    assert running_maximum(np.array([-1]), int(BEFORE_ALL)).tolist() == [-1]
