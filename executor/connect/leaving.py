"""How the tasks of a connector go, and how others take their place.

Whoever changes a connector only asks its tasks to end. Those that come after them wait, on their own threads, until
they have ended; a task that hangs in another system is let go of after some time. From then on it writes nothing, even
if that system answers after all:

- its transactional producer is fenced by the one of its successor, as across processes;
- `Tenure` keeps it from what no epoch fences: the offsets of a group, the making of a producer, which would fence the
  successor, and requests to other systems that it has not begun.
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
"""How long tasks that are to end are waited for."""
TASK_THREADS: Final = "millstream-connect-"
"""How the names of the threads of connectors begin."""
_log = structlog.get_logger("millstream.connect")


class TaskReplaced(Exception):
    """Raised by a task that was let go of, where it would write: it ends."""


class Tenure:
    """Whether a task may still write; `with tenure:` is around what must not happen otherwise. Any thread may `end` it.

    Invariant: nothing is under way inside once `end` returns, and nothing begins there afterwards.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._over = False

    def end(self) -> None:
        with self._guard:
            self._over = True

    def check(self) -> None:
        """Before what takes long, so that `end` does not wait for it. Raises `TaskReplaced`."""
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
        """It writes nothing any more."""
        ...


class Departure:
    """What those that come after wait for. Any thread may call any method; `finish` at the end."""

    def __init__(self, connector: str, waits_for: str) -> None:
        self.connector = connector
        self.waits_for = waits_for
        """A clause for those who wait."""
        self._over = Future[None]()

    @property
    def is_over(self) -> bool:
        return self._over.done()

    def when_over(self, call: Callable[[], None]) -> None:
        """On whichever thread ends it; at once where it is over."""
        self._over.add_done_callback(lambda _: call())

    def wait(self, seconds: float) -> bool:
        """False where it is not over then."""
        with contextlib.suppress(TimeoutError):
            self._over.result(seconds)
        return self.is_over

    def finish(self) -> None:
        self._over.set_result(None)

    def let_go(self) -> None:
        """Its tasks write nothing any more, from now on; they are still waited for."""


class LeavingTasks(Departure):
    """Tasks of a connector that were asked to end. A thread waits for them, so any other may go on."""

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
