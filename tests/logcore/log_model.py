"""A log and a list of what it should hold, driven by one seed: appends, transactions, retention, compaction, restarts.

What a log serves is checked against the list after each step: every record it gives is right, in order and committed;
none is missing but those that compaction or retention may take; and the last value of each key is what all records say.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from millstream.logcore.client import ColumnarRecords, FetchedRows, RowRecords
from millstream.logcore.errors import OffsetOutOfRange
from millstream.logcore.log import Log, open_log
from millstream.logcore.producer import LocalTransactionalProducer
from millstream.logcore.records.column_keys import key_metadata

Key = tuple[str, bytes | str | None]  # the family and the key
CONFIGS = (
    {"segment.bytes": "1024"},
    {"segment.bytes": "1024", "retention.bytes": "3000"},
    {"segment.bytes": "1024", "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"},
    {"segment.bytes": "2048", "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.3"},
    {"segment.bytes": "1024", "cleanup.policy": "compact,delete", "retention.ms": "600000"},
)
DELETE_RETENTION_MS = 100_000
_COLUMNS = pa.schema([("k", pa.string()), ("x", pa.int64()), ("gone", pa.bool_())]).with_metadata(
    key_metadata(["k"], deleted="gone")
)


@dataclass(slots=True)
class Expected:
    """One record. `transaction` is None, or the producer's open transaction until it is decided."""

    key: Key
    value: bytes | int | None
    written_ms: int
    transaction: object | None = None
    aborted: bool = False


