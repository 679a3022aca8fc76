"""The states of a query that runs in turns: who moves it from which to which, and who waits for what.

| state    | shown   | its turns                                | callers who wait, and for what                       |
| -------- | ------- | ---------------------------------------- | ---------------------------------------------------- |
| WORKING  | RUNNING | opens, does a batch, or waits for input  |                                                      |
| RETRYING | RUNNING | waits after a failure, which is shown    |                                                      |
| PAUSING  | PAUSED  | ends its batch, brings its state to rest | `pause`, until the state is at rest or has failed    |
| PAUSED   | PAUSED  | has none until a caller moves it         |                                                      |
| FAILING  | ERROR   | closes what it has open                  | `resume` and `pause`, until it has ended             |
| FAILED   | ERROR   | has ended; `resume` begins anew          |                                                      |
| STOPPING | STOPPED | ends its batch, closes what it has open  | `stop` and `pause`, until it has ended               |
| STOPPED  | STOPPED | has ended, and does not begin again      |                                                      |

Callers cause PAUSE, RESUME and STOP, in any state: where the table below has no line, nothing changes. A turn
causes the others, and only where there is a line. STOP wins over all that is under way, and a failure over PAUSE: a
query that cannot go on must not look as if RESUME were all it needs. PAUSE during a failure's wait ends that wait, and
a batch that fails while the query is PAUSING is left for RESUME. What keeps a query from being open twice: FAILED is
entered by the last act of its turns, and only from there RESUME begins anew.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final

from ..executor import QueryState


class WorkerState(Enum):
    """The value is what people are shown."""

    WORKING = ("WORKING", "RUNNING")
    RETRYING = ("RETRYING", "RUNNING")
    PAUSING = ("PAUSING", "PAUSED")
    PAUSED = ("PAUSED", "PAUSED")
    FAILING = ("FAILING", "ERROR")
    FAILED = ("FAILED", "ERROR")
    STOPPING = ("STOPPING", "STOPPED")
    STOPPED = ("STOPPED", "STOPPED")

    @property
    def shown(self) -> QueryState:
        """The state as the query's status has it."""
        shown: QueryState = self.value[1]
        return shown


class WorkerEvent(Enum):
    """What callers ask for, and what a turn reports."""

    PAUSE = "somebody pauses the query"
    RESUME = "somebody resumes it"
    STOP = "somebody stops it"
    TROUBLE = "a batch failed, and is tried again"
    WAITED = "the wait after a failure is over"
    RESTED = "no batch is under way, and the state is in its file"
    GAVE_UP = "a batch failed, and trying again would not help"
    ENDED = "the thread has closed everything: its last act"


_S, _E = WorkerState, WorkerEvent
BY_CALLERS: Final = frozenset({_E.PAUSE, _E.RESUME, _E.STOP})

TRANSITIONS: Final[Mapping[tuple[WorkerState, WorkerEvent], WorkerState]] = {
    (_S.WORKING, _E.PAUSE): _S.PAUSING,
    (_S.WORKING, _E.STOP): _S.STOPPING,
    (_S.WORKING, _E.TROUBLE): _S.RETRYING,
    (_S.WORKING, _E.GAVE_UP): _S.FAILING,
    (_S.RETRYING, _E.WAITED): _S.WORKING,
    (_S.RETRYING, _E.PAUSE): _S.PAUSING,
    (_S.RETRYING, _E.STOP): _S.STOPPING,
    (_S.PAUSING, _E.RESUME): _S.WORKING,
    (_S.PAUSING, _E.STOP): _S.STOPPING,
    (_S.PAUSING, _E.TROUBLE): _S.PAUSING,
    (_S.PAUSING, _E.GAVE_UP): _S.FAILING,
    (_S.PAUSING, _E.RESTED): _S.PAUSED,
    (_S.PAUSED, _E.RESUME): _S.WORKING,
    (_S.PAUSED, _E.STOP): _S.STOPPING,
    (_S.FAILING, _E.STOP): _S.STOPPING,
    (_S.FAILING, _E.ENDED): _S.FAILED,
    (_S.FAILED, _E.RESUME): _S.WORKING,
    (_S.FAILED, _E.STOP): _S.STOPPED,
    (_S.STOPPING, _E.TROUBLE): _S.STOPPING,
    (_S.STOPPING, _E.GAVE_UP): _S.STOPPING,
    (_S.STOPPING, _E.ENDED): _S.STOPPED,
}

UNDER_WAY: Final = frozenset({_S.PAUSING, _S.FAILING, _S.STOPPING})
"""Between what a caller asked for, or a failure, and the moment when a turn has followed."""

OVER: Final = frozenset({_S.FAILING, _S.STOPPING, _S.FAILED, _S.STOPPED})
"""There are no more batches."""


class WorkerStates:
    """One query's state. Any thread. In: `changed`: the lock under which it changes, and what wakes those who wait."""

    def __init__(self, changed: threading.Condition, *, paused: bool) -> None:
        self._changed = changed
        self._state = _S.PAUSING if paused else _S.WORKING

    @property
    def state(self) -> WorkerState:
        return self._state

    def move(self, event: WorkerEvent, only_from: WorkerState | None = None) -> bool:
        """Makes the transition; False where the event changes nothing. In: `only_from`: for a turn, when a caller
        may have moved the state since it looked."""
        with self._changed:
            if only_from not in (None, self._state):
                return False
            after = TRANSITIONS.get((self._state, event))
            assert after is not None or event in BY_CALLERS, f"{event.name} while {self._state.name}"
            if after is None:
                return False
            self._state = after
            self._changed.notify_all()
            return True

    def wait(self, until: Callable[[WorkerState], bool], timeout_s: float | None = None) -> None:
        """Returns once the state is such a one, or after the time."""
        with self._changed:
            self._changed.wait_for(lambda: until(self._state), timeout_s)
