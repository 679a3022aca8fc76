"""The inputs and outputs of the transaction coordinator: the messages of `transactions.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..client import TopicPartition
from .group_messages import CommittedOffset
from .transaction_records import Entry, Identity, Participant, TransactionRecord


@dataclass(frozen=True, slots=True)
class NewProducer:
    """A producer acquires the id: fences the previous producer and ends its transaction. The other fields are those of
    the record."""

    transactional_id: str
    timeout_ms: int = 0
    follows: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Include:
    """The transaction will write to these partitions and commit offsets of these groups. It begins now if none is
    open."""

    identity: Identity
    participants: tuple[Participant, ...] = ()
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OffsetsStep:
    identity: Identity
    group: str
    offsets: Mapping[TopicPartition, CommittedOffset]


@dataclass(frozen=True, slots=True)
class Commit:
    """`raises_epoch`: the producer continues with the identity in the answer; a retry gets the same identity again.
    `offsets`: by group, all offsets that the producer has not sent before; if no transaction is open, one begins."""

    identity: Identity
    raises_epoch: bool = False
    offsets: Mapping[str, Mapping[TopicPartition, CommittedOffset]] | None = None


@dataclass(frozen=True, slots=True)
class Abort:
    """Like `Commit`, but no transaction needs to be open."""

    identity: Identity
    raises_epoch: bool = False


@dataclass(frozen=True, slots=True)
class Finished:
    """All markers and offsets of the id's prepared transaction are durable."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class Aborted:
    """All markers of the id's aborted transaction are written."""

    transactional_id: str


Message = NewProducer | Include | OffsetsStep | Commit | Abort | Finished | Aborted


@dataclass(frozen=True, slots=True)
class Outcome:
    """How to end a transaction: a marker in each participant, and the offsets of the groups if it is committed."""

    record: TransactionRecord
    committed: bool


@dataclass(frozen=True, slots=True)
class Ready:
    """What the shell does now, in this order."""

    append: tuple[Entry, ...] = ()  # to the transaction log; the rest follows when this is committed
    outcome: Outcome | None = None
    identity: Identity | None = None  # the answer to NewProducer, and to an end of a transaction that raises the epoch
