"""Limits of pull queries: queries per second, concurrent queries, and bytes of answers per hour."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Generator
from typing import Final

from ...sql.settings.property import Property
from ...sql.settings.property_table import PULL_CONCURRENT, PULL_MEGABYTES, PULL_RATE
from ..config.server_settings import PullGateSettings
from ..http.errors import TOO_MANY_REQUESTS, RequestRefused

_HOUR_S: Final = 3600.0


class PullGate:
    """Admits pull queries. Any thread may use it. In: `clock`: in seconds."""

    def __init__(self, settings: PullGateSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._guard = threading.Lock()
        self._second = (0, 0)  # the current second, and its number of queries
        self._hour = (0, 0)  # the current hour, and its number of bytes
        self._running = 0

    @contextlib.contextmanager
    def admitted(self) -> Generator[None]:
        """Use it around one query. Raises `RequestRefused`."""
        self._enter()
        try:
            yield
        finally:
            with self._guard:
                self._running -= 1

    def sent(self, count: int) -> None:
        """Counts the bytes of an answer."""
        with self._guard:
            hour = int(self._clock() / _HOUR_S)
            self._hour = (hour, count + (self._hour[1] if self._hour[0] == hour else 0))

    def _enter(self) -> None:
        with self._guard:
            now = self._clock()
            count = self._second[1] if self._second[0] == int(now) else 0
            if count >= self._settings.per_second:
                raise _refused(f"more than {self._settings.per_second} pull queries arrived within a second", PULL_RATE)
            if self._running >= self._settings.concurrent:
                raise _refused(f"{self._settings.concurrent} pull queries are running already", PULL_CONCURRENT)
            if self._hour[0] == int(now / _HOUR_S) and self._hour[1] >= self._settings.bytes_per_hour:
                raise _refused("pull queries have reached the bandwidth limit of this hour", PULL_MEGABYTES)
            self._second = (int(now), count + 1)
            self._running += 1


def _refused(message: str, limit: Property[int]) -> RequestRefused:
    return RequestRefused(
        TOO_MANY_REQUESTS, message, hint=f"Retry later, or raise {limit} in the server's configuration."
    )
