"""The layout of the log that a listener serves: its nodes, the leaders of partitions, the coordinators, and changes of
topics. `logcore/cluster/cluster_layout.py` implements it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

from ..client import Offsets, TopicPartition

ANY_EPOCH = -1
"""In place of a leader epoch: the client names none."""
NOBODY = -1
"""In place of a node: there is none."""

KeyKind = Literal["group", "transaction"]


class NodeAddress(NamedTuple):
    """The address of a node for Kafka clients."""

    node: int
    host: str
    port: int
    rack: str | None = None


class PartitionLayout(NamedTuple):
    """The nodes that have a partition, by their numbers. `replicas`: the preferred leader is the first."""

    leader: int  # NOBODY if there is none
    leader_epoch: int
    replicas: Sequence[int]
    in_sync: Sequence[int]
    eligible: Sequence[int] = ()  # not in sync, but known to have everything that was acknowledged
    offline: Sequence[int] = ()
    adding: Sequence[int] = ()
    removing: Sequence[int] = ()


class TopicCreation(NamedTuple):
    """`replication_factor` -1: the default of the log. With an `assignment` (replicas by partition), both counts are
    ignored."""

    name: str
    partition_count: int
    config: Mapping[str, str]
    replication_factor: int = -1
    assignment: Sequence[Sequence[int]] = ()


class EpochAnswer(NamedTuple):
    """`epoch`: the requested epoch, or the largest previous one with records; both -1 if there is none."""

    epoch: int
    end_offset: int


class LeaderOffsets(NamedTuple):
    """The offsets on the leader, in this leader epoch."""

    offsets: Offsets
    leader_epoch: int


class QuorumMember(NamedTuple):
    """How far a node has the metadata. Times are times of day. Offset and times are -1 if unknown."""

    node: int
    end_offset: int
    fetched_ms: int = -1
    caught_up_ms: int = -1


class QuorumLayout(NamedTuple):
    """The metadata quorum, as its leader knows it. `addresses`: of voters and observers."""

    leader: int
    epoch: int
    high_watermark: int
    voters: Sequence[QuorumMember]
    observers: Sequence[QuorumMember] = ()
    addresses: Sequence[NodeAddress] = ()


class LogLayout(Protocol):
    """Any thread may call any method; some wait for other nodes. They raise `LogError`; `NotNow` if the caller should
    try another node, or try again later."""

    @property
    def node(self) -> int:
        """The number of this node."""
        ...

    @property
    def cluster_version(self) -> int:
        """The version that all nodes understand: see `replication/cluster_version.py`."""
        ...

    @property
    def controller(self) -> int:
        """The node to which changes of topics should be sent; NOBODY if unknown."""
        ...

    def nodes(self, local: tuple[str, int]) -> Sequence[NodeAddress]:
        """The nodes that are up, for a client that has connected to this one at `local`."""
        ...

    def quorum(self) -> QuorumLayout: ...

    def partition(self, topic: str, partition: int) -> PartitionLayout:
        """In: an existing partition."""
        ...

    def coordinator(self, kind: KeyKind, key: str, local: tuple[str, int]) -> NodeAddress: ...

    # At the leader

    def check_leads(self, where: TopicPartition, leader_epoch: int = ANY_EPOCH) -> None:
        """Raises if this node does not lead the partition in the leader epoch that the client knows. Fast: it waits for
        no other node."""
        ...

    def check_reads(self, where: TopicPartition, leader_epoch: int, offset: int, rack: str) -> int:
        """Raises if a client on this rack cannot read the partition here: this node neither leads it, nor follows on
        the client's rack. Fast, like `check_leads`.

        Returns the node from which the client should read instead (KIP-392); NOBODY: this one. Call it again after the
        records were read: they count only if this node could serve them all the time.
        """
        ...

    def offsets(self, where: TopicPartition, leader_epoch: int = ANY_EPOCH) -> LeaderOffsets: ...

    def epoch_end(self, where: TopicPartition, epoch: int, leader_epoch: int = ANY_EPOCH) -> EpochAnswer: ...

    def delete_records(self, where: TopicPartition, offset: int) -> int:
        """Returns the new start of the log."""
        ...

    # Changes

    def default_replication(self) -> int: ...

    def create_topic(self, topic: TopicCreation, *, only_check: bool = False) -> None: ...

    def add_partitions(
        self, topic: str, partition_count: int, assignment: Sequence[Sequence[int]] = (), *, only_check: bool = False
    ) -> None:
        """In: `assignment`: the replicas of the new partitions, if the caller chooses them."""
        ...

    def elect(self, where: TopicPartition, *, unclean: bool) -> None: ...

    def reassign(self, where: TopicPartition, replicas: Sequence[int] | None) -> None:
        """In: `replicas`: None cancels the reassignment."""
        ...
