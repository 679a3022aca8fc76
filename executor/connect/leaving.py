"""How the tasks of a connector end, and how other tasks replace them.

A statement that changes a connector only asks its tasks to end. The tasks that replace them wait, on their own threads,
until they have ended. A task that hangs in another system is abandoned after `LEAVES_S`. From then on it writes
nothing, even if that system answers later:

- the producer of its successor fences its transactional producer, as it does across processes;
- `Tenure` prevents what no epoch fences: committing the offsets of a group, opening a producer (which would fence the
  successor), and new requests to other systems.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Final, Protocol

import structlog

LEAVES_S: Final = 10.0
"""How long to wait for tasks that were asked to end."""
TASK_THREADS: Final = "millstream-connect-"
"""The prefix of the names of connectors' threads."""
_log = structlog.get_logger("millstream.connect")


class TaskReplaced(Exception):
    """Raised in an abandoned task (`let_go`) when it is about to write. It ends the task."""


class Tenure:
    """Whether a task may still write. `with tenure:` wraps actions that are only allowed while it may. Any thread may
    call `end`.

    Invariant: when `end` returns, no such block is running, and none begins afterwards.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._over = False

    def end(self) -> None:
        with self._guard:
            self._over = True

    def check(self) -> None:
        """Call it before a long action instead of wrapping it, so that `end` does not have to wait for that action.
        Raises `TaskReplaced`."""
        with self:
            pass

    def __enter__(self) -> None:
        self._guard.acquire()
        if self._over:
            self._guard.release()
            raise TaskReplaced("another task has taken its place")

    def __exit__(self, *error: object) -> None:
        self._guard.release()


class LeavingTask(Protocol):
    """A task that was asked to end."""

    def ends_within(self, seconds: float) -> bool: ...

    def let_go(self) -> None:
        """From now on the task writes nothing."""
        ...


class Departure:
    """Something for which later tasks have to wait. Any thread may call any method; `finish` ends it."""

    def __init__(self, connector: str, waits_for: str) -> None:
        self.connector = connector
        self.waits_for = waits_for
        """A clause for the status of the waiting tasks."""
        self._over = Future[None]()

    @property
    def is_over(self) -> bool:
        return self._over.done()

    def when_over(self, call: Callable[[], None]) -> None:
        """Calls `call` when it is over, on the thread that ends it; immediately if it is already over."""
        self._over.add_done_callback(lambda _: call())

    def wait(self, seconds: float) -> bool:
        """Waits until it is over. False if it is not over after this time."""
        with contextlib.suppress(TimeoutError):
            self._over.result(seconds)
        return self.is_over

    def finish(self) -> None:
        self._over.set_result(None)

    def let_go(self) -> None:
        """From now on its tasks write nothing. Later tasks still wait for them."""


class LeavingTasks(Departure):
    """Tasks of a connector that were asked to end. A separate thread waits for them, so the caller does not."""

    def __init__(self, connector: str, tasks: Sequence[LeavingTask]) -> None:
        waits_for = "the other system does not answer a task that is to end, which is let go of after"
        super().__init__(connector, f"{waits_for} {LEAVES_S:.0f} seconds")
        self._tasks = tasks
        self._deadline = time.monotonic() + LEAVES_S
        threading.Thread(target=self._run, name=f"{TASK_THREADS}{connector}-leaving", daemon=True).start()

    def let_go(self) -> None:
        for task in self._tasks:
            task.let_go()

    def _run(self) -> None:
        for task in self._tasks:
            if not task.ends_within(max(0.0, self._deadline - time.monotonic())):
                _log.warning("a connector task is left waiting", connector=self.connector)
        self.let_go()
        self.finish()
