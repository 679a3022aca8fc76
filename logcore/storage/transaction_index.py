"""The transactions of one partition: which are open, and which ranges of the log were aborted."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..records.batch import BatchHeader


class OpenTransaction(NamedTuple):
    producer_id: int
    epoch: int
    first_offset: int


class AbortedRange(NamedTuple):
    """`last_offset` is the offset of the abort marker."""

    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class AbortedRanges:
    """The aborted ranges, for readers. The ranges of one producer never overlap and are in order."""

    by_producer: Mapping[int, tuple[AbortedRange, ...]]

    def covers(self, header: BatchHeader) -> bool:
        ranges = self.by_producer.get(header.producer_id)
        if ranges is None or not header.transactional:
            return False
        last = bisect_right(ranges, header.base_offset, key=lambda range: range.first_offset) - 1
        return last >= 0 and header.base_offset <= ranges[last].last_offset


class TransactionIndex:
    """State: per producer its open transaction, if any, and its aborted ranges."""

    def __init__(self) -> None:
        self._open: dict[int, OpenTransaction] = {}
        self.aborted = AbortedRanges({})

    @property
    def open(self) -> list[OpenTransaction]:
        return list(self._open.values())

    def first_open_offset(self, otherwise: int) -> int:
        if not self._open:
            return otherwise
        return min(otherwise, min(transaction.first_offset for transaction in self._open.values()))

    def open_of(self, producer_id: int) -> OpenTransaction | None:
        return self._open.get(producer_id)

    def note_data(self, header: BatchHeader) -> None:
        if header.transactional and header.producer_id not in self._open:
            transaction = OpenTransaction(header.producer_id, header.producer_epoch, header.base_offset)
            self._open[header.producer_id] = transaction

    def note_marker(self, header: BatchHeader, committed: bool) -> None:
        transaction = self._open.pop(header.producer_id, None)
        if transaction is None or committed:
            return
        ranges = self.aborted.by_producer.get(header.producer_id, ())
        added = (*ranges, AbortedRange(transaction.first_offset, header.base_offset))
        self.aborted = AbortedRanges({**self.aborted.by_producer, header.producer_id: added})

    def forget_before(self, offset: int) -> None:
        """Forgets aborted ranges that end before the log start offset."""
        kept = {
            producer_id: tuple(range for range in ranges if range.last_offset >= offset)
            for producer_id, ranges in self.aborted.by_producer.items()
        }
        self.aborted = AbortedRanges({producer_id: ranges for producer_id, ranges in kept.items() if ranges})

    def forget_cleaned(self, offset: int) -> None:
        """Forgets aborted ranges whose records compaction has removed: those that end below this offset."""
        self.forget_before(offset)

    def to_json(self) -> Any:
        return {
            "open": list(self._open.values()),
            "aborted": [[producer_id, ranges] for producer_id, ranges in self.aborted.by_producer.items()],
        }

    @classmethod
    def from_json(cls, content: Any) -> TransactionIndex:
        index = cls()
        for fields in content["open"]:
            transaction = OpenTransaction(*fields)
            index._open[transaction.producer_id] = transaction
        index.aborted = AbortedRanges(
            {producer_id: tuple(AbortedRange(*range) for range in ranges) for producer_id, ranges in content["aborted"]}
        )
        return index
