"""Read-only requests of operators, and the answers: the controller reports the members, brokers report their replicas.

They are bodies of `Asked`. Requests that change something are in `controller_messages.py`.
"""

from __future__ import annotations

from typing import NamedTuple

from ..machine import NodeId
from ..raft.quorum_messages import VotersChanged
from ..replica.replica_messages import PartitionId
from .metadata_image import MetadataImage


class DescribeQuorum(NamedTuple):
    """To the deciding controller; answered with `QuorumDescription` or `NotController`."""


class MemberLag(NamedTuple):
    """How far a voter or learner has the metadata log on its disk, as far as the leader knows. -1: not heard yet."""

    node: NodeId
    index: int
    heard_ms_ago: int


class BrokerSeen(NamedTuple):
    node: NodeId
    heard_ms_ago: int
    leaving: bool
    newest_version: int = 1  # the newest version of the cluster that it speaks


class QuorumDescription(NamedTuple):
    controller: NodeId
    term: int
    commit: int
    last_index: int
    voters: VotersChanged
    members: tuple[MemberLag, ...]
    brokers: tuple[BrokerSeen, ...]
    image: MetadataImage  # everything that is committed


class DescribeQuorumHere(NamedTuple):
    """To the controller of any node; answered with `QuorumHere`."""


class QuorumHere(NamedTuple):
    """What one node knows about the quorum. `leader`: None if it knows none."""

    leader: NodeId | None
    term: int
    commit: int
    last_index: int


class DescribeReplicas(NamedTuple):
    """To a broker; answered with `ReplicasDescribed`."""


class FollowerLag(NamedTuple):
    """`behind_ms`: how long it has not had the whole log; 0 if it has it."""

    node: NodeId
    offset: int  # everything below it is on the follower's disk; -1: no fetch in this leader epoch yet
    behind_ms: int


class LedPartition(NamedTuple):
    partition: PartitionId
    leader_epoch: int
    log_start_offset: int
    high_watermark: int
    end_offset: int
    bytes: int  # on the leader's disk
    followers: tuple[FollowerLag, ...]


class ReplicasDescribed(NamedTuple):
    """The partitions that the broker leads, and the errors of those that its disk could not open."""

    led: tuple[LedPartition, ...]
    unopened: tuple[tuple[PartitionId, str], ...]
