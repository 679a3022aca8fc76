"""How long an engine that ends waits for the tasks of its connectors and mirrors."""

from __future__ import annotations

import time
from typing import Final

ENDING_S: Final = 2.0


class Ending:
    """State: since when the tasks are asked to stop. Those that wait for a system that does not answer are left to
    themselves: they end with the process."""

    def __init__(self) -> None:
        self._until: float | None = None

    def begin(self) -> None:
        """Twice is fine: the first time counts."""
        if self._until is None:
            self._until = time.monotonic() + ENDING_S

    @property
    def left_s(self) -> float:
        """Never less than 0; all of it before `begin`."""
        return ENDING_S if self._until is None else max(0.0, self._until - time.monotonic())
