"""The heart of the simulator: virtual time, the queue of events, the trace, the counters. One seed is one run.

Nothing here knows of nodes. Everything that happens is an event in one queue, ordered by (virtual time, number).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from hashlib import blake2b
from heapq import heappop, heappush
from random import Random
from typing import Any, Final, NamedTuple

MILLISECOND: Final = 1_000_000  # virtual time is in nanoseconds
SECOND: Final = 1_000 * MILLISECOND
RECENT_EVENTS: Final = 200
_TRACE_FLUSH: Final = 2_048


class Happening(NamedTuple):
    """One line of the trace. `detail` is immutable, so it can be printed later, when something failed."""

    at_ns: int
    kind: str
    node: int
    detail: Any

    def __str__(self) -> str:
        return f"{self.at_ns / MILLISECOND:12.3f} ms  node {self.node}  {self.kind:<10} {self.detail}"


class InvariantViolated(AssertionError):
    """A promise was broken in a run. `name` is the invariant's: I1 … I25, or a sentence."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(f"{name}: {what}")
        self.name = name
        self.what = what


class Randoms:
    """One source of chance per concern, so that a fault more or less does not shift what others draw."""

    def __init__(self, seed: int) -> None:
        self.schedule, self.network, self.disk, self.faults, self.workload, self.options = (
            Random(f"{seed}/{concern}")  # a text is hashed with SHA-512: the same under every PYTHONHASHSEED
            for concern in ("schedule", "network", "disk", "faults", "workload", "options")
        )


class Kernel:
    """Virtual time and what happens in it."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now_ns = 0
        self.randoms = Randoms(seed)
        self.counters: Counter[str] = Counter()  # what must happen sometimes, and what is good to know
        self.event_count = 0
        self.printing: Callable[[str], object] | None = None  # where each line of the trace goes, for people
        self._queue: list[tuple[int, int, Callable[..., object], tuple[Any, ...]]] = []
        self._number = 0
        self._trace = blake2b(digest_size=16)
        self._lines: list[tuple[int, str, int, Any]] = []  # not yet hashed
        self._lines_before: list[tuple[int, str, int, Any]] = []  # the last ones of those that are

    def schedule(self, delay_ns: int, action: Callable[..., object], *arguments: Any) -> None:
        """`action(*arguments)` happens after the delay. Events of one instant happen in the order of scheduling."""
        self._number += 1
        heappush(self._queue, (self.now_ns + delay_ns, self._number, action, arguments))

    def note(self, kind: str, node: int, detail: Any) -> None:
        """Puts a line into the trace: two runs are the same when all their lines are."""
        lines = self._lines
        lines.append((self.now_ns, kind, node, detail))
        if len(lines) >= _TRACE_FLUSH:
            self._flush()
        if self.printing is not None:
            self.printing(str(Happening(self.now_ns, kind, node, detail)))

    @property
    def recent(self) -> list[Happening]:
        """The last events."""
        return [Happening(*line) for line in [*self._lines_before, *self._lines][-RECENT_EVENTS:]]

    def run(self, *, events: int | None = None, until_ns: int | None = None) -> None:
        """Goes on until so many events have happened in all, or until that time; or nothing is left to happen."""
        queue = self._queue
        events_max = events if events is not None else 1 << 62
        time_max = until_ns if until_ns is not None else 1 << 62
        while queue and self.event_count < events_max:
            if queue[0][0] > time_max:
                break
            self.now_ns, _, action, arguments = heappop(queue)
            self.event_count += 1
            action(*arguments)
        if until_ns is not None and self.event_count < events_max:
            self.now_ns = max(self.now_ns, until_ns)

    def hash_state(self, state: Any) -> None:
        """Makes the printed form of a value part of the trace's hash: for the state at the end of a run."""
        self._flush()
        self._trace.update(repr(state).encode())

    @property
    def trace_hash(self) -> str:
        self._flush()
        return self._trace.copy().hexdigest()

    def _flush(self) -> None:
        """Of a detail only its kind is hashed (a text as a whole): what else differs shows in what follows from it."""
        hashed = [
            (at_ns, kind, node, detail if detail.__class__ is str else detail.__class__.__name__)
            for at_ns, kind, node, detail in self._lines
        ]
        if hashed:
            self._trace.update(repr(hashed).encode())
            self._lines_before = [*self._lines_before, *self._lines][-RECENT_EVENTS:]
            self._lines.clear()
