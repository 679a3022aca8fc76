"""RecoveryWatch: how far a recovery is, for users who look, and whether it is to end before it is complete.

A recovery reads the changelog, or a table's topic for new stores, a second or more for each two million rows. PAUSE,
TERMINATE and the server's stop do not wait for it. Ending it early loses nothing: what is in the state file stays, and
the next recovery continues there; stores that were being filled are filled anew.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator


class RecoveryInterrupted(Exception):  # not an error: what a caller asked for
    """The query is not to run now."""


class RecoveryWatch:
    """Watches one query's recoveries. Its own thread reports, any thread may look.

    In: `is_wanted`: whether the query is to run; asked between batches.
    """

    def __init__(self, is_wanted: Callable[[], bool] = lambda: True) -> None:
        self._is_wanted = is_wanted
        self._left: int | None = None

    @contextlib.contextmanager
    def recovering(self) -> Generator[None]:
        """Around one recovery, which completes or fails."""
        try:
            yield
        finally:
            self._left = None

    @property
    def left(self) -> int | None:
        """Records left to read before the query continues; None outside of a recovery."""
        return self._left

    def at(self, left: int) -> None:
        """Reports progress, between two transactions. Raises `RecoveryInterrupted`."""
        self._left = left
        if not self._is_wanted():
            raise RecoveryInterrupted
