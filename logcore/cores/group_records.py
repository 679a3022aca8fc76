"""The durable state of groups: the records of the topic `__consumer_offsets`, except the offsets themselves.

A group is the fold of its records: the last record of a key counts, and None removes the key.
`group_record_bytes.py` encodes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from ..client import TopicPartition
from .group_messages import Protocol


class Kind(IntEnum):
    """What a record is about. The numbers are the versions of Kafka's keys."""

    CLASSIC = 2  # a group whose members assign, with its members
    EPOCH = 3  # this and the following: groups whose coordinator assigns
    TOPICS = 4
    MEMBER = 5
    TARGET_EPOCH = 6
    TARGET = 7
    CURRENT = 8
    SHARE_MEMBER = 10  # this and the following: share groups
    SHARE_EPOCH = 11
    SHARE_CURRENT = 14


class GroupKey(NamedTuple):
    """`member` is empty for a record about the group as a whole."""

    kind: Kind
    group: str
    member: str = ""


@dataclass(frozen=True, slots=True)
class ClassicMember:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class ClassicGroup:
    """`since_ms`: if the group has no members, since when; the writer of the record sets it to the time of day."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader_id: str | None
    members: tuple[ClassicMember, ...]
    since_ms: int = -1


@dataclass(frozen=True, slots=True)
class Epoch:
    """The epoch of a group, or of its target."""

    epoch: int


@dataclass(frozen=True, slots=True)
class ReadTopics:
    """The partition counts of the topics that the group reads, as of its epoch."""

    counts: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class ClassicMetadata:
    """The protocols of a classic member in a group whose coordinator assigns."""

    session_timeout_ms: int
    protocols: tuple[Protocol, ...]


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """`pattern`: None if the member only names topics. `classic`: None if it sends consumer heartbeats (KIP-848)."""

    instance_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    pattern: str | None
    rebalance_timeout_ms: int
    classic: ClassicMetadata | None = None


@dataclass(frozen=True, slots=True)
class ShareMemberRecord:
    client_id: str
    client_host: str
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Target:
    places: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Current:
    """What a member reads, and which partitions it was told to give up."""

    epoch: int
    previous_epoch: int
    assigned: frozenset[TopicPartition]
    revoking: frozenset[TopicPartition]


GroupValue = ClassicGroup | Epoch | ReadTopics | MemberRecord | ShareMemberRecord | Target | Current


class GroupRecord(NamedTuple):
    key: GroupKey
    value: GroupValue | None
