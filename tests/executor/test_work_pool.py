"""Work side by side: what comes of it, what fails in it, and that nobody waits for ever."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path

import pytest
from waiting import eventually, inside, once

from millstream.executor import work_pool
from millstream.executor.work_pool import Work, WorkPool

PATIENCE_S = 30.0


@pytest.mark.parametrize("size", [1, 2, 5])
def test_results_come_in_the_order_of_the_calls(size: int) -> None:
    assert WorkPool(size).side_by_side([partial(pow, n, 2) for n in range(40)]) == [n**2 for n in range(40)]


def test_two_pieces_run_at_the_same_time() -> None:
    both = threading.Barrier(2, timeout=PATIENCE_S)
    assert sorted(WorkPool(2).side_by_side([both.wait, both.wait])) == [0, 1]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_work_may_wait_for_work_however_few_threads_there_are(size: int) -> None:
    pool = WorkPool(size)

    def tree(depth: int) -> int:
        if not depth:
            return 1
        begun = pool.begin(partial(tree, depth - 1))
        return begun.result() + sum(pool.side_by_side([partial(tree, depth - 1)] * 3))

    assert tree(4) == 4**4


def test_the_first_failure_is_raised_once_all_is_over() -> None:
    over: list[int] = []

    def work(number: int) -> None:
        if number in (1, 3):
            raise ValueError(number)
        over.append(number)

    with pytest.raises(ValueError, match="1"):
        WorkPool(3).side_by_side([partial(work, n) for n in range(6)])
    assert sorted(over) == [0, 2, 4, 5]


def test_dropped_work_is_not_begun_and_what_is_under_way_is_waited_for() -> None:
    pool = WorkPool(1)
    began, go_on, done = threading.Event(), threading.Event(), threading.Event()

    def slow() -> None:
        began.set()
        assert go_on.wait(PATIENCE_S)
        done.set()

    under_way = pool.begin(slow)
    assert began.wait(PATIENCE_S)
    never: list[int] = []
    waiting = pool.begin(partial(never.append, 1))
    waiting.drop()
    once(inside(Work.drop), go_on.set)
    under_way.drop()
    assert done.is_set() and not never


def test_work_is_done_once_by_whoever_comes_first() -> None:
    calls: list[int] = []
    work = Work(partial(calls.append, 1))
    work.do()
    work.do()
    assert (work.result(), calls) == (None, [1])


def test_who_divides_work_does_all_of_it_where_no_thread_is_free() -> None:
    pool = WorkPool(2)
    busy, go_on = threading.Barrier(4, timeout=PATIENCE_S), threading.Event()

    def hold() -> None:
        busy.wait()
        assert go_on.wait(PATIENCE_S)

    held = [pool.begin(hold) for _ in range(3)]  # as many as the pool has threads
    busy.wait()
    done_by: list[int] = []
    pool.side_by_side([lambda: done_by.append(threading.get_ident())] * 20)
    assert done_by == [threading.get_ident()] * 20
    go_on.set()
    for each in held:
        each.wait()


def test_threads_that_were_one_too_many_go_though_a_trickle_of_work_keeps_coming(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(work_pool, "_RELIEF_S", 0.5)
    pool = WorkPool(1)
    held, workers = threading.Event(), set[int]()

    def hold() -> None:
        workers.add(threading.get_native_id())
        assert held.wait(PATIENCE_S)

    held_back = [pool.later(hold) for _ in range(6)]
    for count in range(2, 7):
        eventually(lambda count=count: len(workers) == count)
        pool.relieve(0.0)  # nobody is free
    held.set()
    for work in held_back:
        work.wait()

    def left() -> int:
        return len(workers & {int(task.name) for task in Path("/proc/self/task").iterdir()})

    over = threading.Event()

    def trickle() -> None:
        """Each of them, in turn, would have some long before its time."""
        while not over.wait(0.01):
            pool.begin(lambda: None).wait()

    trickling = threading.Thread(target=trickle)
    trickling.start()
    try:
        eventually(lambda: left() == 2, 10.0)
    finally:
        over.set()
        trickling.join()
    assert pool.side_by_side([lambda: 1] * 3) == [1] * 3


@pytest.mark.parametrize(
    ("rows", "cores", "beside", "parts"),
    [(19_999, 4, 1, 1), (20_000, 4, 1, 2), (90_000, 4, 1, 4), (90_000, 4, 2, 2), (90_000, 4, 3, 2), (90_000, 4, 9, 1)],
)
def test_batches_that_are_divided_beside_each_other_share_the_cores(
    monkeypatch: pytest.MonkeyPatch, rows: int, cores: int, beside: int, parts: int
) -> None:
    pool = WorkPool(cores)
    monkeypatch.setattr(work_pool, "work_pool", lambda: pool)
    bounds = work_pool.slices(rows, beside=beside)
    assert len(bounds) == parts
    assert [begin for begin, _ in bounds] == [0, *(end for _, end in bounds[:-1])]
    assert bounds[-1][1] == rows
