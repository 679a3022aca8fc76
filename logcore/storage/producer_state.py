"""What a partition knows about each producer: its epoch and its last batches. So a retried batch is stored once."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ..errors import OutOfOrderSequence, ProducerFenced
from ..records.batch import BatchHeader, next_sequence
from ..records.control import NUMBER_MAX

_REMEMBERED: Final = 5  # a Kafka producer may have this many batches in flight


class SequencedBatch(NamedTuple):
    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int


@dataclass(slots=True)
class ProducerEntry:
    """Invariant: `batches` belong to `epoch`, oldest first, at most five. `last_offset` is the first offset of the
    producer's last batch, markers included; `seen_ms` is when that batch arrived, or later. `ended`: the number of the
    last transaction that ended here; -1: none. `ended_epoch`: the epoch of its marker."""

    epoch: int
    batches: list[SequencedBatch] = field(default_factory=list)
    last_offset: int = -1
    seen_ms: int = 0
    ended: int = -1
    ended_epoch: int = NUMBER_MAX  # for files of older versions without it: every number up to `ended` has ended

    @property
    def next_sequence(self) -> int:
        return next_sequence(self.batches[-1].last_sequence, 1) if self.batches else 0


class ProducerStates:
    """State: one entry per producer id that wrote here and was not forgotten.

    `complete`: no producer was forgotten, so an unknown producer has never written here.
    """

    def __init__(self, *, complete: bool = True) -> None:
        self.complete = complete
        self._entries: dict[int, ProducerEntry] = {}

    def check(self, header: BatchHeader) -> SequencedBatch | None:
        """Returns the stored batch that this one repeats; None if it is new.

        Raises `ProducerFenced` for an old epoch, `OutOfOrderSequence` if batches before it are missing. That includes
        the producer's first batch, which may have been refused or may still arrive over another connection.
        """
        if header.producer_id < 0:
            return None
        entry = self._entries.get(header.producer_id)
        self.check_epoch(header.producer_id, header.producer_epoch)
        if header.base_sequence < 0:
            return None
        first = 0 if self.complete else header.base_sequence
        if entry is None:
            expected = first
        elif header.producer_epoch > entry.epoch:
            expected = 0
        else:
            last = next_sequence(header.base_sequence, header.last_offset_delta)
            for batch in entry.batches:
                if (batch.first_sequence, batch.last_sequence) == (header.base_sequence, last):
                    return batch
            expected = entry.next_sequence if entry.batches else first
        if header.base_sequence != expected:
            raise OutOfOrderSequence(
                f"producer {header.producer_id} sent sequence {header.base_sequence}, but {expected} comes next",
                hint="Batches before this one are missing: send them first, or start with a new producer.",
            )
        return None

    def check_epoch(self, producer_id: int, epoch: int) -> None:
        entry = self._entries.get(producer_id)
        if entry is not None and epoch < entry.epoch:
            raise fenced(producer_id, epoch, entry.epoch)

    def epoch_of(self, producer_id: int) -> int:
        """The producer's epoch; -1 for an unknown producer."""
        entry = self._entries.get(producer_id)
        return entry.epoch if entry is not None else -1

    def note(self, header: BatchHeader, now_ms: int) -> None:
        """Records a batch that was checked and written."""
        if header.producer_id < 0:
            return
        entry = self._entries.get(header.producer_id)
        if entry is None or entry.epoch != header.producer_epoch:
            new = ProducerEntry(header.producer_epoch)
            if entry is not None:
                new.ended, new.ended_epoch = entry.ended, entry.ended_epoch
            entry = self._entries[header.producer_id] = new
        entry.last_offset, entry.seen_ms = header.base_offset, now_ms
        if header.base_sequence >= 0:
            last = next_sequence(header.base_sequence, header.last_offset_delta)
            entry.batches.append(SequencedBatch(header.base_sequence, last, header.base_offset, header.last_offset))
            del entry.batches[:-_REMEMBERED]

    def note_end(self, producer_id: int, number: int) -> None:
        """Records the number of a marker, after `note` of its batch."""
        entry = self._entries.get(producer_id)
        if entry is not None:
            entry.ended, entry.ended_epoch = number, entry.epoch

    def has_ended(self, producer_id: int, epoch: int, number: int) -> bool:
        """Whether the log has the marker of this transaction of the producer, or of a later one.

        A producer's epochs and transaction numbers only increase. A higher epoch with a number that is not higher means
        that the coordinator lost its newest records and counts from an earlier number: its marker is new. If it were
        ignored, the transaction would stay open forever.
        """
        entry = self._entries.get(producer_id)
        if entry is None or entry.ended < 0 or epoch > entry.ended_epoch:
            return False
        return is_reached(entry.ended, number)

    def next_end(self, producer_id: int) -> int:
        """The number of the producer's next end marker here."""
        entry = self._entries.get(producer_id)
        return (entry.ended + 1) & NUMBER_MAX if entry is not None else 0

    def last_end(self, producer_id: int) -> int:
        """The number of the producer's last end marker here; -1 if there is none."""
        entry = self._entries.get(producer_id)
        return entry.ended if entry is not None else -1

    def next_sequence(self, producer_id: int, epoch: int) -> int:
        entry = self._entries.get(producer_id)
        return entry.next_sequence if entry is not None and entry.epoch == epoch else 0

    def last_offsets(self) -> frozenset[int]:
        """First offset of the last batch of each producer."""
        return frozenset(entry.last_offset for entry in self._entries.values())

    def expire(self, before_ms: int, keep: Collection[int]) -> bool:
        """Forgets the producers not seen since `before_ms`, except those in `keep`. True if it forgot any."""
        gone = [id for id, entry in self._entries.items() if entry.seen_ms < before_ms and id not in keep]
        for producer_id in gone:
            del self._entries[producer_id]
        self.complete = self.complete and not gone
        return bool(gone)

    def __len__(self) -> int:
        return len(self._entries)

    def active(self) -> Iterable[tuple[int, int, int, int]]:
        """For each producer: its id, its epoch, the last sequence number of that epoch (-1: none), and when it was last
        seen."""
        return [
            (id, entry.epoch, entry.batches[-1].last_sequence if entry.batches else -1, entry.seen_ms)
            for id, entry in self._entries.items()
        ]

    def to_json(self) -> Any:
        return [
            [id, entry.epoch, entry.batches, entry.last_offset, entry.seen_ms, entry.ended, entry.ended_epoch]
            for id, entry in self._entries.items()
        ]

    @classmethod
    def from_json(cls, content: Iterable[Any], *, complete: bool) -> ProducerStates:
        states = cls(complete=complete)
        for producer_id, epoch, batches, *rest in content:
            sequenced = [SequencedBatch(*batch) for batch in batches]
            states._entries[producer_id] = ProducerEntry(epoch, sequenced, *rest)
        return states


def is_reached(ended: int, number: int) -> bool:
    """Whether a producer that has ended the transaction `ended` has also ended `number`. Numbers wrap around to 0 after
    2**31 - 1."""
    return (ended - number) & NUMBER_MAX <= NUMBER_MAX // 2


def fenced(producer: int | str, epoch: int, newer: int) -> ProducerFenced:
    return ProducerFenced(
        f'producer "{producer}" with epoch {epoch} was replaced by one with epoch {newer}',
        hint="Another process or thread runs under the same transactional id. Stop using this producer.",
    )
