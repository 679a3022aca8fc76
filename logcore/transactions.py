"""The transaction coordinator as a pure state machine: messages go in, decisions come out. `coordinator.py` acts.

A commit has one durable step of its own, the record in state PREPARE_COMMIT: before it, a transaction that a crash
interrupts is aborted; after it, it is completed. Markers and committed offsets follow from the record and are written
without waiting for the disk. So the coordinator never asks for COMPLETE_COMMIT to be written before the partitions
that hold those markers were synced, which the next commit of the same producer does on its way. An abort needs no
record: what is not prepared is aborted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, NamedTuple, assert_never

from .client import TopicPartition
from .errors import InvalidTransactionState, ProducerFenced
from .producer_state import fenced

_EPOCH_MAX: Final = 32766
PRODUCER_ID_BLOCK: Final = 1000


class TransactionState(StrEnum):
    EMPTY = "empty"
    ONGOING = "ongoing"
    PREPARE_COMMIT = "prepare_commit"
    COMPLETE_COMMIT = "complete_commit"


_UNDECIDED: Final = (TransactionState.ONGOING, TransactionState.PREPARE_COMMIT)


class Participant(NamedTuple):
    """A partition that a transaction wrote to. Topic id and first offset tell the transaction from a later one."""

    partition: TopicPartition
    topic_id: str
    first_offset: int


GroupOffsets = Mapping[str, Mapping[TopicPartition, int]]


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    """What is known of a transactional id; the last one in the log counts.

    `number` counts the commits of the id. Invariant: participants and offsets are empty unless PREPARE_COMMIT.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    state: TransactionState
    number: int = 0
    participants: tuple[Participant, ...] = ()
    offsets: GroupOffsets = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProducerIds:
    """All producer ids below `end` may be in use."""

    end: int


Entry = TransactionRecord | ProducerIds


class Identity(NamedTuple):
    transactional_id: str
    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id, and what its transaction has written to, if one is open or prepared."""

    identity: Identity
    state: TransactionState
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class NewProducer:
    """Somebody takes the id: fences and ends what was before."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class NewProducerId:
    """Somebody wants to write batches that are stored once, but no transactions."""


@dataclass(frozen=True, slots=True)
class Begin:
    identity: Identity


@dataclass(frozen=True, slots=True)
class CheckWrite:
    """Asks whether the producer may write now."""

    identity: Identity


@dataclass(frozen=True, slots=True)
class Wrote:
    """The producer has written to a partition."""

    identity: Identity
    participant: Participant


@dataclass(frozen=True, slots=True)
class SendOffsets:
    identity: Identity
    group: str
    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Commit:
    identity: Identity


@dataclass(frozen=True, slots=True)
class Abort:
    identity: Identity


@dataclass(frozen=True, slots=True)
class Finished:
    """All markers and offsets of the id's prepared transaction are written (not: durable)."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class Aborted:
    """All markers of the id's aborted transaction are written."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class Unprepared:
    """The commit failed, and its PREPARE_COMMIT is surely not in the log."""

    transactional_id: str


