"""Monitoring figures of a partition since it was opened: records and bytes in and out, and the duration of syncs."""

from __future__ import annotations

import threading
from typing import NamedTuple


class Moved(NamedTuple):
    records: int = 0
    bytes: int = 0


class SyncTime(NamedTuple):
    syncs: int = 0
    seconds: float = 0.0
    slowest_s: float = 0.0


class Traffic:
    """State: what was appended, and what was sent to clients that speak the Kafka protocol. Any thread may call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._appended = self._sent = Moved()
        self._synced = SyncTime()

    def note_appended(self, records: int, size: int) -> None:
        with self._lock:
            self._appended = Moved(self._appended.records + records, self._appended.bytes + size)

    def note_sent(self, records: int, size: int) -> None:
        with self._lock:
            self._sent = Moved(self._sent.records + records, self._sent.bytes + size)

    def note_sync(self, seconds: float) -> None:
        with self._lock:
            known = self._synced
            self._synced = SyncTime(known.syncs + 1, known.seconds + seconds, max(known.slowest_s, seconds))

    @property
    def appended(self) -> Moved:
        return self._appended

    @property
    def sent(self) -> Moved:
        return self._sent

    @property
    def synced(self) -> SyncTime:
        return self._synced
