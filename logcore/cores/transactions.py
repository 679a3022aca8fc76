"""The transaction coordinator as a pure state machine: messages go in, decisions come out. `transaction_shard.py` acts.

One record decides a transaction, in state PREPARE_COMMIT or PREPARE_ABORT. Before that record, another coordinator can
continue the transaction, because open transactions have records, too. After it, the transaction has ended. Markers and
committed offsets follow from the record, and when all are written, another record confirms it.

A producer may ask that the end of a transaction raises its epoch (KIP-890). Then markers have the new epoch, so that
late requests of the old transaction cannot begin or join another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, assert_never

from ..client import TopicPartition
from ..errors import InvalidTransactionState, ProducerFenced
from ..storage.producer_state import fenced
from .group_messages import CommittedOffset
from .transaction_records import (
    Entry,
    Forgotten,
    GroupOffsets,
    Identity,
    LastEnded,
    Participant,
    TransactionRecord,
    TransactionState,
)
from .transaction_steps import (
    Abort,
    Aborted,
    Commit,
    Finished,
    Include,
    Message,
    NewProducer,
    OffsetsStep,
    Outcome,
    Ready,
)

EPOCH_MAX: Final = 32766


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id, and the partitions of its transaction, if one is open or prepared.

    `open_ms`: how long it has been open here; -1: none is open. `timeout_ms`: how long it may be open; 0: forever.
    """

    identity: Identity
    state: TransactionState
    partitions: tuple[TopicPartition, ...]
    open_ms: int = -1
    timeout_ms: int = 0


class Standing(NamedTuple):
    """The producer that has an id, and the state of its transaction.

    `ending`: the transaction that is decided but has not all its markers; `committing`: whether it is a commit.
    `partitions` and `groups`: of the transaction that is open or prepared.
    """

    record: TransactionRecord
    state: TransactionState
    ending: TransactionRecord | None
    partitions: tuple[TopicPartition, ...]
    groups: tuple[str, ...]
    committing: bool

    def check_open_with(self, group: str) -> None:
        """Raises `InvalidTransactionState` if the open transaction does not include the group: clients announce groups
        first, so this request is a late copy from the previous transaction (KIP-890)."""
        if self.state is not TransactionState.ONGOING or group not in self.groups:
            text = f'the group "{group[:100]}" is not a part of an open transaction'
            raise InvalidTransactionState(text, hint="Add the group to the transaction first.")


@dataclass(slots=True)
class _Known:
    """State of one id.

    Invariant: `participants` and `offsets` belong to the transaction that is open or prepared. At most one of
    `unfinished` and `aborted` is set. While one is set, no transaction begins: the partitions would count its records
    as a part of the old one.
    """

    record: TransactionRecord
    state: TransactionState
    participants: dict[TopicPartition, Participant] = field(default_factory=dict)
    offsets: dict[str, dict[TopicPartition, CommittedOffset]] = field(default_factory=dict)
    unfinished: TransactionRecord | None = None  # prepared, but its markers are not all written
    aborted: TransactionRecord | None = None  # aborted, but its markers are not all written


