"""Appends departures over the Kafka protocol, and continues after the server was down.

It is the topic's only producer: the number of records in the topic determines the next departure, even if an append was
in progress when the server died. So the feeder loses and repeats nothing either.
"""

from __future__ import annotations

import threading
import time
from typing import Final

import pyarrow as pa

from millstream.logcore.client import RowRecords
from millstream.logcore.errors import LogUnavailable
from millstream.logcore.remote import RemoteLog

from .flights import departure_records

_TICK_S: Final = 0.1
_RETRY_S: Final = 0.2


class Feeder:
    """A thread that sends the departures: the first tenth at once, the others after `go_on`.

    In: `seconds`: over which all of them would be sent.
    """

    def __init__(self, kafka: str, topic: str, departures: pa.Table, seconds: float) -> None:
        self._kafka = kafka
        self._topic = topic
        self._records = departure_records(departures)
        self._rows = max(1, round(len(self._records) * _TICK_S / seconds))
        self._first = len(self._records) // 10
        self._going_on = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo-feeder", daemon=True)
        self.error: Exception | None = None
        self.sent = 0  # acknowledged

    @property
    def share(self) -> float:
        return self.sent / max(1, len(self._records))

    @property
    def done(self) -> bool:
        return self.sent >= len(self._records)

    def start(self) -> None:
        self._thread.start()

    def go_on(self) -> None:
        """Call it when the first results are displayed. May be called again."""
        self._going_on.set()

    def join(self) -> None:
        """Waits until all are sent, or sending has failed (`error`)."""
        self._thread.join()

    def stop(self) -> None:
        self._stopping.set()
        self._going_on.set()
        self.join()

    def _run(self) -> None:
        try:
            while not self.done and not self._stopping.is_set():
                try:
                    with RemoteLog(self._kafka) as log:
                        self.sent = log.offsets(self._topic, 0).log_end_offset
                        self._feed(log)
                except LogUnavailable:
                    self._stopping.wait(_RETRY_S)
        except Exception as error:  # the story reports it
            self.error = error

    def _feed(self, log: RemoteLog) -> None:
        due = time.monotonic()
        while not self.done and not self._stopping.is_set():
            if self.sent >= self._first and not self._going_on.is_set():
                self._going_on.wait()
                due = time.monotonic()
            rows = self._rows if self.sent >= self._first else self._first - self.sent
            log.append(self._topic, 0, RowRecords(self._records.slice(self.sent, rows)))
            self.sent = min(len(self._records), self.sent + rows)
            due += _TICK_S
            self._stopping.wait(max(0.0, due - time.monotonic()))
