"""What the transaction log says of a transactional id: the records that `transactions.py` folds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from ..client import TopicPartition
from .group_messages import CommittedOffset


class TransactionState(StrEnum):
    EMPTY = "empty"
    ONGOING = "ongoing"
    PREPARE_COMMIT = "prepare_commit"
    PREPARE_ABORT = "prepare_abort"
    COMPLETE_COMMIT = "complete_commit"


UNWRITTEN: Final = -1


class Participant(NamedTuple):
    """A partition that a transaction writes to. Topic id and first offset tell the transaction from a later one.

    `first_offset` is UNWRITTEN where the partition was announced: it may be on another node, or get nothing at all.
    """

    partition: TopicPartition
    topic_id: str
    first_offset: int


class LastEnded(NamedTuple):
    """The producer that ended a transaction and got a new epoch for it: it may ask again, if the answer was lost."""

    producer_id: int
    epoch: int
    committed: bool


GroupOffsets = Mapping[str, Mapping[TopicPartition, CommittedOffset]]


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    """What is known of a transactional id; the last one in the log counts.

    `number` counts the ends of the id's transactions. `ended`: how the last one ended, where that raised the epoch.
    `successor`: the producer id that comes after the commit, where epochs of this one are used up; -1 otherwise.
    `timeout_ms`: how long a transaction may be open, 0 for ever. `follows`: the id and epoch that asked for this one.
    Invariant: participants and offsets are empty unless the transaction is open or prepared. An aborted one that is
    prepared names the groups only.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    state: TransactionState
    number: int = 0
    participants: tuple[Participant, ...] = ()
    offsets: GroupOffsets = field(default_factory=dict)
    ended: LastEnded | None = None
    successor: int = -1
    timeout_ms: int = 0
    follows: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class ProducerIdRange:
    """All producer ids below `end` may be in use: an entry of version 0.1."""

    end: int


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Nobody has used the id for long; its next producer gets a new producer id."""

    transactional_id: str


Entry = TransactionRecord | Forgotten


class Identity(NamedTuple):
    transactional_id: str
    producer_id: int
    epoch: int
