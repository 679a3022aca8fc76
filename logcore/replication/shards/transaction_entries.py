"""What a shard of transactions writes to its log: one entry of an id replaces all earlier ones of this id."""

from __future__ import annotations

from collections.abc import Sequence

from ...coordination.transaction_log import encode_entry, written_ms
from ...cores.transaction_records import Entry, TransactionRecord
from ...records.key_values import KeyValue
from .led_log import LedLog
from .transaction_answers import too_large


class TransactionEntries:
    """State: of each id, when its last entry was written (time of day) and its size; and the entries that are owed."""

    def __init__(self, log: LedLog, bytes_max: int) -> None:
        """In: `bytes_max`: the most that the entry of an id may have."""
        self._log = log
        self._bytes_max = bytes_max
        self._used_ms: dict[str, int] = {}
        self._bytes: dict[str, int] = {}
        self._owed: dict[str, Entry] = {}

    def note_read(self, entry: Entry, record: KeyValue) -> None:
        """The entry is in the log already."""
        self._note(entry, record, written_ms(record.value) if record.value is not None else 0)

    def write(self, entries: Sequence[Entry], *, soon: bool = True) -> None:
        """In: `soon`: as in `LedLog.write`. Raises `ShardLost`."""
        now_ms = self._log.wall_ms
        records = [encode_entry(entry, now_ms) for entry in entries]
        self._log.write(records, soon=soon)
        for entry, record in zip(entries, records, strict=True):
            self._note(entry, record, now_ms)

    def owe(self, entries: Sequence[Entry]) -> None:
        """The entries say that ends are complete. They are written with the next tick, unless others of their ids come
        first, as with a producer that commits every few milliseconds. If they are lost, the markers are sent again,
        which changes nothing."""
        for entry in entries:
            self._owed[entry.transactional_id] = entry
            self._bytes.pop(entry.transactional_id, None)

    def write_owed(self) -> None:
        """Raises `ShardLost`."""
        if self._owed:
            self.write(list(self._owed.values()), soon=False)

    def check_room(self, key: str, more: int) -> None:
        """A transaction is one record, and goes to its groups in one message, several times as large. It must not grow
        to a size at which it could not be ended. Raises `InvalidTransactionState`."""
        if self._bytes.get(key, 0) + more > self._bytes_max:
            raise too_large(key, self._bytes_max)

    def ids_unused_since(self, before_ms: int) -> list[str]:
        """In: time of day."""
        return [key for key, used_ms in self._used_ms.items() if used_ms < before_ms]

    def _note(self, entry: Entry, record: KeyValue, at_ms: int) -> None:
        self._owed.pop(entry.transactional_id, None)
        if isinstance(entry, TransactionRecord):
            self._used_ms[entry.transactional_id] = at_ms
            self._bytes[entry.transactional_id] = len(record.value or b"")
        else:
            self._used_ms.pop(entry.transactional_id, None)
            self._bytes.pop(entry.transactional_id, None)
