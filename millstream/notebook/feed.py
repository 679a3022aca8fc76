"""Reads a push query in the background: rows are taken at once, updates are sent at most ten times a second.

It does not depend on widgets or notebooks: `cell_runs` and `widgets` do.
"""

from __future__ import annotations

import atexit
import collections
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

import pyarrow as pa

from millstream.errors import MillstreamError
from millstream.logcore.errors import LogClosed
from millstream.server.client_tables import ResultTables

State = Literal["running", "ended", "stopped", "failed"]

_NEWS_EVERY_SECONDS: Final = 0.1
_STATUS_EVERY_SECONDS: Final = 1.0
_NEWS_BYTES_PER_SECOND: Final = 1_000_000  # a notebook may have a slow connection
_RATE_SECONDS: Final = 3.0  # the period over which rows are counted

_JOIN_SECONDS: Final = 5.0

_started: weakref.WeakSet[Feed] = weakref.WeakSet()


@dataclass(frozen=True, slots=True)
class Status:
    """`message`: why a query failed or was stopped. `rate`: in rows per second."""

    state: State = "running"
    message: str = ""
    received: int = 0
    rate: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        return {"state": self.state, "message": self.message, "received": self.received, "rate": self.rate}


class Feed:
    """Reads `tables` in a separate thread, until their end or `stop`.

    In: `take` gets each table of rows; `publish` gets the status, and returns how many bytes it sent. They never run
    concurrently.
    """

    def __init__(
        self, tables: ResultTables, take: Callable[[pa.Table], None], publish: Callable[[Status], int]
    ) -> None:
        self._close = tables.close
        self._take = take
        self._publish = publish
        self._news = threading.Condition()  # re-entrant: a notified caller may ask for the status
        self._status = Status()
        self._dirty = True
        self._arrivals: collections.deque[tuple[float, int]] = collections.deque()
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._read, args=(tables,), name="millstream-live-rows", daemon=True),
            threading.Thread(target=self._report, name="millstream-live-news", daemon=True),
        ]

    def start(self) -> None:
        _started.add(self)
        for thread in self._threads:
            thread.start()

    def stop(self, message: str = "") -> None:
        """Ends the query. Any thread may call it, repeatedly."""
        self._finish("stopped", message)
        self._close()

    @property
    def status(self) -> Status:
        with self._news:
            return self._status_now()

    def wait(self, reached: Callable[[Status], bool], seconds: float) -> bool:
        """Waits until `reached` holds or the query is over; returns whether that happened."""
        with self._news:
            return self._news.wait_for(lambda: self._over.is_set() or reached(self._status), seconds)

    def quiet(self) -> threading.Condition:
        """While it is held (`with`), no rows are taken."""
        return self._news

    def join(self, seconds: float) -> None:
        """Waits for both threads to end, after `stop`."""
        for thread in self._threads:
            thread.join(seconds)

    def _read(self, tables: ResultTables) -> None:
        """Keeps no reference to the query, which is freed after its last row although the widget stays."""
        try:
            for table in tables:
                if table.num_rows:
                    self._receive(table)
            self._finish("ended")
        except LogClosed:
            self._finish("ended", "its engine was closed")
        except MillstreamError as error:
            self._finish("failed", error.message + (f" {error.hint}" if error.hint else ""))
        except Exception as error:  # any error that ends the thread must be visible
            self._finish("failed", f"{type(error).__name__}: {error}")
        self._close = lambda: None

    def _receive(self, table: pa.Table) -> None:
        with self._news:
            if self._over.is_set():
                return
            self._take(table)
            self._arrivals.append((time.monotonic(), table.num_rows))
            self._status = Status(received=self._status.received + table.num_rows)
            self._dirty = True
            self._news.notify_all()

    def _finish(self, state: State, message: str = "") -> None:
        """Sets the final state; only the first call counts."""
        with self._news:
            if not self._over.is_set():
                self._status = Status(state, message, self._status.received)
                self._over.set()
                self._dirty = True
            self._news.notify_all()

    def _report(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: self._dirty, _STATUS_EVERY_SECONDS)
                status = self._status_now()
                self._dirty = False
                sent = self._publish(status)
            if status.state != "running":
                return
            self._over.wait(max(_NEWS_EVERY_SECONDS, sent / _NEWS_BYTES_PER_SECOND))

    def _status_now(self) -> Status:
        """With the rate of the last seconds. The caller holds `_news`."""
        if self._over.is_set():
            return self._status
        horizon = time.monotonic() - _RATE_SECONDS
        while self._arrivals and self._arrivals[0][0] < horizon:
            self._arrivals.popleft()
        rate = sum(count for _, count in self._arrivals) / _RATE_SECONDS
        return Status(received=self._status.received, rate=round(rate, 1))


@atexit.register
def stop_all() -> None:
    """Ends every live query of this process. Otherwise a thread that computes while Python exits would end the process
    with a signal."""
    feeds = list(_started)
    for feed in feeds:
        feed.stop()
    for feed in feeds:
        feed.join(_JOIN_SECONDS)
