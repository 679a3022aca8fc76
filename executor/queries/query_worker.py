"""A thread that drives one QueryRuntime: as fast as there is input, and asleep in the log otherwise."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

import duckdb
import structlog

from millstream.errors import LogError

from ...logcore.client import TopicPartition
from ...logcore.errors import LogClosed, LogFull, LogUnavailable, LogWriteFailed, ProducerFenced
from ..executor import QueryMetrics, QueryState, QueryStatus
from ..figures import QueryFigures
from ..state.lost_state import LOST, what_to_do
from .query import QueryRuntime

log = structlog.get_logger()

WAKE_UP_S = 0.2  # how soon a sleeping query notices that it should stop
LOOK_S = 2.0  # how long somebody waits who wants to look into the state
FAILURES_MAX = 6  # in a row, of those that may be the query's own fault
BACKOFF_S = 0.1  # after the first failure; doubles with each
BACKOFF_MAX_S = 5.0

OUTAGES = (LogFull, LogWriteFailed, LogUnavailable, duckdb.IOException, MemoryError, duckdb.OutOfMemoryException)
"""Of the machine, not of the query: it waits for as long as they last."""


class QueryWorker:
    """Runs a query in a thread of its own. In: `open_runtime` may raise; it is tried again like a failed batch."""

    def __init__(self, query_id: str, open_runtime: Callable[[], QueryRuntime], *, paused: bool = False) -> None:
        self.query_id = query_id
        self._open_runtime = open_runtime
        self._runtime: QueryRuntime | None = None
        self._state: QueryState = "PAUSED" if paused else "RUNNING"
        self._error: str | None = None
        self._stopping = threading.Event()
        self._woken = threading.Event()  # ends the wait after a failure
        self._may_run = threading.Event()
        self._at_rest = threading.Event()  # no batch is under way
        self._busy = threading.Lock()  # held while the runtime works, or somebody looks into it
        self._nobody_asks = threading.Event()  # locks are not fair: who asks goes first
        self._nobody_asks.set()
        if not paused:
            self._may_run.set()
        self._thread = threading.Thread(target=self._run, name=f"query-{query_id}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def pause(self) -> None:
        """Returns once no batch is under way."""
        if self._state == "RUNNING":
            self._state = "PAUSED"
            self._may_run.clear()
            self._woken.set()
            self._at_rest.wait()

    def resume(self) -> None:
        """Also after an error: the query tries again."""
        if self._state == "ERROR":
            self._thread.join()  # it is about to end
            self._error = None
            self._thread = threading.Thread(target=self._run, name=f"query-{self.query_id}", daemon=True)
            self._state = "RUNNING"
            self._at_rest.clear()
            self._may_run.set()
            self._thread.start()
        elif self._state == "PAUSED":
            self._state = "RUNNING"
            self._at_rest.clear()
            self._may_run.set()

    def stop(self) -> None:
        """Returns once the thread has ended and the state file is closed."""
        self._stopping.set()
        self._woken.set()
        self._may_run.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._state != "ERROR":
            self._state = "STOPPED"

    def status(self) -> QueryStatus:
        runtime = self._runtime
        metrics = runtime.metrics if runtime is not None else QueryMetrics()
        positions: dict[TopicPartition, int] = runtime.positions if runtime is not None else {}
        lag: dict[TopicPartition, int] = {}
        if runtime is not None:
            with contextlib.suppress(LogError):  # a topic was deleted, or the log is closed: the error says so
                lag = runtime.lag()
        return QueryStatus(self.query_id, self._state, metrics, positions, lag, self._error)

    def figures(self) -> QueryFigures | None:
        """What the query measures; its state too, unless it is busy for long. None before it has begun."""
        self._nobody_asks.clear()
        try:
            free = self._busy.acquire(timeout=LOOK_S)
        finally:
            self._nobody_asks.set()
        try:
            runtime = self._runtime
            if runtime is None:
                return None
            try:
                return runtime.figures(with_state=free and not self._stopping.is_set())
            except Exception as error:  # it is the query's thread that must say what is wrong
                log.info("no look into the state", query_id=self.query_id, error=str(error))
                return runtime.figures(with_state=False)
        finally:
            if free:
                self._busy.release()

    def _run(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            if not self._may_run.is_set():
                self._rest()
                self._at_rest.set()
                self._may_run.wait()
                self._at_rest.clear()
                continue
            try:
                self._work()
                failures, self._error = 0, None
            except (ProducerFenced, LogClosed, *LOST) as error:
                self._fail(error)
                break
            except Exception as error:  # whatever it is: what counts is in the log, so try again from there
                failures += 1
                log.warning("query failed", query_id=self.query_id, failures=failures, error=str(error), exc_info=True)
                if failures >= FAILURES_MAX and not isinstance(error, OUTAGES):
                    self._fail(error)
                    break
                self._error = what_to_do(error)
                self._woken.clear()
                if not self._stopping.is_set() and self._may_run.is_set():
                    self._woken.wait(min(BACKOFF_S * 2 ** min(failures - 1, 10), BACKOFF_MAX_S))
        if self._runtime is not None:
            with self._busy:
                self._runtime.close()
        self._at_rest.set()

    def _rest(self) -> None:
        if self._runtime is not None:
            try:
                with self._busy:
                    self._runtime.rest()
            except Exception as error:  # the next step begins from the log
                log.warning("query failed", query_id=self.query_id, error=str(error))

    def _work(self) -> None:
        if self._runtime is None:
            self._runtime = self._open_runtime()
        self._nobody_asks.wait(LOOK_S)
        with self._busy:
            if not self._runtime.step():
                self._runtime.wait(WAKE_UP_S)

    def _fail(self, error: Exception) -> None:
        self._error = what_to_do(error)
        self._state = "ERROR"
        log.error("query stopped", query_id=self.query_id, error=self._error)