class Coordinator:
    """State: the state of each id from the transaction log, and the transactions that are open now.

    Invariant: a producer id belongs to one transactional id, and an id's epoch never decreases.
    """

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self._next_producer_id = 0
        self._producer_ids_end = 0

    def apply(self, entry: Entry) -> None:
        """Applies an entry of the transaction log. All entries are applied, in order, before the first step: the
        coordinator is their fold."""
        match entry:
            case TransactionRecord():
                self._known[entry.transactional_id] = _known_by(entry)
            case Forgotten(transactional_id):
                self._known.pop(transactional_id, None)
            case _:
                assert_never(entry)

    def unfinished(self) -> list[Outcome]:
        """Commits that are decided, but whose markers and offsets are not all written."""
        return [Outcome(known.unfinished, True) for known in self._known.values() if known.unfinished]

    def given_up(self) -> list[Outcome]:
        """Aborts whose markers are not all written."""
        return [Outcome(known.aborted, False) for known in self._known.values() if known.aborted]

    def forget(self, transactional_id: str) -> tuple[Entry, ...]:
        """Removes an unused id. Returns the entry to write; none if a transaction of the id has not ended."""
        known = self._known.get(transactional_id)
        if known is None or known.state is TransactionState.ONGOING or known.unfinished or known.aborted:
            return ()
        gone = Forgotten(transactional_id)
        self.apply(gone)
        return (gone,)

    def standing(self, transactional_id: str) -> Standing | None:
        """None for an id that was never acquired, or that is forgotten."""
        known = self._known.get(transactional_id)
        if known is None:
            return None
        ending = known.unfinished or known.aborted
        partitions, groups = tuple(known.participants), tuple(known.offsets)
        return Standing(known.record, known.state, ending, partitions, groups, bool(known.unfinished))

    def knows(self, transactional_id: str) -> bool:
        """Whether it has a standing."""
        return transactional_id in self._known

    def ending_of(self, transactional_id: str) -> TransactionRecord | None:
        """`Standing.ending` of the id. Each request needs it, and building a `Standing` takes ten calls."""
        known = self._known.get(transactional_id)
        return None if known is None else known.unfinished or known.aborted

    def is_current(self, identity: Identity) -> bool:
        """Whether this is the `current` identity of its id."""
        known = self._known.get(identity.transactional_id)
        if known is None:
            return False
        record = known.unfinished or known.record
        if record.successor >= 0:
            return _identity_after(record) == identity
        return record.producer_id == identity.producer_id and record.epoch == identity.epoch

    def current(self, transactional_id: str) -> Identity | None:
        """The identity that has the id, or will have it once a decided transaction is fully written."""
        known = self._known.get(transactional_id)
        return None if known is None else _identity_after(known.unfinished or known.record)

    def standings(self) -> list[Standing]:
        return [standing for id in self._known if (standing := self.standing(id)) is not None]

    def step(self, message: Message) -> Ready:
        """Raises `ProducerFenced`, or `InvalidTransactionState` for a message that is not allowed in this state."""
        match message:
            case NewProducer():
                return self._new_producer(message)
            case Include(identity, participants, groups):
                return self._include(self._of(identity), participants, groups)
            case OffsetsStep(identity, group, offsets):
                known = self._of(identity)
                _check_open(known)
                known.offsets.setdefault(group, {}).update(offsets)
                return Ready(append=(_open_record(known),))
            case Commit(identity, raises_epoch, offsets):
                asked_again = raises_epoch and self._asked_again(identity, committed=True)
                if asked_again:
                    return asked_again
                known = self._of(identity)
                if offsets is not None:
                    self._add_offsets(known, offsets)
                return self._commit(known, raises_epoch=raises_epoch)
            case Abort(identity, raises_epoch):
                if raises_epoch:
                    return self._asked_again(identity, committed=False) or self._abort_and_raise(self._of(identity))
                known = self._of(identity)
                if known.unfinished is not None:
                    _check_open(known)
                ends = known.state is TransactionState.ONGOING or known.aborted is not None
                return self._abort(known) if ends else Ready()
            case Finished(transactional_id):
                return self._finish(self._known[transactional_id])
            case Aborted(transactional_id):
                return self._over(self._known[transactional_id])
            case _:
                assert_never(message)

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

    def _include(self, known: _Known, participants: Iterable[Participant], groups: Iterable[str]) -> Ready:
        begins = known.state is not TransactionState.ONGOING
        if begins:
            self._begin(known)
            known.record = replace(known.record, follows=None)
        size = len(known.participants) + len(known.offsets)
        for participant in participants:
            known.participants.setdefault(participant.partition, participant)
        for group in groups:
            known.offsets.setdefault(group, {})
        grew = len(known.participants) + len(known.offsets) > size
        return Ready(append=(_open_record(known),)) if begins or grew else Ready()

    def _new_producer(self, asked: NewProducer) -> Ready:
        transactional_id = asked.transactional_id
        known = self._known.get(transactional_id)
        if known is None or known.record.epoch >= EPOCH_MAX:
            producer_id, epoch = self._allocate(), 0
        else:
            producer_id, epoch = known.record.producer_id, known.record.epoch + 1
        outcome = None
        if known is not None and known.unfinished is not None:
            # The prepared transaction is completed under the old record, which the new one would hide.
            return Ready(outcome=Outcome(known.unfinished, True))
        if known is not None and (known.state is TransactionState.ONGOING or known.aborted is not None):
            outcome = Outcome(_given_up(known), False)
        record = TransactionRecord(
            transactional_id,
            producer_id,
            epoch,
            TransactionState.EMPTY,
            known.record.number if known else 0,
            timeout_ms=asked.timeout_ms,
            follows=asked.follows,
        )
        if outcome is not None and outcome.record.producer_id == producer_id:
            outcome = replace(outcome, record=replace(outcome.record, epoch=epoch))  # also fences in the partitions
        aborted = outcome.record if outcome else None
        known = self._known[transactional_id] = _Known(record, TransactionState.EMPTY, aborted=aborted)
        identity = Identity(transactional_id, producer_id, epoch)
        return Ready((_noted(known),), outcome, identity)

    @property
    def lacks_ids(self) -> bool:
        """Whether `take_ids` must come before the next step that needs a producer id."""
        return self._next_producer_id >= self._producer_ids_end

    def take_ids(self, first: int, end: int) -> None:
        """In: producer ids that are given to no other coordinator, now or later. No entry is written for them."""
        self._next_producer_id, self._producer_ids_end = first, end

    def _allocate(self) -> int:
        assert not self.lacks_ids
        self._next_producer_id += 1
        return self._next_producer_id - 1

    def _begin(self, known: _Known) -> None:
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

    def _add_offsets(self, known: _Known, offsets: Mapping[str, Mapping[TopicPartition, CommittedOffset]]) -> None:
        """Adds offsets that come with the commit itself; the transaction may consist of them alone."""
        if known.state is not TransactionState.ONGOING:
            self._begin(known)
        for group, sent in offsets.items():
            known.offsets.setdefault(group, {}).update(sent)

    def _commit(self, known: _Known, *, raises_epoch: bool) -> Ready:
        _check_open(known)
        prepared = replace(_open_record(known), state=TransactionState.PREPARE_COMMIT, number=known.record.number + 1)
        if raises_epoch:
            prepared = self._raised(prepared, committed=True)
        known.unfinished = prepared
        known.state = TransactionState.PREPARE_COMMIT
        return Ready((prepared,), Outcome(prepared, True), _identity_after(prepared) if raises_epoch else None)

    def _raised(self, record: TransactionRecord, *, committed: bool) -> TransactionRecord:
        """The record with the next epoch, which the markers have. If that is the last epoch, no producer gets it, and
        the successor has a new producer id."""
        ended = LastEnded(record.producer_id, record.epoch, committed)
        successor = self._allocate() if record.epoch >= EPOCH_MAX else -1
        return replace(record, epoch=record.epoch + 1, ended=ended, successor=successor)

    def _asked_again(self, identity: Identity, *, committed: bool) -> Ready | None:
        """The answer to a retry by the producer that already ended this transaction; None if this is no retry."""
        known = self._known.get(identity.transactional_id)
        ended = LastEnded(identity.producer_id, identity.epoch, committed)
        if known is None:
            return None
        if known.unfinished is not None and known.unfinished.ended == ended:
            return Ready(outcome=Outcome(known.unfinished, True), identity=_identity_after(known.unfinished))
        if known.record.ended != ended or known.state is TransactionState.ONGOING:
            return None
        return Ready(identity=_identity_after(known.record)) if committed else _abort_of(known)

    def _abort_and_raise(self, known: _Known) -> Ready:
        """Aborts and raises the epoch, even if nothing is open: then a late request cannot open a transaction."""
        if known.unfinished is not None:
            _check_open(known)
        ends = known.aborted is not None or known.state is TransactionState.ONGOING
        open_one = _given_up(known) if ends else None
        raised = self._raised(known.record, committed=False)
        if open_one is not None:
            known.aborted = replace(open_one, epoch=raised.epoch)
        known.record = replace(_successor(raised), state=TransactionState.EMPTY, participants=(), offsets={})
        known.state = TransactionState.EMPTY
        return _abort_of(known)

    def _abort(self, known: _Known) -> Ready:
        outcome = Outcome(_given_up(known), False)
        known.state = TransactionState.EMPTY
        return Ready((_noted(known),), outcome)

    def _finish(self, known: _Known) -> Ready:
        assert known.unfinished is not None
        known.record, known.unfinished = _completed(_successor(known.unfinished)), None
        known.state = TransactionState.COMPLETE_COMMIT
        return Ready((known.record,))

    def _over(self, known: _Known) -> Ready:
        known.aborted = None
        known.record = replace(known.record, state=TransactionState.EMPTY)
        return Ready((known.record,))


