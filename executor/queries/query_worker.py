"""Drives one QueryRuntime in turns of one batch (`turns.py`): as fast as input arrives, and idle without input."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Generator

import duckdb
import structlog

from millstream.errors import LogError

from ...logcore.client import TopicPartition
from ...logcore.errors import LogClosed, LogFull, LogUnavailable, LogWriteFailed, ProducerFenced
from ..errors import TimestampFailed
from ..executor import QueryMetrics, QueryStatus
from ..figures import QueryFigures
from ..state.lost_state import LOST, what_to_do
from ..state.spilled_rows import SpillFailed
from .query import QueryRuntime
from .recovery_watch import RecoveryInterrupted, RecoveryWatch
from .turns import AT_ONCE, NEVER, WHEN_WOKEN, Due, Turns
from .worker_states import OVER, UNDER_WAY, WorkerEvent, WorkerState, WorkerStates

log = structlog.get_logger("millstream.queries")

QUIET_S = 0.2  # time without input after which the state is brought to rest
LOOK_S = 2.0  # how long a caller of `figures` waits for access to the state
FAILURES_MAX = 6  # consecutive failures before the query stops; failures in `OUTAGES` never stop it
BACKOFF_S = 0.1  # after the first failure; doubles with each
BACKOFF_MAX_S = 5.0

OUTAGES = (
    *(LogFull, LogWriteFailed, LogUnavailable, SpillFailed),
    *(duckdb.IOException, MemoryError, duckdb.OutOfMemoryException),
)
"""Failures of the machine, not of the query: the query retries for as long as they last."""

_ENDED = (WorkerState.FAILED, WorkerState.STOPPED)


class QueryWorker:
    """Runs a query in the turns that it gets. `worker_states.py` describes its states.

    In: `open_runtime` may raise; it is retried like a failed batch. It gets the watch of the query's recoveries, which
    end early when the query is paused or stopped. `before_retry`: called first when RESUME follows an error.
    """

    def __init__(
        self,
        query_id: str,
        open_runtime: Callable[[RecoveryWatch], QueryRuntime],
        turns: Turns,
        *,
        paused: bool = False,
        before_retry: Callable[[], None] = lambda: None,
    ) -> None:
        self.query_id = query_id
        self._open_runtime = open_runtime
        self._before_retry = before_retry
        self._runtime: QueryRuntime | None = None
        self._error: str | None = None
        self._turns = turns
        self._started = False
        self._failures = 0  # in a row
        self._retries_at_s = 0.0
        self._quiet_since_s = math.inf  # nothing to read since then
        self._changed = threading.Condition()  # guards the state and the access to the runtime
        self._states = WorkerStates(self._changed, paused=paused)
        self._access = _Access(self._changed)
        states = self._states  # and no cycle through `self`, which would keep the runtime until the collector runs
        self._watch = RecoveryWatch(lambda: states.state is WorkerState.WORKING)

    def start(self) -> None:
        with self._changed:
            if self._states.state in OVER:
                return
            self._started = True
        self._turns.wake(self)

    def pause(self) -> None:
        """Returns once no batch is under way."""
        self._states.move(WorkerEvent.PAUSE)
        self._wake()
        self._states.wait(lambda state: state not in UNDER_WAY)

    def resume(self) -> None:
        """Resumes a paused query; after an error, the query tries again."""
        self._states.wait(lambda state: state is not WorkerState.FAILING)
        if self._states.state is WorkerState.FAILED:
            self._before_retry()
        with self._changed:
            failed = self._states.state is WorkerState.FAILED
            if self._states.move(WorkerEvent.RESUME) and failed:
                self._error, self._failures = None, 0
        self._wake()

    def ask_to_stop(self) -> None:
        """Returns at once. To stop several queries, ask all of them before waiting for the first one."""
        with self._changed:
            self._states.move(WorkerEvent.STOP)
            if not self._started and self._states.state is WorkerState.STOPPING:
                self._states.move(WorkerEvent.ENDED)
        self._wake()

    def stop(self) -> None:
        """Returns once no batch is under way and the state file is closed."""
        self.ask_to_stop()
        self._states.wait(lambda state: state is WorkerState.STOPPED)

    def status(self) -> QueryStatus:
        with self._changed:
            state, error, runtime = self._states.state.shown, self._error, self._runtime
        metrics = runtime.metrics if runtime is not None else QueryMetrics()
        positions: dict[TopicPartition, int] = runtime.positions if runtime is not None else {}
        lag: dict[TopicPartition, int] = {}
        if runtime is not None:
            with contextlib.suppress(LogError):  # a topic was deleted or the log is closed; `error` reports it
                lag = runtime.lag()
        left = self._watch.left
        return QueryStatus(self.query_id, state, metrics, positions, lag, error, "duckdb", recovery_left=left)

    def figures(self) -> QueryFigures | None:
        """The query's measurements, including its state unless the query stays busy. None before it has started."""
        with self._access.guest(LOOK_S) as free:
            runtime = self._runtime
            if runtime is None:
                return None
            try:
                return runtime.figures(with_state=free and self._states.state not in OVER)
            except Exception as error:  # the query's own turn must report what is wrong
                log.info("no look into the state", query_id=self.query_id, error=str(error))
                return runtime.figures(with_state=False)

    # -------------------------------------------------------------- its turns

    def _wake(self) -> None:
        """Makes a turn due after a caller has changed the state."""
        with self._changed:
            idle = not self._started or self._states.state in _ENDED
        if not idle:
            self._turns.wake(self)

    def turn(self) -> Due:
        """Does what the state requires; see `TakesTurns`."""
        match self._states.state:
            case WorkerState.WORKING:
                return self._work()
            case WorkerState.RETRYING:
                return self._back_off()
            case WorkerState.PAUSING:
                self._rest()
                return AT_ONCE
            case WorkerState.PAUSED:
                return WHEN_WOKEN
            case WorkerState.FAILING | WorkerState.STOPPING:
                self._close()
                return NEVER
            case WorkerState.FAILED | WorkerState.STOPPED:
                return NEVER

    def _work(self) -> Due:
        """Processes a batch; handles its failure."""
        try:
            due = self._step()
        except RecoveryInterrupted:  # the next turn does what the caller wants
            return AT_ONCE
        except (ProducerFenced, LogClosed, TimestampFailed, *LOST) as error:
            self._give_up(error)
            return AT_ONCE
        except Exception as error:  # any error: the log has everything needed, so recover from it and retry
            self._failures += 1
            log.warning(
                "query failed", query_id=self.query_id, failures=self._failures, error=str(error), exc_info=True
            )
            if self._failures >= FAILURES_MAX and not isinstance(error, OUTAGES):
                self._give_up(error)
            else:
                wait_s = min(BACKOFF_S * 2 ** min(self._failures - 1, 10), BACKOFF_MAX_S)
                self._retries_at_s = time.monotonic() + wait_s
                self._move_with_error(WorkerEvent.TROUBLE, error)
            return AT_ONCE
        self._error, self._failures = None, 0
        return due

    def _step(self) -> Due:
        if self._runtime is None:
            self._runtime = self._open_runtime(self._watch)
        with self._access.owner(lets_guests_first_s=LOOK_S):
            if not self._has_come_to_rest(self._runtime) and self._runtime.step():
                self._quiet_since_s = math.inf
                if self._runtime.has_more:
                    return AT_ONCE
            return self._wait(self._runtime)

    def _has_come_to_rest(self, runtime: QueryRuntime) -> bool:
        """Whether no record has arrived since the query began to wait, so that this turn only has to call `_wait`."""
        waits = self._quiet_since_s < math.inf and not runtime.has_more and not runtime.moves_by_itself
        return waits and not runtime.has_news

    def _wait(self, runtime: QueryRuntime) -> Due:
        """Waits for records. Brings the state to rest once the query has been idle long enough."""
        now = time.monotonic()
        self._quiet_since_s = min(self._quiet_since_s, now)
        at_s = max(self._quiet_since_s + QUIET_S, runtime.rest_due_s)
        if now >= at_s:
            runtime.rest()
            at_s = math.inf
        return Due(runtime.fetch_positions, min(at_s, now + QUIET_S) if runtime.moves_by_itself else at_s)

    def _back_off(self) -> Due:
        if time.monotonic() < self._retries_at_s:
            return Due(at_s=self._retries_at_s)
        self._states.move(WorkerEvent.WAITED, only_from=WorkerState.RETRYING)
        return AT_ONCE

    def _rest(self) -> None:
        if self._runtime is not None:
            try:
                with self._access.owner():
                    self._runtime.rest()
            except Exception as error:  # the next step recovers from the log
                log.warning("query failed", query_id=self.query_id, error=str(error))
        self._states.move(WorkerEvent.RESTED, only_from=WorkerState.PAUSING)

    def _close(self) -> None:
        """The query's last action. Afterwards RESUME may start it again."""
        try:
            if self._runtime is not None:
                with self._access.owner():
                    self._runtime.close()
        except Exception as error:
            log.error("query not closed", query_id=self.query_id, error=str(error), exc_info=True)
        finally:
            self._states.move(WorkerEvent.ENDED)

    def _give_up(self, error: Exception) -> None:
        self._move_with_error(WorkerEvent.GAVE_UP, error)
        if isinstance(error, LogClosed):  # the server stops, or its engine moves, and another one goes on
            log.info("query ends here", query_id=self.query_id, reason=self._error)
        else:
            log.error("query stopped", query_id=self.query_id, error=self._error)

    def _move_with_error(self, event: WorkerEvent, error: Exception) -> None:
        with self._changed:  # a reader that sees the new state also sees its error
            self._error = what_to_do(error)
            self._states.move(event)


class _Access:
    """Access to the runtime, for the query's turn (the owner) or a caller that inspects it (a guest). Locks are not
    fair and a busy query takes its next turn at once, so the owner waits while there are guests."""

    def __init__(self, changed: threading.Condition) -> None:
        self._changed = changed
        self._taken = False
        self._guests = 0  # guests that are waiting

    @contextlib.contextmanager
    def owner(self, lets_guests_first_s: float = 0.0) -> Generator[None]:
        """Access for the query's turn."""
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
        """Access for another caller; yields False if the query's turn did not end in time."""
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
