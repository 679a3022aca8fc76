"""What a partition should hold, as a list, and the comparison with what its log serves."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from millstream.logcore.client import FetchedRows
from millstream.logcore.log import Log

TOPIC = "t"
DELETE_RETENTION_MS = 100_000
Key = tuple[str, bytes | str | None]  # the family and the key
Value = bytes | int | None


@dataclass(slots=True)
class Expected:
    """One record. `transaction` is None, or the producer's open transaction until it is decided."""

    key: Key
    value: Value
    timestamp_ms: int
    written_ms: int
    transaction: object | None = None
    aborted: bool = False

    @property
    def visible(self) -> bool:
        return not self.aborted and self.transaction is None


@dataclass(slots=True)
class ExpectedPartition:
    """State: by offset what was written. `checked_to`: below it the log was found to be right, and nothing was done
    since that may take records away."""

    number: int
    compacted: bool
    records: dict[int, Expected] = field(default_factory=dict)
    start_offset: int = 0
    highest_start: int = 0  # what was deleted once may come back when the checkpoint is lost, or not
    checked_to: int = -1
    times_known: bool = True  # also those of records that nobody sees

    def doubt(self, *, start_lost: bool = False) -> None:
        """From now on the log may lack records, and has to be read from its start."""
        self.checked_to = -1
        if start_lost:
            self.start_offset = -1  # may go back to the start of the first segment

    def note_start(self, offset: int) -> None:
        assert offset >= self.start_offset
        self.start_offset = offset
        self.highest_start = max(self.highest_start, offset)

    def check(self, log: Log, now_ms: int, chance: random.Random) -> None:
        """Raises AssertionError where the log is wrong."""
        offsets = log.offsets(TOPIC, self.number)
        self.note_start(offsets.log_start_offset)
        undecided = [offset for offset, record in self.records.items() if record.transaction is not None]
        acknowledged = (offset for offset, record in self.records.items() if record.visible)
        assert undecided or all(offset < offsets.high_watermark for offset in acknowledged)  # markers may follow
        assert offsets.last_stable_offset == min([*undecided, offsets.high_watermark])
        first = self.start_offset if self.checked_to < 0 or chance.random() < 0.05 else self.checked_to
        served = served_from(log, self.number, first, chance)
        assert list(served) == sorted(served)
        visible = {
            offset: record
            for offset, record in self.records.items()
            if first <= offset < offsets.last_stable_offset and record.visible
        }
        wrong = {
            offset: (found, visible.get(offset))
            for offset, found in served.items()
            if offset not in visible or found != (visible[offset].key, visible[offset].value)
        }
        assert not wrong
        if first == self.start_offset:
            visible = {offset: record for offset, record in visible.items() if offset >= self.highest_start}
            served = {offset: found for offset, found in served.items() if offset >= self.highest_start}
        self._check_missing(visible, served, now_ms)
        self.checked_to = max(self.start_offset, offsets.last_stable_offset)
        if not self.compacted and self.times_known and self.start_offset == self.highest_start:
            self._check_times(log, offsets.high_watermark, offsets.last_stable_offset, chance)

    def _check_missing(
        self, visible: Mapping[int, Expected], served: Mapping[int, tuple[Key, Value]], now_ms: int
    ) -> None:
        missing = visible.keys() - served.keys()
        if not self.compacted:
            assert not missing
            return
        last = {record.key: offset for offset, record in visible.items()}
        for offset in missing:
            record = visible[offset]
            assert record.key[1] is not None, "a record without key is never compacted"
            if last[record.key] == offset:
                assert record.value is None, "the last record of a key is there"
                assert now_ms - record.written_ms >= DELETE_RETENTION_MS
        assert _fold(served) == _fold({offset: (each.key, each.value) for offset, each in visible.items()})

    def _check_times(self, log: Log, high_watermark: int, last_stable_offset: int, chance: random.Random) -> None:
        if not self.records:
            return
        wanted = chance.choice(list(self.records.values())[-200:]).timestamp_ms + chance.choice([-1, 0, 1])
        first = next(
            (
                offset
                for offset, record in self.records.items()
                if self.start_offset <= offset < high_watermark and record.timestamp_ms >= wanted
            ),
            None,
        )
        expected = first if first is not None and first < last_stable_offset else None
        assert log.offset_at(TOPIC, self.number, wanted) == expected


def served_from(log: Log, partition: int, offset: int, chance: random.Random) -> dict[int, tuple[Key, Value]]:
    """All that a reader of committed records gets from this offset on."""
    found: dict[int, tuple[Key, Value]] = {}
    bytes_max = chance.choice([1, 500, *[1 << 20] * 6])
    while True:
        fetched = log.fetch(TOPIC, partition, offset, max_bytes=bytes_max)
        for run in fetched.runs:
            if isinstance(run, FetchedRows):
                table = run.table
                offsets, keys = table.column("offset").to_pylist(), table.column("key").to_pylist()
                for at, key, value in zip(offsets, keys, table.column("value").to_pylist(), strict=True):
                    found[at] = (("row", key), value)
            else:
                for at, row in zip(run.row_offsets.tolist(), run.batch.to_pylist(), strict=True):
                    found[at] = (("column", row["k"]), None if row["gone"] else row["x"])
        if fetched.next_offset == offset:
            assert offset >= fetched.last_stable_offset
            return found
        offset = fetched.next_offset


def _fold(records: Mapping[int, tuple[Key, Value]]) -> dict[Key, bytes | int]:
    state: dict[Key, bytes | int] = {}
    for key, value in records.values():
        state.pop(key, None)
        if value is not None and key[1] is not None:
            state[key] = value
    return state
