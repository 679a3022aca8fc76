"""The turns of a query: each transition of its states, with a runtime whose batches end when the test says."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from itertools import product
from typing import cast

import pytest
from structlog.testing import capture_logs
from waiting import eventually

from millstream.executor.executor import QueryMetrics
from millstream.executor.figures import QueryFigures
from millstream.executor.queries import query_worker, worker_states
from millstream.executor.queries.query import QueryRuntime
from millstream.executor.queries.query_worker import QueryWorker
from millstream.executor.queries.recovery_watch import RecoveryWatch
from millstream.executor.queries.turns import Turns
from millstream.executor.queries.worker_states import BY_CALLERS, TRANSITIONS, WorkerEvent, WorkerState, WorkerStates
from millstream.executor.work_pool import WorkPool
from millstream.logcore.client import LogClient, Offsets, TopicPartition
from millstream.logcore.errors import LogClosed, LogFull, ProducerFenced

PATIENCE_S = 30.0
FATAL = ProducerFenced("somebody else runs it")
BUG = RuntimeError("no such row")


class Runtime:
    """Each call of `step` begins with a note in `began` and ends as the next of `outcomes` says."""

    def __init__(self) -> None:
        self.began: queue.Queue[str] = queue.Queue()
        self.outcomes: queue.Queue[bool | Exception] = queue.Queue()
        self.calls: list[str] = []
        self.metrics = QueryMetrics()
        self.positions: dict[object, int] = {}
        self.close_with: Exception | None = None
        self.looked: list[bool] = []
        self.has_more = self.has_news = True
        self.rest_due_s = 0.0

    def open(self, _: RecoveryWatch) -> QueryRuntime:
        self.calls.append("open")
        return cast(QueryRuntime, self)

    def step(self) -> bool:
        self.began.put("step")
        outcome = self.outcomes.get(timeout=PATIENCE_S)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    @property
    def fetch_positions(self) -> dict[TopicPartition, int]:
        return {TopicPartition("input", 0): 0}

    @property
    def moves_by_itself(self) -> bool:
        return False

    def rest(self) -> None:
        self.calls.append("rest")

    def close(self) -> None:
        self.calls.append("close")
        if self.close_with is not None:
            raise self.close_with

    def lag(self) -> dict[object, int]:
        return {}

    def figures(self, *, with_state: bool) -> QueryFigures:
        self.looked.append(with_state)
        return QueryFigures()

    def begins(self) -> None:
        """Returns once a batch is under way."""
        self.began.get(timeout=PATIENCE_S)

    def ends(self, *outcomes: bool | Exception) -> None:
        for outcome in outcomes:
            self.outcomes.put(outcome)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Nobody draws the traces of failures, which takes longer than all else here."""
    with capture_logs():
        yield


@pytest.fixture
def runtime() -> Runtime:
    return Runtime()


class Silent:
    """A log in which nothing comes."""

    def listen(self, _: Callable[[TopicPartition], None]) -> Callable[[], None]:
        return lambda: None

    def offsets(self, topic: str, partition: int) -> Offsets:
        return Offsets(0, 0, 0, 0)


@pytest.fixture(scope="module")
def turns() -> Iterator[Turns]:
    made = Turns(cast(LogClient, Silent()), WorkPool(2))
    yield made
    made.close()


@pytest.fixture
def worker(runtime: Runtime, turns: Turns) -> Iterator[QueryWorker]:
    made = QueryWorker("Q", runtime.open, turns)
    yield made
    runtime.ends(*[False] * 100)
    made.stop()


@pytest.fixture
def long_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_worker, "BACKOFF_S", PATIENCE_S)
    monkeypatch.setattr(query_worker, "BACKOFF_MAX_S", PATIENCE_S)


@pytest.fixture
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_worker, "BACKOFF_S", 0.0)


def becomes(worker: QueryWorker, wanted: WorkerState) -> None:
    worker._states.wait(lambda state: state is wanted, PATIENCE_S)
    assert worker._states.state is wanted


def under_way(call: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=call)
    thread.start()
    return thread


def ended(thread: threading.Thread) -> None:
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def brought_to(worker: QueryWorker, runtime: Runtime, state: WorkerState) -> None:
    """A worker in a state in which it stays."""
    if state is not WorkerState.STOPPED:
        worker.start()
        runtime.begins()
    match state:
        case WorkerState.WORKING:
            pass
        case WorkerState.RETRYING:
            runtime.ends(BUG)
        case WorkerState.PAUSED:
            runtime.ends(False)
            worker.pause()
        case WorkerState.FAILED:
            runtime.ends(FATAL)
        case WorkerState.STOPPED:
            worker.stop()
        case _:
            raise AssertionError(state)
    becomes(worker, state)


# ------------------------------------------------------------------ the table


