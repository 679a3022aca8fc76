"""A thread that drives one QueryRuntime: as fast as there is input, and asleep in the log otherwise."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator

import duckdb
import structlog

from millstream.errors import LogError

from ...logcore.client import TopicPartition
from ...logcore.errors import LogClosed, LogFull, LogUnavailable, LogWriteFailed, ProducerFenced
from ..executor import QueryMetrics, QueryStatus
from ..figures import QueryFigures
from ..state.lost_state import LOST, what_to_do
from .query import QueryRuntime
from .worker_states import OVER, UNDER_WAY, WorkerEvent, WorkerState, WorkerStates

log = structlog.get_logger()

WAKE_UP_S = 0.2  # how soon a sleeping query notices that it should stop
LOOK_S = 2.0  # how long somebody waits who wants to look into the state
FAILURES_MAX = 6  # in a row, of those that may be the query's own fault
BACKOFF_S = 0.1  # after the first failure; doubles with each
BACKOFF_MAX_S = 5.0

OUTAGES = (LogFull, LogWriteFailed, LogUnavailable, duckdb.IOException, MemoryError, duckdb.OutOfMemoryException)
"""Of the machine, not of the query: it waits for as long as they last."""


class QueryWorker:
    """Runs a query in a thread of its own. Its states are those of `worker_states.py`.

    In: `open_runtime` may raise; it is tried again like a failed batch.
    """

    def __init__(self, query_id: str, open_runtime: Callable[[], QueryRuntime], *, paused: bool = False) -> None:
        self.query_id = query_id
        self._open_runtime = open_runtime
        self._runtime: QueryRuntime | None = None
        self._error: str | None = None
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()  # guards the state, the turns, and which thread it is
        self._states = WorkerStates(self._changed, paused=paused)
        self._turns = _Turns(self._changed)

    def start(self) -> None:
        with self._changed:
            if self._states.state not in OVER:
                self._start_thread()

    def pause(self) -> None:
        """Returns once no batch is under way."""
        self._states.move(WorkerEvent.PAUSE)
        self._states.wait(lambda state: state not in UNDER_WAY)

    def resume(self) -> None:
        """Also after an error: the query tries again."""
        self._states.wait(lambda state: state is not WorkerState.FAILING)
        with self._changed:
            failed = self._states.state is WorkerState.FAILED
            if self._states.move(WorkerEvent.RESUME) and failed:
                self._error = None
                self._start_thread()

    def ask_to_stop(self) -> None:
        """Waits for nothing: who ends several queries asks all of them before it waits for the first one."""
        with self._changed:
            self._states.move(WorkerEvent.STOP)
            if self._thread is None and self._states.state is WorkerState.STOPPING:
                self._states.move(WorkerEvent.ENDED)  # it was never started

    def stop(self) -> None:
        """Returns once the thread has ended and the state file is closed."""
        self.ask_to_stop()
        with self._changed:
            thread = self._thread
        if thread is not None:
            thread.join()

    def status(self) -> QueryStatus:
        with self._changed:
            state, error, runtime = self._states.state.shown, self._error, self._runtime
        metrics = runtime.metrics if runtime is not None else QueryMetrics()
        positions: dict[TopicPartition, int] = runtime.positions if runtime is not None else {}
        lag: dict[TopicPartition, int] = {}
        if runtime is not None:
            with contextlib.suppress(LogError):  # a topic was deleted, or the log is closed: the error says so
                lag = runtime.lag()
        return QueryStatus(self.query_id, state, metrics, positions, lag, error, "duckdb")

    def figures(self) -> QueryFigures | None:
        """What the query measures; its state too, unless it is busy for long. None before it has begun."""
        with self._turns.guest(LOOK_S) as free:
            runtime = self._runtime
            if runtime is None:
                return None
            try:
                return runtime.figures(with_state=free and self._states.state not in OVER)
            except Exception as error:  # it is the query's thread that must say what is wrong
                log.info("no look into the state", query_id=self.query_id, error=str(error))
                return runtime.figures(with_state=False)

    # -------------------------------------------------------------- the thread

    def _start_thread(self) -> None:
        self._thread = threading.Thread(target=self._run, name=f"query-{self.query_id}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._work_until_over()
            self._close()
        finally:
            self._states.move(WorkerEvent.ENDED)

    def _work_until_over(self) -> None:
        failures = 0  # in a row
        while True:
            match self._states.state:
                case WorkerState.WORKING:
                    failures = self._work(failures)
                case WorkerState.RETRYING:
                    self._back_off(failures)
                case WorkerState.PAUSING:
                    self._rest()
                case WorkerState.PAUSED:
                    self._states.wait(lambda state: state is not WorkerState.PAUSED)
                case WorkerState.FAILING | WorkerState.FAILED | WorkerState.STOPPING | WorkerState.STOPPED:
                    return

    def _work(self, failures: int) -> int:
        """A batch, or a wait for input. In and out: how many failed in a row."""
        try:
            self._step()
        except (ProducerFenced, LogClosed, *LOST) as error:
            self._give_up(error)
            return failures + 1
        except Exception as error:  # whatever it is: what counts is in the log, so try again from there
            failures += 1
            log.warning("query failed", query_id=self.query_id, failures=failures, error=str(error), exc_info=True)
            if failures >= FAILURES_MAX and not isinstance(error, OUTAGES):
                self._give_up(error)
            else:
                self._move_with_error(WorkerEvent.TROUBLE, error)
            return failures
        self._error = None
        return 0

    def _step(self) -> None:
        if self._runtime is None:
            self._runtime = self._open_runtime()
        with self._turns.owner(lets_guests_first_s=LOOK_S):
            if not self._runtime.step():
                self._runtime.wait(WAKE_UP_S)

    def _back_off(self, failures: int) -> None:
        wait_s = min(BACKOFF_S * 2 ** min(failures - 1, 10), BACKOFF_MAX_S)
        self._states.wait(lambda state: state is not WorkerState.RETRYING, wait_s)
        self._states.move(WorkerEvent.WAITED, only_from=WorkerState.RETRYING)

    def _rest(self) -> None:
        if self._runtime is not None:
            try:
                with self._turns.owner():
                    self._runtime.rest()
            except Exception as error:  # the next step begins from the log
                log.warning("query failed", query_id=self.query_id, error=str(error))
        self._states.move(WorkerEvent.RESTED, only_from=WorkerState.PAUSING)

    def _close(self) -> None:
        if self._runtime is not None:
            with self._turns.owner():
                self._runtime.close()

    def _give_up(self, error: Exception) -> None:
        self._move_with_error(WorkerEvent.GAVE_UP, error)
        log.error("query stopped", query_id=self.query_id, error=self._error)

    def _move_with_error(self, event: WorkerEvent, error: Exception) -> None:
        with self._changed:  # whoever sees the state sees the reason
            self._error = what_to_do(error)
            self._states.move(event)


class _Turns:
    """Whose turn it is with the runtime: the thread's, or that of somebody who looks into it. Locks are not fair, and
    the thread wants its turn again at once: it waits while there are guests."""

    def __init__(self, changed: threading.Condition) -> None:
        self._changed = changed
        self._taken = False
        self._guests = 0  # who wait for their turn

    @contextlib.contextmanager
    def owner(self, lets_guests_first_s: float = 0.0) -> Generator[None]:
        """The thread's turn."""
        with self._changed:
            self._changed.wait_for(lambda: not self._guests, lets_guests_first_s)
            self._changed.wait_for(lambda: not self._taken)
            self._taken = True
        try:
            yield
        finally:
            self._give_back()

    @contextlib.contextmanager
    def guest(self, timeout_s: float) -> Generator[bool]:
        """The turn of another; False where the thread has not given it up in time."""
        with self._changed:
            self._guests += 1
            free = self._changed.wait_for(lambda: not self._taken, timeout_s)
            self._guests -= 1
            self._taken = self._taken or free
            self._changed.notify_all()
        try:
            yield free
        finally:
            if free:
                self._give_back()

    def _give_back(self) -> None:
        with self._changed:
            self._taken = False
            self._changed.notify_all()
