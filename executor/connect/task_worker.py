"""The thread of one task: it opens a life of the task and steps it. After an error it opens another one, with growing
pauses between attempts.

The task waits out temporary trouble (the other system, the log, the network, a full disk) for as long as it takes: its
state stays RUNNING, and its status says what it waits for. An error that a user has to fix makes the task FAILED at
once. An unknown error of the other system does so after some minutes, any other exception after some attempts. RESTART
CONNECTOR opens the task again. The first life is opened after the tasks that it replaces have ended (`leaving.py`).
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

import structlog

from millstream.errors import LogError, MillstreamError

from ...logcore.errors import (
    CorruptLog,
    InvalidRecords,
    InvalidTopic,
    LogClosed,
    ProducerFenced,
    RecordsTooLarge,
)
from ...logcore.mirrors.mirror_errors import InvalidMirror
from .connector_errors import ConnectorFailed, InvalidConnector, SystemFault, SystemUnavailable
from .connector_secrets import Secrets
from .leaving import LEAVES_S, TASK_THREADS, Departure, TaskReplaced, Tenure
from .mirror_settings import InvalidMirrorSetting

TaskState = Literal["RUNNING", "PAUSED", "FAILED", "STOPPED"]

_STEP_S: Final = 0.2
_AGAIN_S: Final = 0.1
_AGAIN_MAX_S: Final = 30.0
_ATTEMPTS: Final = 6  # for an unexpected exception
_FAULT_S: Final = 300.0  # time for somebody to set up a store or repair a table
_LAG_S: Final = 1.0
ENDING_S: Final = 2.0
"""How long a closing engine waits for all tasks of its connectors, or of its mirrors."""
_FOR_PEOPLE: Final = (
    ConnectorFailed, InvalidConnector, CorruptLog, LogClosed, ProducerFenced, InvalidTopic, InvalidRecords,
    RecordsTooLarge, InvalidMirrorSetting, InvalidMirror,
)  # fmt: skip
"""Errors that a user has to fix: waiting does not help."""
_PASSING: Final = (SystemUnavailable, LogError, OSError)
"""Other errors of these kinds are waited out. They do not count as attempts."""
_log = structlog.get_logger("millstream.connect")


class TaskRunner(Protocol):
    """One life of a task."""

    @property
    def records(self) -> int:
        """The number of records committed so far."""
        ...

    @property
    def pause_s(self) -> float:
        """How long it does not read from now on, because it collects work."""
        ...

    def step(self, timeout_s: float) -> bool: ...

    def lag(self) -> int | None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """`error`: why the task is FAILED, or what a RUNNING task waits for; without secrets. `records`: since the start
    here. `lag`: in units of the source, or unread records of a sink; None if unknown. `restarts`: the number of new
    lives after errors. `waits_until_ms`: when a RUNNING task continues, after an error or between two commits; in
    milliseconds since 1970."""

    number: int
    state: TaskState
    records: int = 0
    lag: int | None = None
    restarts: int = 0
    error: str | None = None
    waits_until_ms: int | None = None


class TaskWorker:
    """Runs one task. Any thread may call any method.

    In: `open_runner`: opens a new life, on the worker's thread; `secrets`: removed from the texts of errors; `fault_s`:
    how long a `SystemFault` is retried, with at least `_ATTEMPTS` attempts; `tenure`: ended by `let_go`; `before`: the
    departures for which the task waits before it begins.
    """

    def __init__(
        self,
        name: str,
        number: int,
        open_runner: Callable[[], TaskRunner],
        secrets: Secrets,
        *,
        paused: bool,
        fault_s: float = _FAULT_S,
        tenure: Tenure | None = None,
        before: Sequence[Departure] = (),
    ) -> None:
        self.name = name
        self._number = number
        self._open_runner = open_runner
        self._secrets = secrets
        self._fault_s = fault_s
        self._tenure = tenure or Tenure()
        self._before = before
        self._follows: Departure | None = None  # the one for which it waits now
        self._state: TaskState = "PAUSED" if paused else "RUNNING"
        self._wanted_paused = paused
        self._stopping = False
        self._changed = threading.Condition()
        self._records = 0
        self._lag: int | None = None
        self._restarts = 0
        self._error: str | None = None
        self._waits_until_ms: int | None = None
        self._thread = threading.Thread(target=self._run, name=f"{TASK_THREADS}{name}-{number}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def status(self) -> TaskStatus:
        with self._changed:
            until_ms = self._waits_until_ms if self._state == "RUNNING" else None
            error = self._error if self._follows is None else self._follows.waits_for
            return TaskStatus(self._number, self._state, self._records, self._lag, self._restarts, error, until_ms)

    def pause(self) -> None:
        """Returns at once. The state becomes PAUSED when the current step has ended."""
        self._tell(wanted_paused=True)

    def resume(self) -> None:
        self._tell(wanted_paused=False)

    def restart(self) -> None:
        """Starts a FAILED task again. Does nothing to a task that has not failed."""
        with self._changed:
            if self._state == "FAILED":
                self._state, self._error = "RUNNING", None
            self._changed.notify_all()

    def ask_to_stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def stop(self, within_s: float = LEAVES_S) -> None:
        """Asks the task to stop and waits for it. A step that hangs in another system is left behind; the next task
        fences it."""
        self.ask_to_stop()
        if not self.ends_within(within_s):
            _log.warning("a connector task is left waiting", connector=self.name, task=self._number)

    def ends_within(self, seconds: float) -> bool:
        """Waits until the thread has ended, after the task was asked to stop. False if it has not ended."""
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def let_go(self) -> None:
        self._tenure.end()

    def _tell(self, *, wanted_paused: bool) -> None:
        with self._changed:
            self._wanted_paused = wanted_paused
            self._changed.notify_all()

    # The thread

    def _run(self) -> None:
        self._take_over()
        attempts, wait_s, failing_since = 0, _AGAIN_S, time.monotonic()
        while self._ready():
            before = self._records
            try:
                self._live()
                attempts, wait_s = 0, _AGAIN_S
                continue
            except TaskReplaced:
                self.ask_to_stop()
                continue
            except Exception as error:
                if self._stopping:
                    _log.info("connector task ended", connector=self.name, error=self._described(error))
                    continue
                if self._records > before:
                    attempts, wait_s = 0, _AGAIN_S
                if not isinstance(error, _PASSING):
                    failing_since = time.monotonic() if attempts == 0 else failing_since
                    attempts += 1
                if self._gives_up(error, attempts, time.monotonic() - failing_since):
                    self._fail(error)
                    attempts, wait_s = 0, _AGAIN_S
                    continue
                self._note(error)
            self._wait(wait_s)
            wait_s = min(2 * wait_s, _AGAIN_MAX_S)
        with self._changed:
            self._state = "STOPPED"

    def _take_over(self) -> None:
        """Waits for the tasks that it replaces; the status says so."""
        for leaving in self._before:
            leaving.when_over(self._notice)
        with self._changed:
            while not self._stopping and (waiting := [each for each in self._before if not each.is_over]):
                self._state = "PAUSED" if self._wanted_paused else "RUNNING"
                self._follows = waiting[0]
                self._changed.wait()
            self._follows = None

    def _notice(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _ready(self) -> bool:
        """Waits while the task is paused or failed. False if it should end."""
        with self._changed:
            while not self._stopping and (self._wanted_paused or self._state == "FAILED"):
                if self._state != "FAILED":
                    self._state = "PAUSED"
                self._changed.wait()
            if not self._stopping:
                self._state = "RUNNING"
            return not self._stopping

    def _live(self) -> None:
        """Runs one life. Returns when the task should pause or end."""
        runner = self._open_runner()
        base, next_lag = self._records, 0.0
        try:
            while not (self._stopping or self._wanted_paused):
                came = runner.step(_STEP_S)
                with self._changed:
                    self._records, self._error = base + runner.records, None
                    self._waits_until_ms = _later_ms(runner.pause_s)
                if not came or time.monotonic() >= next_lag:
                    self._lag, next_lag = runner.lag(), time.monotonic() + _LAG_S
        finally:
            self._records = base + runner.records
            runner.close()

    def _gives_up(self, error: Exception, attempts: int, failing_s: float) -> bool:
        if isinstance(error, _FOR_PEOPLE):
            return True
        if isinstance(error, _PASSING):
            return False
        return attempts >= _ATTEMPTS and (failing_s >= self._fault_s or not isinstance(error, SystemFault))

    def _fail(self, error: Exception) -> None:
        text = self._described(error)
        with self._changed:
            self._state, self._error = "FAILED", text
        foreseen = isinstance(error, MillstreamError) and not isinstance(error, SystemFault)
        trace = None if foreseen else self._secrets.scrub("".join(traceback.format_exception(error)))
        _log.error("connector task failed", connector=self.name, task=self._number, error=text, trace=trace)

    def _note(self, error: Exception) -> None:
        text = self._described(error)
        with self._changed:
            self._restarts += 1
            again, self._error = self._error != text, text
        if again:
            _log.warning("connector task waits", connector=self.name, task=self._number, error=text)

    def _described(self, error: Exception) -> str:
        if isinstance(error, MillstreamError):
            hint = f" {error.hint}" if error.hint else ""
            return self._secrets.scrub(f"{error.message}.{hint}" if hint else error.message)
        return self._secrets.scrub(f"{type(error).__name__}: {error}")

    def _wait(self, seconds: float) -> None:
        with self._changed:
            self._waits_until_ms = _later_ms(seconds)
            self._changed.wait_for(lambda: self._stopping or self._wanted_paused, seconds)


def _later_ms(seconds: float) -> int | None:
    """The time after this many seconds; None if that is now."""
    return None if seconds <= 0 else time.time_ns() // 1_000_000 + round(seconds * 1000)


class Ending:
    """The time that all tasks together have to end. State: when it is over. Tasks that wait for a system that does not
    answer are left behind and end with the process."""

    def __init__(self) -> None:
        self._until: float | None = None

    def begin(self) -> None:
        """Begins the time. Only the first call counts."""
        if self._until is None:
            self._until = time.monotonic() + ENDING_S

    @property
    def left_s(self) -> float:
        """The seconds that are left, at least 0; before `begin` all of them."""
        return ENDING_S if self._until is None else max(0.0, self._until - time.monotonic())
