"""A log and lists of what it should hold, driven by one seed: appends, retried batches, transactions, retention,
compaction, deleted records, restarts and crashes.

What the log serves is compared with the lists after each step: every record it gives is right, in order and committed;
none is missing but those that compaction or retention may take; the last value of each key is what all records say;
and times are found where they begin.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
from waiting import eventually

from millstream.logcore.client import ColumnarRecords, RowRecords
from millstream.logcore.clients.remote_producer import RemoteTransactionalProducer
from millstream.logcore.cores.transaction_records import TransactionState
from millstream.logcore.errors import OffsetOutOfRange
from millstream.logcore.log import Log, open_log
from millstream.logcore.records.batch import BatchProducer
from millstream.logcore.records.codec import encode
from millstream.logcore.records.column_keys import key_metadata

from .expected_records import DELETE_RETENTION_MS, TOPIC, Expected, ExpectedPartition, Key, Value
from .log_records import crashed_copy, partition_folder

CONFIGS = (
    {"segment.bytes": "1024"},
    {"segment.bytes": "20000"},
    {"segment.bytes": "1024", "retention.bytes": "3000"},
    {"segment.bytes": "1024", "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"},
    {"segment.bytes": "2048", "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.3"},
    {"segment.bytes": "1024", "cleanup.policy": "compact,delete", "retention.ms": "600000"},
)
PARTITIONS = 2
_ENDED = (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT)
_COLUMNS = pa.schema([("k", pa.string()), ("x", pa.int64()), ("gone", pa.bool_())]).with_metadata(
    key_metadata(["k"], deleted="gone")
)


@dataclass(slots=True)
class Sequenced:
    """State: a producer that numbers its batches in one partition. `sent`: its last ones, with the offset they got."""

    id: int
    sequence: int
    sent: list[tuple[bytes, int]]


@dataclass(slots=True)
class Written:
    """What was made up to be written."""

    records: RowRecords | ColumnarRecords
    expected: Sequence[tuple[Key, Value, int]]  # with timestamps


class LogModel:
    """State: a log of one topic, and what its partitions should hold."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.config = {**self.random.choice(CONFIGS), "delete.retention.ms": str(DELETE_RETENTION_MS)}
        self.durable = self.random.random() < 0.5
        compacted = "compact" in self.config.get("cleanup.policy", "")
        self.parts = [ExpectedPartition(number, compacted) for number in range(PARTITIONS)]
        self._folder = folder
        self._lives = 0
        self._now_s = time.time()
        self._count = 0
        self._open: dict[str, object] = {}
        self._producers: dict[str, RemoteTransactionalProducer] = {}
        self._sequenced: dict[int, Sequenced] = {}  # by partition
        self.log = self._opened(folder / "0")
        self.log.create_topic(TOPIC, PARTITIONS, self.config)

    def _opened(self, path: Path) -> Log:
        return open_log(path, clock=lambda: self._now_s, sync="always" if self.durable else "never")

    @property
    def _now_ms(self) -> int:
        return int(self._now_s * 1000)

    def step(self) -> str:
        """Does something, and says what."""
        actions = {
            self.append_rows: 8,
            self.append_columns: 4,
            self.append_sequenced: 4,
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

    def check(self) -> None:
        """One of the partitions, now and then: after a crash the other one may stay closed for a while."""
        if self.random.random() < 0.6:
            self.random.choice(self.parts).check(self.log, self._now_ms, self.random)

    def check_all(self) -> None:
        for part in self.parts:
            part.doubt()
            part.check(self.log, self._now_ms, self.random)

    def _part(self) -> ExpectedPartition:
        return self.random.choice(self.parts)

    # Writing

    def append_rows(self) -> None:
        part, written = self._part(), self._rows()
        self._note(part, self.log.append(TOPIC, part.number, written.records), written)

    def append_columns(self) -> None:
        part, written = self._part(), self._columns()
        self._note(part, self.log.append(TOPIC, part.number, written.records), written)

    def append_sequenced(self) -> None:
        """As a client does that sends a batch again when it has heard nothing."""
        part = self._part()
        known = self._sequenced.get(part.number)
        if known is None:
            known = self._sequenced[part.number] = Sequenced(self.log.serving().transactions.new_producer_id(), 0, [])
        end_offset = self._end_of(part)
        if known.sent and self.random.random() < 0.4:
            batch, offset = self.random.choice(known.sent)
            assert self.log.append_batches(TOPIC, part.number, batch) == offset
            assert self._end_of(part) == end_offset
            return
        written = self._rows()
        (encoded,) = encode(written.records, BatchProducer(known.id, 0, known.sequence, transactional=False))
        batch = b"".join(bytes(buffer) for buffer in encoded.buffers)
        offset = self.log.append_batches(TOPIC, part.number, batch)
        self._note(part, offset, written)
        known.sequence += len(written.expected)
        known.sent = [*known.sent, (batch, offset)][-5:]

    def write_in_transaction(self) -> None:
        name, part = self.random.choice("pq"), self._part()
        if name not in self._producers:
            self._producers[name] = self.log.transactional_producer(name)
        producer = self._producers[name]
        if name not in self._open:
            producer.begin()
            self._open[name] = object()
        written = self._rows() if self.random.random() < 0.6 else self._columns()
        first_offset = self._end_of(part)
        producer.append(TOPIC, part.number, written.records)
        self._note(part, first_offset, written, self._open[name])

    def end_transaction(self) -> None:
        for name in [name for name in self._open if self.random.random() < 0.7]:
            commit = self.random.random() < 0.6
            (self._producers[name].commit if commit else self._producers[name].abort)()
            self._decide(name, aborted=not commit)

    def _end_of(self, part: ExpectedPartition) -> int:
        return self.log.offsets(TOPIC, part.number).log_end_offset

    # What takes records away, and time

    def keep_house(self) -> None:
        for part in self.parts:
            part.doubt()
        self.log.keep_house()
        assert not [problem for problem in self.log.problems() if "dropped-from" not in problem]  # see `_tear`
        for part in self.parts:
            part.note_start(self.log.offsets(TOPIC, part.number).log_start_offset)

    def wait(self) -> None:
        self._now_s += self.random.choice([1, 60, 200, 700])

    def delete_records(self) -> None:
        part = self._part()
        part.doubt()
        offsets = self.log.offsets(TOPIC, part.number)
        wanted = self.random.randint(0, offsets.high_watermark + 2)
        try:
            start = self.log.delete_records(TOPIC, part.number, wanted)
        except OffsetOutOfRange:
            assert wanted > offsets.high_watermark
        else:
            assert start == max(offsets.log_start_offset, min(wanted, offsets.last_stable_offset))
            part.note_start(start)

    # Lives

    def restart(self) -> None:
        self.log.close()
        self._come_back(self._folder / str(self._lives))

    def crash(self) -> None:
        """What the process leaves on disk is all there is."""
        before, after = self._folder / str(self._lives), self._folder / str(self._lives + 1)
        crashed_copy(self.log, before, after)
        self._lives += 1
        self.log.close()
        shutil.rmtree(before)
        for part in self.parts:
            folder = partition_folder(after, TOPIC, part.number)
            if not folder.exists():
                continue  # nothing was written to it yet
            if self.random.random() < 0.3:
                for checkpoint in folder.glob("checkpoint*.json"):
                    checkpoint.unlink()
                self._sequenced.pop(part.number, None)  # of batches that were cleaned nothing is known any more
                part.doubt(start_lost=True)
            self._tear(max(folder.glob("*.log")))
        self._come_back(after)

    def _tear(self, segment: Path) -> None:
        """The beginning of a write that nobody was told of."""
        size = self.random.choice([1, 60, 4000])
        data = segment.read_bytes()
        torn = {"nothing": b"", "zeros": bytes(size), "a batch": data[:size], "garbage": self.random.randbytes(size)}
        segment.write_bytes(data + self.random.choice(list(torn.values())))

    def _come_back(self, path: Path) -> None:
        for part in self.parts:
            part.doubt()
        self.log = self._opened(path)
        self._producers = {name: self.log.transactional_producer(name) for name in self._open}
        eventually(lambda: all(each.state in _ENDED for each in self.log.served.transactions()))
        for name in list(self._open):
            self._decide(name, aborted=True)

    def close(self) -> None:
        self.log.close()

    # Records

    def _rows(self) -> Written:
        picked: list[tuple[bytes | None, bytes | None, int]] = []
        for _ in range(self.random.choice([1, 1, 2, 5, 30])):
            self._count += 1
            key = self.random.choice([None, b"a", b"b", b"c", b"d", b"e"])
            value = None if self.random.random() < 0.2 else b"%d" % self._count
            picked.append((key, value, self._now_ms - self.random.choice([0, 0, 1, 500, 90_000])))
        table = pa.table(
            {
                "timestamp": pa.array([time_ms for _, _, time_ms in picked], pa.int64()),
                "key": pa.array([key for key, _, _ in picked], pa.binary()),
                "value": pa.array([value for _, value, _ in picked], pa.binary()),
            }
        )
        return Written(RowRecords(table), [(("row", key), value, time_ms) for key, value, time_ms in picked])

    def _columns(self) -> Written:
        rows: list[dict[str, Any]] = []
        for _ in range(self.random.choice([1, 2, 5, 30])):
            self._count += 1
            rows.append({"k": self.random.choice("abcde"), "x": self._count, "gone": self.random.random() < 0.2})
        batch = pa.RecordBatch.from_pylist(rows, schema=_COLUMNS)
        time_ms = self._now_ms - self.random.choice([0, 700])
        expected = [(("column", row["k"]), None if row["gone"] else row["x"], time_ms) for row in rows]
        return Written(ColumnarRecords(batch, time_ms), expected)

    def _note(self, part: ExpectedPartition, first_offset: int, written: Written, transaction: object = None) -> None:
        for offset, (key, value, timestamp_ms) in enumerate(written.expected, first_offset):
            assert offset not in part.records
            part.records[offset] = Expected(key, value, timestamp_ms, self._now_ms, transaction)

    def _decide(self, name: str, *, aborted: bool) -> None:
        transaction = self._open.pop(name)
        for part in self.parts:
            for record in part.records.values():
                if record.transaction is transaction:
                    record.transaction, record.aborted = None, aborted


def run_model(folder: Path, seed: int, steps: int) -> None:
    """Raises AssertionError, naming seed and steps, where the log and the lists differ."""
    with mock.patch("os.sync"):  # after a crash: here it is the process that ends, and not the machine
        model = LogModel(folder, seed)
        done: list[str] = []
        try:
            for _ in range(steps):
                done.append("?")
                done[-1] = model.step()
                model.check()
            model.check_all()
        except Exception as error:
            what = f"seed {seed}, {model.config}, after {len(done)} steps {done[-12:]}: {error!r}"
            raise AssertionError(what) from error
        finally:
            model.close()
            shutil.rmtree(folder, ignore_errors=True)
