"""Who has what in the log that a listener serves: the nodes, who leads each partition, who coordinates, and changes of
topics. It is `logcore/cluster/cluster_layout.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

from ..client import Offsets, TopicPartition

ANY_EPOCH = -1
"""In the place of a leader epoch: the client does not say one."""
NOBODY = -1
"""In the place of a node."""

KeyKind = Literal["group", "transaction"]


class NodeAddress(NamedTuple):
    """Where Kafka's clients find a node."""

    node: int
    host: str
    port: int
    rack: str | None = None


class PartitionLayout(NamedTuple):
    """Which nodes have a partition, by their numbers; `replicas`: the preferred leader comes first."""

    leader: int  # NOBODY where there is none
    leader_epoch: int
    replicas: Sequence[int]
    in_sync: Sequence[int]
    eligible: Sequence[int] = ()  # not in sync, but known to have all that was acknowledged
    offline: Sequence[int] = ()
    adding: Sequence[int] = ()
    removing: Sequence[int] = ()


class TopicCreation(NamedTuple):
    """`replication_factor` -1: what the log does by default. With an `assignment` (replicas by partition) neither count
    is looked at."""

    name: str
    partition_count: int
    config: Mapping[str, str]
    replication_factor: int = -1
    assignment: Sequence[Sequence[int]] = ()


class EpochAnswer(NamedTuple):
    """`epoch`: the one asked for, or the largest before it that has records; both -1 where there is none."""

    epoch: int
    end_offset: int


class LeaderOffsets(NamedTuple):
    """As the leader has them, in this leader epoch."""

    offsets: Offsets
    leader_epoch: int


class QuorumMember(NamedTuple):
    """How far a node has the metadata. Offset and times are -1 where they are not known, times of the day."""

    node: int
    end_offset: int
    fetched_ms: int = -1
    caught_up_ms: int = -1


class QuorumLayout(NamedTuple):
    """Who decides, as who decides knows it. `addresses`: of those that decide or learn."""

    leader: int
    epoch: int
    high_watermark: int
    voters: Sequence[QuorumMember]
    observers: Sequence[QuorumMember] = ()
    addresses: Sequence[NodeAddress] = ()


class LogLayout(Protocol):
    """Any thread may call any method; some wait for other nodes. They raise `LogError`: `NotNow` where another node, or
    another time, does better."""

    @property
    def node(self) -> int:
        """This one."""
        ...

    @property
    def cluster_version(self) -> int:
        """What all nodes understand: see `replication/cluster_version.py`."""
        ...

    @property
    def controller(self) -> int:
        """Where changes of topics are best sent; NOBODY where it is not known."""
        ...

    def nodes(self, local: tuple[str, int]) -> Sequence[NodeAddress]:
        """Those that are up, for a client that found this one at `local`."""
        ...

    def quorum(self) -> QuorumLayout: ...

    def partition(self, topic: str, partition: int) -> PartitionLayout:
        """Of a partition that there is."""
        ...

    def coordinator(self, kind: KeyKind, key: str, local: tuple[str, int]) -> NodeAddress: ...

    # At the leader

    def check_leads(self, where: TopicPartition, leader_epoch: int = ANY_EPOCH) -> None:
        """That this node leads the partition, in the leader epoch that the client knows. Cheap: waits for nobody."""
        ...

    def check_reads(self, where: TopicPartition, leader_epoch: int, offset: int, rack: str) -> int:
        """That this node has the partition for a client on this rack, which wants to read from `offset`: because it
        leads it, or follows on a rack that the client names. Cheap, as `check_leads`.

        Gives the node that the client is to read from instead (KIP-392); NOBODY: this one is right. Asked again when
        the records were read: what was read counts only if this node was right all the time.
        """
        ...

    def offsets(self, where: TopicPartition, leader_epoch: int = ANY_EPOCH) -> LeaderOffsets: ...

    def epoch_end(self, where: TopicPartition, epoch: int, leader_epoch: int = ANY_EPOCH) -> EpochAnswer: ...

    def delete_records(self, where: TopicPartition, offset: int) -> int:
        """Where the log starts then."""
        ...

    # Changes

    def default_replication(self) -> int: ...

    def create_topic(self, topic: TopicCreation, *, only_check: bool = False) -> None: ...

    def add_partitions(
        self, topic: str, partition_count: int, assignment: Sequence[Sequence[int]] = (), *, only_check: bool = False
    ) -> None:
        """In: `assignment`: replicas of those that are new, where the caller chooses them."""
        ...

    def elect(self, where: TopicPartition, *, unclean: bool) -> None: ...

    def reassign(self, where: TopicPartition, replicas: Sequence[int] | None) -> None:
        """None calls a reassignment off."""
        ...
