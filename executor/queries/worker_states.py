"""The states of a query that runs in turns: what causes each transition, and what callers wait for.

| state    | shown   | its turns                                | callers who wait, and for what                       |
| -------- | ------- | ---------------------------------------- | ---------------------------------------------------- |
| WORKING  | RUNNING | recovers, does a batch, or waits         |                                                      |
| RETRYING | RUNNING | waits after a failure, which is shown    |                                                      |
| PAUSING  | PAUSED  | ends its batch, brings its state to rest | `pause`, until the state is at rest or has failed    |
| PAUSED   | PAUSED  | has none until a caller moves it         |                                                      |
| FAILING  | ERROR   | closes what it has open                  | `resume` and `pause`, until it has ended             |
| FAILED   | ERROR   | has ended; `resume` begins anew          |                                                      |
| STOPPING | STOPPED | ends its batch, closes what it has open  | `stop` and `pause`, until it has ended               |
| STOPPED  | STOPPED | has ended, and does not begin again      |                                                      |

Callers cause PAUSE, RESUME and STOP, in any state; if `TRANSITIONS` has no entry, nothing changes. A turn causes the
other events, and only where there is an entry. STOP overrides everything in progress, and a failure overrides PAUSE: a
query that cannot continue must not look as if RESUME were enough. PAUSE during the wait after a failure ends that wait,
and a batch that fails while the query is PAUSING is retried after RESUME. A query is never open twice, because FAILED
is entered by the last action of its turns, and RESUME starts a failed query only from that state.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final

from ..executor import QueryState


class WorkerState(Enum):
    """The value's second part is the state that users see."""

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
        """The state in the query's status."""
        shown: QueryState = self.value[1]
        return shown


class WorkerEvent(Enum):
    """What callers ask for, and what a turn reports."""

    PAUSE = "a caller pauses the query"
    RESUME = "a caller resumes it"
    STOP = "a caller stops it"
    TROUBLE = "a batch failed and is retried"
    WAITED = "the wait after a failure is over"
    RESTED = "no batch is under way, and the state is in its file"
    GAVE_UP = "a batch failed, and a retry would not help"
    ENDED = "the last turn has closed everything"


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
"""A caller's request or a failure is pending: a turn has not carried it out yet."""

OVER: Final = frozenset({_S.FAILING, _S.STOPPING, _S.FAILED, _S.STOPPED})
"""The query processes no more batches."""


class WorkerStates:
    """One query's state; thread-safe. In: `changed`: the condition that guards it and is notified of each change."""

    def __init__(self, changed: threading.Condition, *, paused: bool) -> None:
        self._changed = changed
        self._state = _S.PAUSING if paused else _S.WORKING

    @property
    def state(self) -> WorkerState:
        return self._state

    def move(self, event: WorkerEvent, only_from: WorkerState | None = None) -> bool:
        """Makes the transition; False if the event changes nothing. In: `only_from`: the state that a turn has seen;
        a caller may have changed the state since then."""
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
        """Returns once `until` is true of the state, or after the timeout."""
        with self._changed:
            self._changed.wait_for(lambda: until(self._state), timeout_s)
