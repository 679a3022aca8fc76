"""How many bytes a push query reads at a time: few for a client that takes its rows slowly.

A query that waits for its client holds the rows of one batch. With batches of 4 MB, 40 clients that took nothing held
1.4 GB: besides the decoded columns, each had the rows as Python values. A fast client reads large batches after a few
small ones, since each costs some milliseconds, however small it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

BATCH_BYTES_MIN: Final = 128 * 1024
BATCH_BYTES_MAX: Final = 4 * 1024 * 1024
QUICK_S: Final = 0.5  # a client that takes a batch within this time gets larger ones
SLOW_S: Final = 2.0  # one that takes longer than this gets the smallest


class ReadingPace:
    """In: `now`: seconds, of a clock that never goes back."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._bytes = BATCH_BYTES_MIN
        self._handed_out_s: float | None = None  # when the client got the last batch, if it has not come back since
        self._more = False

    def batch_bytes(self) -> int:
        """The size of the next batch. Call it when the client comes for more."""
        if self._handed_out_s is not None:
            taken_s, self._handed_out_s = self._now() - self._handed_out_s, None
            if taken_s > SLOW_S:
                self._bytes = BATCH_BYTES_MIN
            elif taken_s < QUICK_S and self._more:
                self._bytes = min(2 * self._bytes, BATCH_BYTES_MAX)
        return self._bytes

    def handed_out(self, *, more: bool) -> None:
        """The client has the batch. In: `more`: whether there is more to read right now."""
        self._handed_out_s = self._now()
        self._more = more
