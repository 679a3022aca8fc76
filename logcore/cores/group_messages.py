"""Requests of members of a group, and the answers: the messages of `groups.py`, which has the behavior."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Literal, NamedTuple

from millstream.errors import LogError

from ..client import TopicPartition


class CommitNote(NamedTuple):
    """What a consumer stores with an offset. `leader_epoch`: of the record before the offset, so that the consumer can
    detect that the log was truncated; -1 if unknown."""

    metadata: str = ""
    leader_epoch: int = -1


NO_NOTE: Final = CommitNote()


class CommittedOffset(NamedTuple):
    """`metadata` and `leader_epoch` as in `CommitNote`; `at_ms`: when it was committed, -1 if unknown."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1
    at_ms: int = -1


class GroupState(StrEnum):
    """The names are those that Kafka's tools show."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"  # waits for members to join
    COMPLETING = "CompletingRebalance"  # waits for the leader's assignment
    STABLE = "Stable"
    RECONCILING = "Reconciling"  # members are giving up and taking on partitions
    DEAD = "Dead"  # there is no such group


class GroupFault(StrEnum):
    """Why a member is refused. The values are the names of the protocol's error codes."""

    NONE = "none"
    UNKNOWN_MEMBER = "unknown_member_id"
    ILLEGAL_GENERATION = "illegal_generation"
    REBALANCING = "rebalance_in_progress"
    INCONSISTENT_PROTOCOL = "inconsistent_group_protocol"
    FENCED_INSTANCE = "fenced_instance_id"
    MEMBER_ID_REQUIRED = "member_id_required"
    INVALID_GROUP = "invalid_group_id"
    INVALID_SESSION_TIMEOUT = "invalid_session_timeout"
    GROUP_FULL = "group_max_size_reached"
    NOT_EMPTY = "non_empty_group"
    NOT_FOUND = "group_id_not_found"
    SUBSCRIBED = "group_subscribed_to_topic"
    FENCED_EPOCH = "fenced_member_epoch"
    STALE_EPOCH = "stale_member_epoch"
    UNRELEASED_INSTANCE = "unreleased_instance_id"
    UNSUPPORTED_ASSIGNOR = "unsupported_assignor"
    INVALID_PATTERN = "invalid_regular_expression"
    INVALID_REQUEST = "invalid_request"
    SHUTTING_DOWN = "coordinator_not_available"
    LOADING = "coordinator_load_in_progress"
    NOT_COORDINATOR = "not_coordinator"


def check_forgotten(group: str, fault: GroupFault) -> None:
    """In: `fault`: a coordinator's answer to the request to delete the group. Raises `LogError`."""
    if fault not in (GroupFault.NONE, GroupFault.NOT_FOUND):
        raise LogError(f'group "{group}" cannot be forgotten: {fault.value.replace("_", " ")}')


MEMBERS_MAX: Final = 10_000
"""The largest number of members of one group."""
SESSION_TIMEOUT_MS_MIN: Final = 1_000
SESSION_TIMEOUT_MS_MAX: Final = 30 * 60 * 1000


def is_session_timeout(timeout_ms: int) -> bool:
    """Whether a member may choose this session timeout."""
    return SESSION_TIMEOUT_MS_MIN <= timeout_ms <= SESSION_TIMEOUT_MS_MAX


SESSION_MS: Final = 15_000
HEARTBEAT_MS: Final = 1_000
"""Defaults for members of groups whose coordinator assigns."""


@dataclass(frozen=True, slots=True)
class Protocol:
    """An assignor that a member supports, and the member's data for the leader (its subscription)."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinGroup:
    """`member_id` is empty for a new member, which gets `new_member_id` if it is admitted.

    `asks_twice`: a new member first gets its id and must join again with it, so a lost answer leaves no dead member.
    `knows_skipping`: the client, as a leader, understands that the assignment stays as it is.
    """

    group: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[Protocol, ...]
    new_member_id: str
    asks_twice: bool = False
    knows_skipping: bool = False


@dataclass(frozen=True, slots=True)
class Sync:
    """Only the leader sends `assignments`. `protocol_type`, `protocol`: None from clients too old to send them."""

    group: str
    generation: int
    member_id: str
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    group: str
    generation: int
    member_id: str
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Leaving:
    """A member that leaves. A static member may be named by its instance id alone."""

    member_id: str
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class LeaveGroup:
    group: str
    members: tuple[Leaving, ...]


@dataclass(frozen=True, slots=True)
class CheckCommit:
    """Asks whether this member may commit offsets now. A client outside the group sends generation -1, no member id."""

    group: str
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None
    transactional: bool = False


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeat:
    """A heartbeat to a group whose coordinator assigns. `epoch`: 0 joins, -1 leaves, -2 leaves temporarily.

    `topics`, `pattern`, `owned`: None means unchanged since the member last sent them. `readable`: the existing topics
    that the member may read; None: all.
    """

    group: str
    member_id: str
    epoch: int
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    topics: tuple[str, ...] | None
    pattern: str | None
    owned: frozenset[TopicPartition] | None
    assignor: str | None = None
    session_ms: int = SESSION_MS  # setting of the group: a member that is silent for this long is removed
    heartbeat_ms: int = HEARTBEAT_MS  # setting of the group: the interval of heartbeats
    readable: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class ConsumerBeat:
    """The answer. `assignment` is None if it has not changed."""

    fault: GroupFault
    member_id: str = ""
    epoch: int = 0
    heartbeat_ms: int = 0
    assignment: tuple[TopicPartition, ...] | None = None


Message = JoinGroup | Sync | Heartbeat | LeaveGroup | CheckCommit


@dataclass(frozen=True, slots=True)
class JoinedMember:
    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class Joined:
    """Only the leader gets the list of members."""

    fault: GroupFault
    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader_id: str = ""
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class Synced:
    fault: GroupFault
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class GroupAnswer:
    """The answer to a heartbeat or a commit."""

    fault: GroupFault = GroupFault.NONE


@dataclass(frozen=True, slots=True)
class Left:
    """`members`: in the order of the request."""

    fault: GroupFault
    members: tuple[tuple[Leaving, GroupFault], ...] = ()


Reply = Joined | Synced | GroupAnswer | Left


@dataclass(frozen=True, slots=True)
class Answered:
    """The reply to the message that came with this ticket."""

    ticket: int
    reply: Reply


@dataclass(frozen=True, slots=True)
class MemberDescription:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes
    epoch: int = -1
    target: bytes = b""
    is_classic: bool = False


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """`kind`: who assigns: the members (classic) or the coordinator (consumer, share). Only the latter two have member
    epochs, and their `generation` is the group's epoch. Only consumer groups have targets. A member of a consumer group
    that joins and syncs is classic.
    """

    group: str
    state: GroupState
    protocol_type: str = ""
    protocol: str = ""
    generation: int = -1
    members: tuple[MemberDescription, ...] = ()
    kind: Literal["classic", "consumer", "share"] = "classic"
