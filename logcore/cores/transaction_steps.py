"""What goes into the transaction coordinator and what comes out of it: the messages of `transactions.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..client import TopicPartition
from .group_messages import CommittedOffset
from .transaction_records import Entry, Identity, Participant, TransactionRecord


@dataclass(frozen=True, slots=True)
class NewProducer:
    """Somebody takes the id: fences and ends what was before. The other fields are those of the record."""

    transactional_id: str
    timeout_ms: int = 0
    follows: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Include:
    """The transaction, which begins where none is open, is going to write to these, and to commit offsets of these
    groups."""

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
    """`raises_epoch`: the producer goes on with the identity that it gets. Asked again, it is given that once more.
    `offsets`: by group, all that the producer did not say before; where none is open, it has just begun one."""

    identity: Identity
    raises_epoch: bool = False
    offsets: Mapping[str, Mapping[TopicPartition, CommittedOffset]] | None = None


@dataclass(frozen=True, slots=True)
class Abort:
    """The same; nothing needs to be open."""

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
    """Ends a transaction: a marker in each participant, and the offsets of the groups if it is committed."""

    record: TransactionRecord
    committed: bool


@dataclass(frozen=True, slots=True)
class Ready:
    """What the shell does now, in this order."""

    append: tuple[Entry, ...] = ()  # to the transaction log; the rest follows when that is committed
    outcome: Outcome | None = None
    identity: Identity | None = None  # the answer to NewProducer, and where a transaction's end raises the epoch