Message = (
    NewProducer
    | NewProducerId
    | Begin
    | CheckWrite
    | Wrote
    | SendOffsets
    | Commit
    | Abort
    | Finished
    | Aborted
    | Unprepared
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Ends a transaction: a marker in each participant, and the offsets of the groups if it is committed."""

    record: TransactionRecord
    committed: bool


@dataclass(frozen=True, slots=True)
class Ready:
    """What the shell does now, in this order."""

    sync: tuple[Participant, ...] = ()  # data and older markers: durable before anything else
    sync_offsets: bool = False  # likewise the committed offsets of the commit before
    append: tuple[Entry, ...] = ()  # to the transaction log, durable before going on
    outcome: Outcome | None = None
    identity: Identity | None = None  # the answer to NewProducer


@dataclass(slots=True)
class _Known:
    """State of one id.

    Invariant: `participants` and `offsets` belong to the transaction that is open or prepared. At most one of
    `unfinished` and `aborted` is there, and while it is, no transaction begins: the partitions would take what it
    writes for a part of the old one.
    """

    record: TransactionRecord
    state: TransactionState
    participants: dict[TopicPartition, Participant] = field(default_factory=dict)
    offsets: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    marked: tuple[Participant, ...] = ()  # hold markers of the last commit that may not be durable
    offsets_marked: bool = False  # likewise the committed offsets
    unfinished: TransactionRecord | None = None  # prepared, but its markers are not all written
    aborted: TransactionRecord | None = None  # given up, but its markers are not all written


class Coordinator:
    """State: what the transaction log says of each id, and the transactions that are open now.

    Invariant: a producer id belongs to one transactional id, and an id's epoch never goes back.
    """

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self._next_producer_id = 0
        self._producer_ids_end = 0

    def replay(self, entry: Entry) -> None:
        """Takes in an entry of the transaction log, in order, before the first step."""
        match entry:
            case ProducerIds(end):
                self._next_producer_id = self._producer_ids_end = max(end, self._producer_ids_end)
            case TransactionRecord():
                prepared = entry.state is TransactionState.PREPARE_COMMIT
                known = _Known(entry, entry.state, unfinished=entry if prepared else None)
                self._known[entry.transactional_id] = known
            case _:
                assert_never(entry)

    def unfinished(self) -> list[Outcome]:
        """What recovery has to complete."""
        return [Outcome(known.unfinished, True) for known in self._known.values() if known.unfinished]

    def forget(self, transactional_id: str) -> bool:
        """Lets go of an id that nobody uses; False where a transaction of it is not over. Then its next producer gets a
        new producer id."""
        known = self._known.get(transactional_id)
        if known is None:
            return False
        over = known.record.state in (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT)
        if not over or known.state is TransactionState.ONGOING or known.unfinished or known.aborted:
            return False
        del self._known[transactional_id]
        return True

    def completed(self) -> tuple[Entry, ...]:
        """Entries to write once everything in the log is durable: no prepared transaction needs completing then."""
        entries: list[Entry] = []
        for known in self._known.values():
            if known.record.state is TransactionState.PREPARE_COMMIT and known.unfinished is None:
                known.record = _completed(known.record)
                known.marked, known.offsets_marked = (), False
                entries.append(known.record)
        return tuple(entries)

    def unsettled_offsets(self, group: str) -> frozenset[TopicPartition]:
        """What a transaction that is not decided everywhere is going to commit for this group."""
        return frozenset(
            partition
            for known in self._known.values()
            if known.state in _UNDECIDED
            for partition in known.offsets.get(group, ())
        )

    def describe(self) -> list[TransactionDescription]:
        return [
            TransactionDescription(
                Identity(id, known.record.producer_id, known.record.epoch),
                known.state,
                tuple(known.participants) if known.state in _UNDECIDED else (),
            )
            for id, known in self._known.items()
        ]

    def step(self, message: Message) -> Ready:
        """Raises `ProducerFenced`, or `InvalidTransactionState` for a call that does not fit."""
        match message:
            case NewProducer(transactional_id):
                return self._new_producer(transactional_id)
            case NewProducerId():
                entries: list[Entry] = []
                identity = Identity("", self._allocate(entries), 0)
                return Ready(append=tuple(entries), identity=identity)
            case Begin(identity):
                return self._begin(self._of(identity))
            case CheckWrite(identity):
                _check_open(self._of(identity))
            case Wrote(identity, participant):
                self._of(identity).participants.setdefault(participant.partition, participant)
            case SendOffsets(identity, group, offsets):
                known = self._of(identity)
                _check_open(known)
                known.offsets.setdefault(group, {}).update(offsets)
            case Commit(identity):
                return self._commit(self._of(identity))
            case Abort(identity):
                known = self._of(identity)
                if known.unfinished is not None:
                    _check_open(known)
                ends = known.state is TransactionState.ONGOING or known.aborted is not None
                return self._abort(known) if ends else Ready()
            case Finished(transactional_id):
                self._finish(self._known[transactional_id])
            case Aborted(transactional_id):
                self._known[transactional_id].aborted = None
            case Unprepared(transactional_id):
                return self._abort(self._known[transactional_id])
            case _:
                assert_never(message)
        return Ready()

    def _of(self, identity: Identity) -> _Known:
        known = self._known.get(identity.transactional_id)
        if known is None:
            raise ProducerFenced(
                f'the transactional id "{identity.transactional_id}" was not used for long and is forgotten',
                hint="Start a new producer with this id.",
            )
        current = known.record
        if (identity.producer_id, identity.epoch) != (current.producer_id, current.epoch):
            raise fenced(identity.transactional_id, identity.epoch, current.epoch)
        return known

    def _new_producer(self, transactional_id: str) -> Ready:
        known = self._known.get(transactional_id)
        entries: list[Entry] = []
        if known is None or known.record.epoch >= _EPOCH_MAX:
            producer_id, epoch = self._allocate(entries), 0
        else:
            producer_id, epoch = known.record.producer_id, known.record.epoch + 1
        old = known.record if known else None
        record = TransactionRecord(
            transactional_id, producer_id, epoch, TransactionState.EMPTY, old.number if old else 0
        )
        outcome = None
        if known is not None and known.unfinished is not None:
            outcome = Outcome(known.unfinished, True)
        elif known is not None and (known.state is TransactionState.ONGOING or known.aborted is not None):
            outcome = Outcome(known.aborted or _open_record(known), False)
        if outcome is not None and outcome.committed:
            # The prepared transaction is completed under the old record, which the new one would hide.
            return Ready(outcome=outcome)
        if outcome is not None and old is not None and old.producer_id == producer_id:
            outcome = replace(outcome, record=replace(outcome.record, epoch=epoch))  # fences in the partitions, too
        # What the shell does may fail half-way: what must be synced, and what must be aborted, is remembered till then.
        marked, offsets_marked = (known.marked, known.offsets_marked) if known else ((), False)
        self._known[transactional_id] = _Known(
            record,
            TransactionState.EMPTY,
            marked=marked,
            offsets_marked=offsets_marked,
            aborted=outcome.record if outcome else None,
        )
        ready = Ready(sync=marked, sync_offsets=offsets_marked)
        entries.append(record)
        identity = Identity(transactional_id, producer_id, epoch)
        return replace(ready, append=tuple(entries), outcome=outcome, identity=identity)

    def _allocate(self, entries: list[Entry]) -> int:
        if self._next_producer_id >= self._producer_ids_end:
            self._producer_ids_end = self._next_producer_id + PRODUCER_ID_BLOCK
            entries.append(ProducerIds(self._producer_ids_end))
        self._next_producer_id += 1
        return self._next_producer_id - 1

    def _begin(self, known: _Known) -> Ready:
        if known.state is TransactionState.ONGOING:
            raise InvalidTransactionState("a transaction is open already", hint="Commit or abort it first.")
        if known.unfinished is not None:
            raise InvalidTransactionState(
                "the last commit is decided, but could not be written everywhere",
                hint="Take a new transactional producer: that completes it.",
            )
        if known.aborted is not None:
            raise InvalidTransactionState(
                "the last transaction was given up, but that could not be written everywhere",
                hint="Abort it once more, or take a new transactional producer.",
            )
        known.state = TransactionState.ONGOING
        known.participants, known.offsets = {}, {}
        return Ready()

    def _commit(self, known: _Known) -> Ready:
        _check_open(known)
        written = tuple(known.participants.values())
        if not written and not known.offsets:
            known.state = TransactionState.EMPTY
            return Ready()
        prepared = replace(_open_record(known), state=TransactionState.PREPARE_COMMIT, number=known.record.number + 1)
        known.unfinished = prepared
        known.state = TransactionState.PREPARE_COMMIT
        return Ready(
            sync=_united(written, known.marked),
            sync_offsets=known.offsets_marked,
            append=(prepared,),
            outcome=Outcome(prepared, True),
        )

    def _abort(self, known: _Known) -> Ready:
        if known.aborted is None:
            known.aborted = _open_record(known)
        known.unfinished = None
        known.state = TransactionState.EMPTY
        return Ready(outcome=Outcome(known.aborted, False))

    def _finish(self, known: _Known) -> None:
        assert known.unfinished is not None
        known.record, known.unfinished = known.unfinished, None
        known.marked, known.offsets_marked = known.record.participants, bool(known.record.offsets)
        known.state = TransactionState.COMPLETE_COMMIT


def _open_record(known: _Known) -> TransactionRecord:
    offsets = {group: dict(offsets) for group, offsets in known.offsets.items()}
    participants = tuple(known.participants.values())
    return replace(known.record, state=TransactionState.ONGOING, participants=participants, offsets=offsets)


def _completed(record: TransactionRecord) -> TransactionRecord:
    return replace(record, state=TransactionState.COMPLETE_COMMIT, participants=(), offsets={})


def _check_open(known: _Known) -> None:
    if known.state is not TransactionState.ONGOING:
        raise InvalidTransactionState("no transaction is open", hint="Call begin() first.")


def _united(first: Iterable[Participant], second: Iterable[Participant]) -> tuple[Participant, ...]:
    by_partition = {participant.partition: participant for participant in (*second, *first)}
    return tuple(by_partition.values())
