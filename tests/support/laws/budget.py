"""How long the short runs of the laws may take: they are part of every test run, also on a busy machine."""

from __future__ import annotations

import time
from collections.abc import Callable


class Budget:
    """Lets cases through until `seconds` have passed since the first one. One case always runs to its end."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until: float | None = None

    def run(self, case: Callable[[int], None], seed: int) -> None:
        now = time.monotonic()
        if self._until is None:
            self._until = now + self._seconds
        if now < self._until:
            case(seed)
