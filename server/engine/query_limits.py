"""How many pull queries may come per second, run at a time, and answer with per hour (in bytes)."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Generator, Mapping
from typing import Final

from ..config.properties import number_of
from ..http.errors import TOO_MANY_REQUESTS, RequestRefused

PULL_RATE: Final = "ksql.query.pull.max.qps"
PULL_CONCURRENT: Final = "ksql.query.pull.max.concurrent.requests"
PULL_MEGABYTES: Final = "ksql.query.pull.max.hourly.bandwidth.megabytes"
_HOUR_S: Final = 3600.0


class PullGate:
    """Lets pull queries in. Any thread. In: `settings` of the server; `clock` in seconds."""

    def __init__(self, settings: Mapping[str, str], clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = number_of(settings, PULL_RATE)
        self._concurrent = number_of(settings, PULL_CONCURRENT)
        self._bytes_max = number_of(settings, PULL_MEGABYTES) * 1_000_000
        self._clock = clock
        self._guard = threading.Lock()
        self._second = (0, 0)  # which, and the queries in it
        self._hour = (0, 0)  # which, and the bytes in it
        self._running = 0

    @contextlib.contextmanager
    def admitted(self) -> Generator[None]:
        """For as long as one query takes. Raises `RequestRefused`."""
        self._enter()
        try:
            yield
        finally:
            with self._guard:
                self._running -= 1

    def sent(self, count: int) -> None:
        """Bytes of an answer."""
        with self._guard:
            hour = int(self._clock() / _HOUR_S)
            self._hour = (hour, count + (self._hour[1] if self._hour[0] == hour else 0))

    def _enter(self) -> None:
        with self._guard:
            now = self._clock()
            count = self._second[1] if self._second[0] == int(now) else 0
            if count >= self._rate:
                raise _refused(f"more than {self._rate:.0f} pull queries came within a second", PULL_RATE)
            if self._running >= self._concurrent:
                raise _refused(f"{self._concurrent:.0f} pull queries run already", PULL_CONCURRENT)
            if self._hour[0] == int(now / _HOUR_S) and self._hour[1] >= self._bytes_max:
                raise _refused("pull queries have sent all the bytes of this hour", PULL_MEGABYTES)
            self._second = (int(now), count + 1)
            self._running += 1


def _refused(message: str, name: str) -> RequestRefused:
    return RequestRefused(TOO_MANY_REQUESTS, message, hint=f"Ask later, or raise {name} in the server's configuration.")