def test_the_table_above_the_states_names_each_with_what_is_shown() -> None:
    lines = [line.split("|") for line in (worker_states.__doc__ or "").splitlines() if line.startswith("| ")]
    told = {cells[1].strip(): cells[2].strip() for cells in lines[2:]}
    assert told == {state.name: state.shown for state in WorkerState}


def test_callers_change_these_and_nothing_else() -> None:
    changed = {(state.name, event.name): after.name for (state, event), after in TRANSITIONS.items()
               if event in BY_CALLERS}  # fmt: skip
    assert changed == {
        ("WORKING", "PAUSE"): "PAUSING", ("RETRYING", "PAUSE"): "PAUSING",
        ("PAUSING", "RESUME"): "WORKING", ("PAUSED", "RESUME"): "WORKING", ("FAILED", "RESUME"): "WORKING",
        ("WORKING", "STOP"): "STOPPING", ("RETRYING", "STOP"): "STOPPING", ("PAUSING", "STOP"): "STOPPING",
        ("PAUSED", "STOP"): "STOPPING", ("FAILING", "STOP"): "STOPPING", ("FAILED", "STOP"): "STOPPED",
    }  # fmt: skip


@pytest.mark.parametrize(("state", "event"), list(product(WorkerState, WorkerEvent)))
def test_an_event_without_a_line_is_nothing_or_a_mistake_of_the_query(state: WorkerState, event: WorkerEvent) -> None:
    states = WorkerStates(threading.Condition(), paused=False)
    states._state = state
    if (state, event) in TRANSITIONS:
        assert states.move(event)
        assert states.state is TRANSITIONS[state, event]
    elif event in BY_CALLERS:
        assert not states.move(event)
        assert states.state is state
    else:
        with pytest.raises(AssertionError, match=f"{event.name} while {state.name}"):
            states.move(event)


# ------------------------------------------------------------------ while it works


def test_pause_returns_once_the_batch_is_over_and_the_state_at_rest(worker: QueryWorker, runtime: Runtime) -> None:
    worker.start()
    runtime.begins()
    pausing = under_way(worker.pause)
    becomes(worker, WorkerState.PAUSING)
    assert (worker.status().state, runtime.calls) == ("PAUSED", ["open"])
    runtime.ends(True)
    ended(pausing)
    assert (worker._states.state, runtime.calls) == (WorkerState.PAUSED, ["open", "rest"])


def test_resume_while_it_pauses_goes_on_and_lets_who_paused_it_go(worker: QueryWorker, runtime: Runtime) -> None:
    worker.start()
    runtime.begins()
    pausing = under_way(worker.pause)
    becomes(worker, WorkerState.PAUSING)
    worker.resume()
    ended(pausing)
    runtime.ends(True)
    runtime.begins()
    assert (worker.status().state, runtime.calls) == ("RUNNING", ["open"])


def test_stop_waits_for_the_batch_and_closes(worker: QueryWorker, runtime: Runtime) -> None:
    worker.start()
    runtime.begins()
    stopping = under_way(worker.stop)
    becomes(worker, WorkerState.STOPPING)
    assert (stopping.is_alive(), worker.status().state, runtime.calls) == (True, "STOPPED", ["open"])
    runtime.ends(True)
    ended(stopping)
    assert (worker._states.state, runtime.calls) == (WorkerState.STOPPED, ["open", "close"])


@pytest.mark.parametrize("failure", [BUG, FATAL])
def test_a_batch_that_fails_while_it_stops_changes_nothing(
    worker: QueryWorker, runtime: Runtime, failure: Exception
) -> None:
    worker.start()
    runtime.begins()
    stopping = under_way(worker.stop)
    becomes(worker, WorkerState.STOPPING)
    runtime.ends(failure)
    ended(stopping)
    assert (worker.status().state, runtime.calls) == ("STOPPED", ["open", "close"])


def test_a_batch_that_fails_while_it_pauses_is_left_for_resume(worker: QueryWorker, runtime: Runtime) -> None:
    worker.start()
    runtime.begins()
    pausing = under_way(worker.pause)
    becomes(worker, WorkerState.PAUSING)
    runtime.ends(BUG)
    ended(pausing)
    assert (worker.status().state, worker.status().error) == ("PAUSED", str(BUG))
    worker.resume()
    runtime.begins()
    runtime.ends(True)
    runtime.begins()
    assert worker.status().error is None


def test_a_query_that_cannot_go_on_while_it_pauses_is_in_error(worker: QueryWorker, runtime: Runtime) -> None:
    worker.start()
    runtime.begins()
    pausing = under_way(worker.pause)
    becomes(worker, WorkerState.PAUSING)
    runtime.ends(FATAL)
    ended(pausing)
    assert (worker.status().state, worker.status().error, runtime.calls) == ("ERROR", str(FATAL), ["open", "close"])


