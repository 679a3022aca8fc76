"""What users' functions could not compute: noted where it happens, taken by whoever runs the query.

DuckDB calls functions from threads of its own, so there is no way up for an error but this: each call runs under the
`Failures` of its query, known to the thread.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator
from dataclasses import dataclass, field

KEPT_MAX = 100  # of a function that fails for every row, the first ones tell all there is to know


@dataclass(frozen=True, slots=True)
class Failure:
    """`message`: function, error, and the line of its body. `arguments`: of the row, as text."""

    message: str
    arguments: str


@dataclass(slots=True)
class Failures:
    """Filled from any thread. `left_out`: how many more there were than it keeps."""

    kept: list[Failure] = field(default_factory=list)
    left_out: int = 0
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def add(self, failure: Failure) -> None:
        with self._guard:
            if len(self.kept) < KEPT_MAX:
                self.kept.append(failure)
            else:
                self.left_out += 1

    def take(self) -> list[Failure]:
        """All since the last call; the last one says how many were left out."""
        with self._guard:
            kept, left_out, self.kept, self.left_out = self.kept, self.left_out, [], 0
        if left_out:
            kept.append(Failure(f"{left_out} more rows for which a function failed", ""))
        return kept


class _Current(threading.local):
    failures: Failures | None = None


_current = _Current()


@contextlib.contextmanager
def collecting(failures: Failures) -> Generator[None]:
    """What fails in this thread meanwhile is noted there."""
    before = _current.failures
    _current.failures = failures
    try:
        yield
    finally:
        _current.failures = before


def note(message: str, arguments: str) -> None:
    """Notes a failure, if somebody collects them."""
    if _current.failures is not None:
        _current.failures.add(Failure(message, arguments))
