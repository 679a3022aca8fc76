"""The records of the transaction log, one state per transactional id. `transactions.py` folds them."""

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

    `first_offset` is UNWRITTEN for a partition that was announced: it may be on another node, or get no records.
    """

    partition: TopicPartition
    topic_id: str
    first_offset: int


class LastEnded(NamedTuple):
    """The producer that ended a transaction and got a new epoch for it. It may retry if the answer was lost."""

    producer_id: int
    epoch: int
    committed: bool


GroupOffsets = Mapping[str, Mapping[TopicPartition, CommittedOffset]]


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    """The state of a transactional id; the last record in the log counts.

    `number` counts the ends of the id's transactions. `ended`: how the last one ended, if that raised the epoch.
    `successor`: the producer id after the commit, if the epochs of this one are used up; else -1. `timeout_ms`: how
    long a transaction may be open, 0: forever. `follows`: the producer id and epoch that asked for this one.
    Invariant: participants and offsets are empty unless the transaction is open or prepared. A prepared abort has only
    the names of the groups, without offsets.
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
    """The id was unused for long and is removed; its next producer gets a new producer id."""

    transactional_id: str


Entry = TransactionRecord | Forgotten


class Identity(NamedTuple):
    transactional_id: str
    producer_id: int
    epoch: int