# ------------------------------------------------------------------ at its start


def test_a_query_that_starts_paused_opens_nothing(runtime: Runtime, turns: Turns) -> None:
    worker = QueryWorker("Q", runtime.open, turns, paused=True)
    worker.start()
    becomes(worker, WorkerState.PAUSED)
    worker.pause()
    assert runtime.calls == []
    worker.stop()
    assert (worker.status().state, runtime.calls) == ("STOPPED", [])


def test_a_query_that_is_stopped_before_it_starts_never_does(worker: QueryWorker, runtime: Runtime) -> None:
    worker.stop()
    worker.start()
    worker.resume()
    assert (worker.status().state, runtime.calls) == ("STOPPED", [])


def test_pause_while_it_opens_waits_until_it_has(turns: Turns) -> None:
    opening, go_on = threading.Event(), threading.Event()

    def opened(_: RecoveryWatch) -> QueryRuntime:
        opening.set()
        assert go_on.wait(PATIENCE_S)
        raise BUG

    worker = QueryWorker("Q", opened, turns)
    worker.start()
    assert opening.wait(PATIENCE_S)
    pausing = under_way(worker.pause)
    becomes(worker, WorkerState.PAUSING)
    go_on.set()
    ended(pausing)
    assert (worker.status().state, worker.status().error) == ("PAUSED", str(BUG))
    worker.stop()


class LongRecovery:
    """A recovery that goes on until it is interrupted, each time that the query is opened."""

    def __init__(self) -> None:
        self.opened: queue.Queue[str] = queue.Queue()

    def open(self, watch: RecoveryWatch) -> QueryRuntime:
        with watch.recovering():
            watch.at(7)
            self.opened.put("opened")
            while True:
                watch.at(7)
                time.sleep(0.001)


def test_pause_and_stop_end_a_recovery(turns: Turns) -> None:
    recovery = LongRecovery()
    worker = QueryWorker("Q", recovery.open, turns)
    worker.start()
    recovery.opened.get(timeout=PATIENCE_S)
    assert (worker.status().state, worker.status().recovery_left) == ("RUNNING", 7)
    ended(under_way(worker.pause))
    assert (worker.status().state, worker.status().error, worker.status().recovery_left) == ("PAUSED", None, None)
    worker.resume()
    recovery.opened.get(timeout=PATIENCE_S)
    ended(under_way(worker.stop))
    assert (worker.status().state, worker.status().error) == ("STOPPED", None)


# ------------------------------------------------------------------ after failures


@pytest.mark.usefixtures("long_waits")
def test_pause_ends_the_wait_after_a_failure(worker: QueryWorker, runtime: Runtime) -> None:
    brought_to(worker, runtime, WorkerState.RETRYING)
    assert (worker.status().state, worker.status().error) == ("RUNNING", str(BUG))
    worker.pause()
    assert (worker.status().state, runtime.calls) == ("PAUSED", ["open", "rest"])


@pytest.mark.usefixtures("long_waits")
def test_stop_ends_the_wait_after_a_failure(worker: QueryWorker, runtime: Runtime) -> None:
    brought_to(worker, runtime, WorkerState.RETRYING)
    worker.stop()
    assert (worker.status().state, runtime.calls) == ("STOPPED", ["open", "close"])


@pytest.mark.usefixtures("no_waits")
def test_a_query_gives_up_after_so_many_failures_in_a_row(worker: QueryWorker, runtime: Runtime) -> None:
    worker.start()
    almost = [BUG] * (query_worker.FAILURES_MAX - 1)
    runtime.ends(*almost, True, *almost, BUG)
    becomes(worker, WorkerState.FAILED)
    assert runtime.began.qsize() == 2 * query_worker.FAILURES_MAX


@pytest.mark.parametrize(
    ("error", "level"), [(LogClosed("the log is closed"), "info"), (FATAL, "error")], ids=["it moves", "it fails"]
)
def test_a_query_whose_engine_moves_to_another_node_is_no_error_of_the_log(
    worker: QueryWorker, runtime: Runtime, error: Exception, level: str
) -> None:
    with capture_logs() as logs:
        worker.start()
        runtime.ends(error)
        eventually(lambda: worker.status().state == "ERROR")
        eventually(lambda: logs != [])
    assert [entry["log_level"] for entry in logs] == [level]


@pytest.mark.usefixtures("no_waits")
def test_a_query_waits_out_what_the_machine_lacks(worker: QueryWorker, runtime: Runtime) -> None:
    worker.start()
    runtime.ends(*[LogFull("no space")] * 3 * query_worker.FAILURES_MAX, True)
    for _ in range(3 * query_worker.FAILURES_MAX + 2):
        runtime.begins()
    assert (worker.status().state, worker.status().error) == ("RUNNING", None)


