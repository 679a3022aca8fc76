"""What operators ask to see, and the answers: of the controller who is in the cluster, of brokers how replicas stand.

Bodies of `Asked`. Nothing here changes anything; what does is in `controller_messages.py`.
"""

from __future__ import annotations

from typing import NamedTuple

from ..machine import NodeId
from ..raft.quorum_messages import VotersChanged
from ..replica.replica_messages import PartitionId
from .metadata_image import MetadataImage


class DescribeQuorum(NamedTuple):
    """To the controller that decides; answered with `QuorumDescription` or `NotController`."""


class MemberLag(NamedTuple):
    """How far a voter or learner has the metadata log on its disk, as the leader knows it. -1: not heard of yet."""

    node: NodeId
    index: int  # pyright: ignore[reportIncompatibleMethodOverride]
    heard_ms_ago: int


class BrokerSeen(NamedTuple):
    node: NodeId
    heard_ms_ago: int
    leaving: bool
    newest_version: int = 1  # of the cluster, that it speaks


class QuorumDescription(NamedTuple):
    controller: NodeId
    term: int
    commit: int
    last_index: int
    voters: VotersChanged
    members: tuple[MemberLag, ...]
    brokers: tuple[BrokerSeen, ...]
    image: MetadataImage  # all that is committed


class DescribeQuorumHere(NamedTuple):
    """To the controller of any node; answered with `QuorumHere`."""


class QuorumHere(NamedTuple):
    """What one node knows of the quorum. `leader`: None while it knows of none."""

    leader: NodeId | None
    term: int
    commit: int
    last_index: int


class DescribeReplicas(NamedTuple):
    """To a broker; answered with `ReplicasDescribed`."""


class FollowerLag(NamedTuple):
    """`behind_ms`: since when it has not had everything; 0 for one that has."""

    node: NodeId
    offset: int  # below it everything is on the follower's disk; -1: it has not asked in this leader epoch
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
    """Those that the broker leads, and why its disk does not give others."""

    led: tuple[LedPartition, ...]
    unopened: tuple[tuple[PartitionId, str], ...]
