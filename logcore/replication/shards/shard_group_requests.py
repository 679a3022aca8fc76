"""What a broker is asked about consumer groups: bodies of `ForGroup(group, …)`, besides those of `group_messages.py`.

| body | answer |
| --- | --- |
| `JoinGroup`, `Sync`, `Heartbeat`, `LeaveGroup` | `Joined`, `Synced`, `GroupAnswer`, `Left` |
| `ConsumerHeartbeat` | `ConsumerBeat` |
| `CheckCommit`, `CommitOffsets` | `GroupAnswer` |
| `AskCommitted` | `GroupCommits` |
| `DescribeGroup` | `GroupDescription`; of a group that is not there with the state DEAD |
| `DeleteGroup` | `GroupAnswer` |
| `DeleteOffsets` | `OffsetsDeleted` |
| what is asked of share groups | see `share_messages.py` |
| `ForEveryShard(GROUPS_TOPIC, ListGroups())` | a tuple, per shard of the node, of tuples of `GroupDescription` |

Each may be answered with `Refused` instead: COORDINATOR_LOADING (14), COORDINATOR_NOT_AVAILABLE (15) or NOT_COORDINATOR
(16), the codes of Kafka's protocol. Whether a request that is refused with NOT_COORDINATOR was done is open.
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
    """`check` says who commits. `at_ms` of the offsets is filled in. Topics that are not there are left out."""

    check: CheckCommit
    offsets: Mapping[TopicPartition, CommittedOffset]


class AskCommitted(NamedTuple):
    """What has the group committed?"""


class GroupCommits(NamedTuple):
    """`unsettled`: a transaction that is not decided yet may commit other offsets of these partitions."""

    offsets: Mapping[TopicPartition, CommittedOffset]
    unsettled: frozenset[TopicPartition]


class DescribeGroup(NamedTuple):
    """Members, state, and who reads what."""


class ListGroups(NamedTuple):
    """All groups with members, or with committed offsets."""


class DeleteGroup(NamedTuple):
    """The group and its offsets; refused while it has members."""


class DeleteOffsets(NamedTuple):
    """Not those of topics that members of the group are reading."""

    partitions: tuple[TopicPartition, ...]


class OffsetsDeleted(NamedTuple):
    """`fault`: of the group as a whole; then `partitions` is empty."""

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