def _abort_of(known: _Known) -> Ready:
    """The answer to an abort; it is the same for every retry."""
    outcome = Outcome(known.aborted, False) if known.aborted is not None else None
    return Ready((_noted(known),), outcome, _identity_after(known.record))


def _noted(known: _Known) -> TransactionRecord:
    """The entry of an id without an open transaction; it includes the abort whose markers are to be written, if any."""
    if known.aborted is None:
        return known.record
    after = known.record
    successor = after.producer_id if after.producer_id != known.aborted.producer_id else -1
    offsets: GroupOffsets = {group: {} for group in known.aborted.offsets}
    prepared = replace(known.aborted, state=TransactionState.PREPARE_ABORT, offsets=offsets, successor=successor)
    return replace(prepared, ended=after.ended, timeout_ms=after.timeout_ms, follows=after.follows)


def _known_by(record: TransactionRecord) -> _Known:
    prepared = record.state is TransactionState.PREPARE_COMMIT
    known = _Known(record, record.state, unfinished=record if prepared else None)
    if record.state is TransactionState.PREPARE_ABORT:
        known.record = replace(_completed(_successor(record)), state=TransactionState.EMPTY)
        known.state, known.aborted = TransactionState.EMPTY, replace(record, successor=-1)
    if record.state is TransactionState.ONGOING:
        known.record = replace(_completed(record), state=TransactionState.EMPTY)
        known.participants = {participant.partition: participant for participant in record.participants}
        known.offsets = {group: dict(offsets) for group, offsets in record.offsets.items()}
    return known


def _given_up(known: _Known) -> TransactionRecord:
    """The transaction to abort: the open one, or the one whose markers are not all written."""
    if known.aborted is None:
        known.record = replace(known.record, number=known.record.number + 1)
        known.aborted = _open_record(known)
    return known.aborted


def _open_record(known: _Known) -> TransactionRecord:
    offsets = {group: dict(offsets) for group, offsets in known.offsets.items()}
    participants = tuple(known.participants.values())
    return replace(known.record, state=TransactionState.ONGOING, participants=participants, offsets=offsets)


def _successor(record: TransactionRecord) -> TransactionRecord:
    """The record with which the producer continues."""
    return record if record.successor < 0 else replace(record, producer_id=record.successor, epoch=0, successor=-1)


def _identity_after(record: TransactionRecord) -> Identity:
    after = _successor(record)
    return Identity(after.transactional_id, after.producer_id, after.epoch)


def _completed(record: TransactionRecord) -> TransactionRecord:
    return replace(record, state=TransactionState.COMPLETE_COMMIT, participants=(), offsets={})


def _check_open(known: _Known) -> None:
    if known.state is not TransactionState.ONGOING:
        raise InvalidTransactionState("no transaction is open", hint="Call begin() first.")
