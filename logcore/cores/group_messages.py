"""What members ask of a consumer group, and what they are told: the messages of `groups.py`. Behaviour lives there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Literal, NamedTuple

from millstream.errors import LogError

from ..client import TopicPartition


class CommitNote(NamedTuple):
    """What a consumer wants to find again with an offset. `leader_epoch`: of the record before the offset, by which it
    sees that the log was cut off since; -1 if unknown."""

    metadata: str = ""
    leader_epoch: int = -1


NO_NOTE: Final = CommitNote()


class CommittedOffset(NamedTuple):
    """The first two as in `CommitNote`; `at_ms`: when it was committed, -1 if unknown."""

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
    """Why a member is refused; each has the name of the protocol's error code."""

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
    """In: `fault`: what a coordinator answered to the request to delete the group. Raises `LogError`."""
    if fault not in (GroupFault.NONE, GroupFault.NOT_FOUND):
        raise LogError(f'group "{group}" cannot be forgotten: {fault.value.replace("_", " ")}')


MEMBERS_MAX: Final = 10_000
"""Of one group."""
SESSION_TIMEOUT_MS_MIN: Final = 1_000
SESSION_TIMEOUT_MS_MAX: Final = 30 * 60 * 1000


def is_session_timeout(timeout_ms: int) -> bool:
    """Whether a member may ask to be taken for alive that long without a word."""
    return SESSION_TIMEOUT_MS_MIN <= timeout_ms <= SESSION_TIMEOUT_MS_MAX


SESSION_MS: Final = 15_000
HEARTBEAT_MS: Final = 1_000
"""Of members of groups whose coordinator assigns, where nothing else is set."""


@dataclass(frozen=True, slots=True)
class Protocol:
    """A way of assigning that a member understands, and what it tells the leader for it (its subscription)."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinGroup:
    """`member_id` is empty for who is not a member yet; `new_member_id` is then taken, if it is let in.

    `asks_twice`: a new member gets its id first and must join with it, so that a lost answer leaves no ghost behind.
    `knows_skipping`: a leader may be told that the assignment stays as it is.
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
    """`assignments` come from the leader; the others send none. No protocol: the client is too old to say."""

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
    """A member that goes; a static one may be named by its instance alone."""

    member_id: str
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class LeaveGroup:
    group: str
    members: tuple[Leaving, ...]


@dataclass(frozen=True, slots=True)
class CheckCommit:
    """Asks whether this member may commit offsets now. Who is in no group has generation -1 and no member id."""

    group: str
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None
    transactional: bool = False


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeat:
    """To a group whose coordinator assigns. `epoch`: 0 joins, -1 leaves, -2 leaves for a while.

    `topics`, `pattern`, `owned`: None where they are what they were when the member said so last. `readable`: of the
    topics that there are now, those that the member may read; None: all.
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
    session_ms: int = SESSION_MS  # what is set for the group: silent for so long, a member is out
    heartbeat_ms: int = HEARTBEAT_MS  # and how often it is to say that it lives
    readable: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class ConsumerBeat:
    """The answer. `assignment` is None where it has not changed."""

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
    """Only the leader hears of the other members."""

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
    """To a heartbeat or a commit."""

    fault: GroupFault = GroupFault.NONE


@dataclass(frozen=True, slots=True)
class Left:
    """In the order in which they were named."""

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
    """`kind`: who assigns, the members (classic) or the coordinator (consumer, share); only the latter have member
    epochs, and consumer groups targets. `generation` is the epoch of those. A member of a consumer group that joins and
    syncs is classic.
    """

    group: str
    state: GroupState
    protocol_type: str = ""
    protocol: str = ""
    generation: int = -1
    members: tuple[MemberDescription, ...] = ()
    kind: Literal["classic", "consumer", "share"] = "classic"