def test_resume_after_an_error_begins_anew(worker: QueryWorker, runtime: Runtime) -> None:
    brought_to(worker, runtime, WorkerState.FAILED)
    assert runtime.calls == ["open", "close"]
    worker.pause()
    assert worker.status().state == "ERROR"
    worker.resume()
    runtime.begins()
    assert (worker.status().state, worker.status().error) == ("RUNNING", None)


def test_resume_while_it_fails_waits_until_everything_is_closed(worker: QueryWorker, runtime: Runtime) -> None:
    closing, go_on = threading.Event(), threading.Event()

    def close() -> None:
        closing.set()
        assert go_on.wait(PATIENCE_S)
        runtime.calls.append("closed")

    runtime.close = close  # pyrefly: ignore[method-assign]
    worker.start()
    runtime.begins()
    runtime.ends(FATAL)
    assert closing.wait(PATIENCE_S)
    resuming = under_way(worker.resume)
    assert (worker.status().state, runtime.began.qsize()) == ("ERROR", 0)
    go_on.set()
    ended(resuming)
    runtime.begins()
    assert (worker.status().state, runtime.calls) == ("RUNNING", ["open", "closed"])


def test_after_a_stop_nothing_starts_again(worker: QueryWorker, runtime: Runtime) -> None:
    brought_to(worker, runtime, WorkerState.FAILED)
    worker.stop()
    worker.resume()
    worker.pause()
    assert (worker.status().state, worker.status().error) == ("STOPPED", str(FATAL))
    assert runtime.began.empty()


def test_a_close_that_fails_ends_it_all_the_same(worker: QueryWorker, runtime: Runtime) -> None:
    runtime.close_with = BUG
    brought_to(worker, runtime, WorkerState.FAILED)
    worker.stop()
    assert worker.status().state == "STOPPED"


@pytest.mark.parametrize("state", [WorkerState.PAUSED, WorkerState.FAILED, WorkerState.STOPPED])
def test_a_second_stop_or_pause_changes_nothing(worker: QueryWorker, runtime: Runtime, state: WorkerState) -> None:
    brought_to(worker, runtime, state)
    worker.pause()
    assert worker._states.state is state
    worker.stop()
    worker.stop()
    assert worker._states.state is WorkerState.STOPPED


def test_a_query_that_is_quiet_comes_to_rest_without_reading_again(
    worker: QueryWorker, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_worker, "QUIET_S", 0.01)
    runtime.has_more = runtime.has_news = False
    worker.start()
    runtime.ends(False)
    runtime.begins()
    eventually(lambda: "rest" in runtime.calls, PATIENCE_S)
    assert runtime.began.empty()
    runtime.has_news = True
    worker._turns.wake(worker)
    runtime.begins()


# ------------------------------------------------------------------ those who look into it


def test_who_looks_goes_before_the_next_batch(worker: QueryWorker, runtime: Runtime) -> None:
    worker.start()
    runtime.begins()
    looking = under_way(worker.figures)
    with worker._changed:
        assert worker._changed.wait_for(lambda: worker._access._guests == 1, PATIENCE_S)
    runtime.ends(True)
    ended(looking)
    assert runtime.looked == [True]


def test_who_looks_during_a_long_batch_gets_what_needs_no_turn(
    worker: QueryWorker, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_worker, "LOOK_S", 0.01)
    assert worker.figures() is None
    worker.start()
    runtime.begins()
    assert worker.figures() is not None
    assert runtime.looked == [False]


def test_who_looks_after_an_error_does_not_look_into_closed_files(worker: QueryWorker, runtime: Runtime) -> None:
    brought_to(worker, runtime, WorkerState.FAILED)
    assert worker.figures() is not None
    assert runtime.looked == [False]


def test_a_batch_that_took_all_there_was_is_followed_by_no_look_for_more(
    worker: QueryWorker, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_worker, "QUIET_S", 2.0)  # on a busy machine this thread may see half a second late
    runtime.has_more = False
    worker.start()
    runtime.begins()
    runtime.ends(True)
    with pytest.raises(queue.Empty):
        runtime.began.get(timeout=0.2)
    runtime.begins()  # it comes to rest
    runtime.ends(False)


def test_a_query_with_little_to_write_comes_to_rest_later(worker: QueryWorker, runtime: Runtime) -> None:
    runtime.has_more = False
    runtime.rest_due_s = time.monotonic() + 3 * query_worker.QUIET_S
    worker.start()
    for outcome in (True, False):  # the second turn is due when it may rest
        runtime.begins()
        assert "rest" not in runtime.calls
        runtime.ends(outcome)
    eventually(lambda: "rest" in runtime.calls, PATIENCE_S)
    assert time.monotonic() >= runtime.rest_due_s