class LogModel:
    """State: a log of one partition, and by offset what was written to it."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.config = {**self.random.choice(CONFIGS), "delete.retention.ms": str(DELETE_RETENTION_MS)}
        self.compacted = "compact" in self.config.get("cleanup.policy", "")
        self.records: dict[int, Expected] = {}
        self.start_offset = 0
        self.highest_start = 0  # what was deleted once may come back when the checkpoint is lost, or not
        self._folder = folder
        self._lives = 0
        self._now_s = time.time()
        self._count = 0
        self._open: dict[str, object] = {}
        self._producers: dict[str, LocalTransactionalProducer] = {}
        self.log = self._opened(folder / "0")
        self.log.create_topic("t", 1, self.config)

    def _opened(self, path: Path) -> Log:
        return open_log(path, clock=lambda: self._now_s, sync="never")

    def step(self) -> str:
        """Does something, and says what."""
        actions = {
            self.append_rows: 8,
            self.append_columns: 4,
            self.write_in_transaction: 6,
            self.end_transaction: 5,
            self.keep_house: 3,
            self.wait: 2,
            self.delete_records: 1,
            self.restart: 1,
            self.crash: 1,
        }
        action = self.random.choices(list(actions), list(actions.values()))[0]
        action()
        return action.__name__

    def append_rows(self) -> None:
        rows, expected = self._rows()
        self._note(self.log.append("t", 0, rows), expected)

    def append_columns(self) -> None:
        columns, expected = self._columns()
        self._note(self.log.append("t", 0, columns), expected)

    def write_in_transaction(self) -> None:
        name = self.random.choice("pq")
        if name not in self._producers:
            self._producers[name] = self.log.transactional_producer(name)
        producer = self._producers[name]
        if name not in self._open:
            producer.begin()
            self._open[name] = object()
        records, expected = self._rows() if self.random.random() < 0.6 else self._columns()
        first_offset = self.log.offsets("t", 0).log_end_offset
        producer.append("t", 0, records)
        self._note(first_offset, expected, self._open[name])

    def end_transaction(self) -> None:
        for name in [name for name in self._open if self.random.random() < 0.7]:
            commit = self.random.random() < 0.6
            (self._producers[name].commit if commit else self._producers[name].abort)()
            self._decide(name, aborted=not commit)

    def keep_house(self) -> None:
        self.log.keep_house()
        assert self.log.problems() == []

    def wait(self) -> None:
        self._now_s += self.random.choice([1, 60, 200, 700])

    def delete_records(self) -> None:
        offsets = self.log.offsets("t", 0)
        wanted = self.random.randint(0, offsets.high_watermark + 2)
        try:
            start = self.log.delete_records("t", 0, wanted)
        except OffsetOutOfRange:
            assert wanted > offsets.high_watermark
        else:
            assert start == max(offsets.log_start_offset, min(wanted, offsets.last_stable_offset))

    def restart(self) -> None:
        self.log.close()
        self._come_back(self._folder / str(self._lives))

    def crash(self) -> None:
        """What the process leaves on disk is all there is."""
        before, after = self._folder / str(self._lives), self._folder / str(self._lives + 1)
        shutil.copytree(before, after)
        self._lives += 1
        self.log.close()
        shutil.rmtree(before)
        if self.random.random() < 0.3:
            for checkpoint in after.glob("t-0/checkpoint.json"):
                checkpoint.unlink()
            self.start_offset = -1  # may go back to the start of the first segment
        self._come_back(after)

    def _come_back(self, path: Path) -> None:
        self.log = self._opened(path)
        self._producers = {}
        for name in list(self._open):
            self._decide(name, aborted=True)

    def close(self) -> None:
        self.log.close()

    def check(self) -> None:
        offsets = self.log.offsets("t", 0)
        assert offsets.log_start_offset >= self.start_offset
        self.start_offset = offsets.log_start_offset
        served = self.served()
        visible = {
            offset: record
            for offset, record in self.records.items()
            if offset >= self.start_offset and not record.aborted and record.transaction is None
        }
        visible = {offset: record for offset, record in visible.items() if offset < offsets.last_stable_offset}
        assert list(served) == sorted(served)
        wrong = {
            offset: (found, visible.get(offset))
            for offset, found in served.items()
            if offset not in visible or found != (visible[offset].key, visible[offset].value)
        }
        assert not wrong
        self.highest_start = max(self.highest_start, self.start_offset)
        visible = {offset: record for offset, record in visible.items() if offset >= self.highest_start}
        served = {offset: found for offset, found in served.items() if offset >= self.highest_start}
        missing = visible.keys() - served.keys()
        if not self.compacted:
            assert not missing
            return
        last = {record.key: offset for offset, record in visible.items()}
        now_ms = int(self._now_s * 1000)
        for offset in missing:
            record = visible[offset]
            assert record.key[1] is not None, "a record without key is never compacted"
            if last[record.key] == offset:
                assert record.value is None, "the last record of a key is there"
                assert now_ms - record.written_ms >= DELETE_RETENTION_MS
        assert self.fold(served) == self.fold({offset: (each.key, each.value) for offset, each in visible.items()})

    @staticmethod
    def fold(records: dict[int, tuple[Key, bytes | int | None]]) -> dict[Key, bytes | int]:
        state: dict[Key, bytes | int] = {}
        for key, value in records.values():
            state.pop(key, None)
            if value is not None and key[1] is not None:
                state[key] = value
        return state

    def served(self) -> dict[int, tuple[Key, bytes | int | None]]:
        found: dict[int, tuple[Key, bytes | int | None]] = {}
        offset = self.log.offsets("t", 0).log_start_offset
        while True:
            fetched = self.log.fetch("t", 0, offset, max_bytes=self.random.choice([1, 500, 1 << 20]))
            for run in fetched.runs:
                if isinstance(run, FetchedRows):
                    for row in run.table.to_pylist():
                        found[row["offset"]] = (("row", row["key"]), row["value"])
                else:
                    for offset_of_row, row in zip(run.row_offsets.tolist(), run.batch.to_pylist(), strict=True):
                        found[offset_of_row] = (("column", row["k"]), None if row["gone"] else row["x"])
            if fetched.next_offset == offset:
                assert offset == fetched.last_stable_offset
                return found
            offset = fetched.next_offset

    def _rows(self) -> tuple[RowRecords, list[tuple[Key, bytes | None]]]:
        picked: list[tuple[bytes | None, bytes | None]] = []
        for _ in range(self.random.choice([1, 1, 2, 5, 30])):
            self._count += 1
            key = self.random.choice([None, b"a", b"b", b"c", b"d", b"e"])
            picked.append((key, None if self.random.random() < 0.2 else b"%d" % self._count))
        table = pa.table(
            {
                "timestamp": pa.array([int(self._now_s * 1000)] * len(picked), pa.int64()),
                "key": pa.array([key for key, _ in picked], pa.binary()),
                "value": pa.array([value for _, value in picked], pa.binary()),
            }
        )
        return RowRecords(table), [(("row", key), value) for key, value in picked]

    def _columns(self) -> tuple[ColumnarRecords, list[tuple[Key, int | None]]]:
        picked: list[tuple[str, int | None]] = []
        for _ in range(self.random.choice([1, 2, 5, 30])):
            self._count += 1
            picked.append((self.random.choice("abcde"), None if self.random.random() < 0.2 else self._count))
        rows = [{"k": key, "x": value or 0, "gone": value is None} for key, value in picked]
        batch = pa.RecordBatch.from_pylist(rows, schema=_COLUMNS)
        return ColumnarRecords(batch, int(self._now_s * 1000)), [(("column", key), value) for key, value in picked]

    def _note(
        self, first_offset: int, expected: Sequence[tuple[Key, bytes | int | None]], transaction: object = None
    ) -> None:
        for offset, (key, value) in enumerate(expected, first_offset):
            assert offset not in self.records
            self.records[offset] = Expected(key, value, int(self._now_s * 1000), transaction)

    def _decide(self, name: str, *, aborted: bool) -> None:
        transaction = self._open.pop(name)
        for record in self.records.values():
            if record.transaction is transaction:
                record.transaction, record.aborted = None, aborted


def run_model(folder: Path, seed: int, steps: int) -> None:
    """Raises AssertionError, naming seed and steps, where the log and the list differ."""
    model = LogModel(folder, seed)
    done: list[str] = []
    try:
        for _ in range(steps):
            done.append("?")
            done[-1] = model.step()
            model.check()
    except Exception as error:
        raise AssertionError(f"seed {seed}, {model.config}, after {len(done)} steps {done[-12:]}: {error!r}") from error
    finally:
        model.close()
        shutil.rmtree(folder, ignore_errors=True)
