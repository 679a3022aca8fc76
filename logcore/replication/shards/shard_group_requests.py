"""Requests to a broker about groups: bodies of `ForGroup(group, …)`, in addition to those of `group_messages.py`.

| body | answer |
| --- | --- |
| `JoinGroup`, `Sync`, `Heartbeat`, `LeaveGroup` | `Joined`, `Synced`, `GroupAnswer`, `Left` |
| `ConsumerHeartbeat` | `ConsumerBeat` |
| `CheckCommit`, `CommitOffsets` | `GroupAnswer` |
| `AskCommitted` | `GroupCommits` |
| `DescribeGroup` | `GroupDescription`; its state is DEAD if there is no such group |
| `DeleteGroup` | `GroupAnswer` |
| `DeleteOffsets` | `OffsetsDeleted` |
| requests about share groups | see `share_messages.py` |
| `ForEveryShard(GROUPS_TOPIC, ListGroups())` | a tuple, per shard of the node, of tuples of `GroupDescription` |

Each may be answered with `Refused` instead: COORDINATOR_LOADING (14), COORDINATOR_NOT_AVAILABLE (15) or NOT_COORDINATOR
(16), the codes of Kafka's protocol. A request that is refused with NOT_COORDINATOR may have been carried out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ...client import TopicPartition
from ...cores.group_messages import (
    CheckCommit,
    CommittedOffset,
    ConsumerBeat,
    ConsumerHeartbeat,
    GroupDescription,
    GroupFault,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Reply,
    Sync,
)
from ..replica.replica_messages import Refused
from .share_messages import ShareAnswer, ShareRequest


class CommitOffsets(NamedTuple):
    """`check`: the member that commits. The shard sets `at_ms` of the offsets, and leaves out unknown topics."""

    check: CheckCommit
    offsets: Mapping[TopicPartition, CommittedOffset]


class AskCommitted(NamedTuple):
    """Asks for the committed offsets of the group."""


class GroupCommits(NamedTuple):
    """`unsettled`: a transaction that is not decided yet may commit other offsets of these partitions."""

    offsets: Mapping[TopicPartition, CommittedOffset]
    unsettled: frozenset[TopicPartition]


class DescribeGroup(NamedTuple):
    """Asks for the group's state, members and their assignments."""


class ListGroups(NamedTuple):
    """Asks for all groups with members, or with committed offsets."""


class DeleteGroup(NamedTuple):
    """Deletes the group and its offsets; refused while it has members."""


class DeleteOffsets(NamedTuple):
    """Deletes offsets, except those of topics that members of the group are reading."""

    partitions: tuple[TopicPartition, ...]


class OffsetsDeleted(NamedTuple):
    """`fault`: an error of the whole group; then `partitions` is empty."""

    fault: GroupFault
    partitions: Mapping[TopicPartition, GroupFault]


GroupRequest = (
    JoinGroup
    | Sync
    | LeaveGroup
    | Heartbeat
    | ConsumerHeartbeat
    | CheckCommit
    | CommitOffsets
    | AskCommitted
    | DescribeGroup
    | DeleteGroup
    | DeleteOffsets
    | ShareRequest
)
GroupShardAnswer = Reply | ConsumerBeat | GroupCommits | GroupDescription | OffsetsDeleted | ShareAnswer | Refused
