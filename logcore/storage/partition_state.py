"""The state of a partition at an offset: producers, transactions, leader epochs, the next offset. It is built by
reading the batches below that offset."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ..errors import InvalidTransactionState
from ..records.batch import HEADER_SIZE, BatchHeader, checksum_of, read_header
from ..records.control import read_marker
from .disk import LogFile
from .epoch_cache import EpochCache
from .producer_state import ProducerStates, SequencedBatch
from .transaction_index import TransactionIndex

_SCAN_BYTES: Final = 4 * 1024 * 1024
_FIRST_BYTES: Final = 4096  # for many segments only a few bytes have to be read


@dataclass(slots=True)
class LogState:
    """Invariant: it covers exactly the batches below `end_offset` that can be read."""

    end_offset: int = 0
    producers: ProducerStates = field(default_factory=ProducerStates)
    transactions: TransactionIndex = field(default_factory=TransactionIndex)
    epochs: EpochCache = field(default_factory=EpochCache)

    @classmethod
    def beginning_at(cls, offset: int) -> LogState:
        """The state of a log whose batches below `offset` are gone. Producers that wrote them may be unknown."""
        return cls(offset, ProducerStates(complete=offset == 0))

    def check(self, header: BatchHeader) -> SequencedBatch | None:
        """Checks that a producer's batch may be appended. Returns the stored batch that it repeats; None if it is new.

        Raises as `ProducerStates.check` does, and `InvalidTransactionState` for a batch outside the open transaction of
        its producer: a batch with a newer epoch would fence the marker that ends the transaction.
        """
        repeated = self.producers.check(header)
        if not header.transactional and self.transactions.open_of(header.producer_id) is not None:
            raise InvalidTransactionState(
                f"producer {header.producer_id} has a transaction open, and this is no part of it",
                hint="End the transaction first, or use a producer of its own for records outside of transactions.",
            )
        return repeated

    def note(self, header: BatchHeader, batch: Callable[[], memoryview], now_ms: int) -> None:
        """Adds the next batch to the state. `batch` returns its bytes, which only control batches need."""
        self.epochs.note(header.leader_epoch, header.base_offset)
        self.producers.note(header, now_ms)
        if not header.control:
            self.transactions.note_data(header)
        else:
            marker = read_marker(batch())
            if marker is not None:
                self.transactions.note_marker(header, marker.committed)
                self.producers.note_end(header.producer_id, marker.number)
        self.end_offset = header.last_offset + 1

    def to_json(self) -> Any:
        return {
            "end_offset": self.end_offset,
            "producers": self.producers.to_json(),
            "producers_complete": self.producers.complete,
            "transactions": self.transactions.to_json(),
            "epochs": self.epochs.to_json(),
        }

    @classmethod
    def from_json(cls, content: Any) -> LogState:
        return cls(
            content["end_offset"],
            ProducerStates.from_json(content["producers"], complete=content.get("producers_complete", False)),
            TransactionIndex.from_json(content["transactions"]),
            EpochCache(content.get("epochs", ())),  # checkpoints of earlier versions have none
        )


class ScannedBatch(NamedTuple):
    position: int
    header: BatchHeader
    batch: memoryview  # valid until the iterator's next step


def scan(file: LogFile, position: int, end: int) -> Iterator[ScannedBatch]:
    """The batches from `position` to `end`. It stops at the first one that is incomplete or fails its checksum."""
    buffer, start, filled = memoryview(b""), position, 0
    while position + HEADER_SIZE <= end:
        if position + HEADER_SIZE > start + filled:
            size = _SCAN_BYTES if filled else _FIRST_BYTES
            buffer, start, filled = _filled(file.read_into, position, size, end)
            if filled < HEADER_SIZE:
                return
        header = read_header(buffer, position - start)
        if not header.plausible or position + header.size > end:
            return
        if position + header.size > start + filled:
            buffer, start, filled = _filled(file.read_into, position, max(_SCAN_BYTES, header.size), end)
            if filled < header.size:
                return
        batch = buffer[position - start : position - start + header.size]
        if checksum_of(batch) != header.crc:
            return
        yield ScannedBatch(position, header, batch)
        position += header.size


def _filled(
    read_into: Callable[[memoryview, int], int], position: int, size: int, end: int
) -> tuple[memoryview, int, int]:
    buffer = memoryview(bytearray(min(size, end - position)))
    return buffer, position, read_into(buffer, position)
