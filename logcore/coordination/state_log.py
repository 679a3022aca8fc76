"""A topic of the log's own that holds a map: the last record of a key counts, a NULL value removes it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import pyarrow as pa
import structlog

from millstream.errors import LogError

from ..client import FetchedRows, RowRecords
from ..errors import CorruptLog
from ..records.codec import encode
from ..records.key_values import KeyValue
from ..storage.partition import Appended, Mark, Partition
from ..storage.reader import read

_COMPACT_BYTES: Final = 16 * 1024 * 1024
_log = structlog.get_logger("millstream.logcore")


class StateLog:
    """State: the map, as the log has it, durable or not.

    When the log has grown by 16 MiB it is written anew, one record per key, and what was before is dropped. A log that
    is damaged holds no map that can be believed: it can be opened, so that other topics can be used, and nothing more.
    """

    def __init__(self, partition: Partition, now_ms: Callable[[], int]) -> None:
        self._partition = partition
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._entries: dict[bytes, bytes] = {}
        self._damage: CorruptLog | None = None
        try:
            self._entries = _load(partition)
        except CorruptLog as error:
            _log.error("a topic of the log's own is damaged", partition=partition.name, error=error.message)
            self._damage = error
        self._bytes_since_compaction = 0

    @property
    def usable(self) -> bool:
        return self._damage is None and self._partition.usable

    @property
    def waits_for_disk(self) -> bool:
        """False where nothing is synced, so that a sync costs nothing."""
        return self._partition.waits_for_disk

    def check_usable(self) -> None:
        """Raises `LogError` where no change can be written, or the map is not known."""
        self.check_known()
        self._partition.check_usable()

    def check_known(self) -> None:
        """Raises `CorruptLog` where the map is not known."""
        if self._damage is not None:
            raise CorruptLog(self._damage.message, hint=self._damage.hint)

    def entries(self) -> Mapping[bytes, bytes]:
        """The map now; in the order in which its keys were written first."""
        with self._lock:
            return dict(self._entries)

    def append(self, changes: Iterable[KeyValue]) -> Appended:
        """Writes the changes in order; `sync` makes them durable. Raises what `check_usable` raises."""
        self.check_known()
        with self._lock:
            changes = list(changes)
            if self._bytes_since_compaction > _COMPACT_BYTES:
                self._compact()
            appended = self._write(changes)
            _apply(self._entries, changes)
            return appended

    def holds(self, mark: Mark) -> bool:
        """False where a failed sync took what was appended up to the mark."""
        return self._partition.holds(mark)

    def is_durable(self, mark: Mark) -> bool:
        return self._partition.is_durable(mark)

    def sync(self, mark: Mark | None = None) -> None:
        """Durable up to the mark, or all of it. Raises `LogError`; what was not durable is then not in the log."""
        try:
            if mark is None:
                self._partition.sync_all()
            else:
                self._partition.sync(mark)
        except BaseException:
            with self._lock:
                self._entries = _load(self._partition)
            raise

    def _write(self, changes: list[KeyValue]) -> Appended:
        now_ms = self._now_ms()
        self._bytes_since_compaction += sum(len(key) + len(value or b"") + 100 for key, value in changes)
        table = pa.table(
            {
                "timestamp": pa.array([now_ms] * len(changes), pa.int64()),
                "key": pa.array([change.key for change in changes], pa.binary()),
                "value": pa.array([change.value for change in changes], pa.binary()),
            }
        )
        return self._partition.append(encode(RowRecords(table)))

    def _compact(self) -> None:
        self._bytes_since_compaction = 0
        try:
            start = self._partition.start_segment()
            if self._entries:
                self._write([KeyValue(key, value) for key, value in self._entries.items()])
            self._partition.drop_before(start)
        except LogError as error:
            _log.warning("compaction failed", partition=self._partition.name, error=error.message)


def _load(partition: Partition) -> dict[bytes, bytes]:
    entries: dict[bytes, bytes] = {}
    view = partition.written()
    offset = view.offsets.log_start_offset
    while offset < view.limit_offset:  # what lies before damage is given first, and then the damage is an error
        try:
            fetched = read(view, offset, 1 << 62)
        except CorruptLog as error:
            raise partition.unreadable(offset, error) from error
        for run in fetched.runs:
            if isinstance(run, FetchedRows):
                keys, values = run.table.column("key").to_pylist(), run.table.column("value").to_pylist()
                _apply(entries, [KeyValue(key, value) for key, value in zip(keys, values, strict=True)])
        offset = fetched.next_offset
    return entries


def _apply(entries: dict[bytes, bytes], changes: Iterable[KeyValue]) -> None:
    for key, value in changes:
        if value is None:
            entries.pop(key, None)
        else:
            entries[key] = value
