"""The status of a cluster: its nodes, the controller, and each partition, from answers of the controller and leaders.

These are pure functions; `operations.py` asks the nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from ..replication.controller.metadata_image import MetadataImage
from ..replication.controller.metadata_records import PartitionState
from ..replication.controller.operations_messages import LedPartition, QuorumDescription, QuorumHere, ReplicasDescribed
from ..replication.controller.partition_rules import lacks_replicas, to_come
from ..replication.machine import NodeId
from ..replication.raft.quorum_messages import VotersChanged
from ..replication.replica.replica_messages import PartitionId
from ..replication.replica.throttle import throttled_rate

NodeState = Literal["up", "fenced", "leaving", "added"]
NodeRole = Literal["voter", "learner", "none", "unknown"]


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """`state`: `fenced` nodes are down, or not yet up; `added` ones have never been up. `metadata_lag`: the number of
    records of the metadata log that are not on its disk; None if unknown. Times are since the controller last heard
    from it."""

    id: NodeId
    state: NodeState
    role: NodeRole
    controller: bool
    address: str | None
    kafka: str | None
    http: str | None
    rack: str | None
    incarnation: int | None
    metadata_lag: int | None
    heard_ms_ago: int | None
    replicas: int
    leads: int
    newest_version: int | None  # the newest cluster version that it supports


@dataclass(frozen=True, slots=True)
class FollowerStatus:
    """`missing`: the number of records that are not on its disk; None if it has not fetched yet."""

    node: NodeId
    missing: int | None
    behind_ms: int


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """Data from the metadata and the leader. If the leader did not answer, its data are None, without followers."""

    topic: str
    partition: int
    leader: NodeId | None
    leader_epoch: int
    replicas: tuple[NodeId, ...]
    in_sync: tuple[NodeId, ...]
    eligible: tuple[NodeId, ...]
    min_in_sync: int
    adding: tuple[NodeId, ...]
    removing: tuple[NodeId, ...]
    under_replicated: bool
    unclean: bool
    records: int | None
    bytes: int | None
    followers: tuple[FollowerStatus, ...]

    @property
    def offline(self) -> bool:
        return self.leader is None

    @property
    def under_min_in_sync(self) -> bool:
        """Whether too few replicas are in sync to acknowledge records with acks=all."""
        return len(self.in_sync) < self.min_in_sync

    @property
    def moving(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def preferred_leads(self) -> bool:
        return self.leader == self.replicas[0]


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """`controller`: None if there is none; then everything else is what the asked node last knew. `version`: the one
    that the cluster uses, see `cluster_version.py`."""

    cluster: str
    controller: NodeId | None
    term: int
    commit: int
    last_index: int
    throttle: int | None  # bytes per second
    version: int
    nodes: tuple[NodeStatus, ...]
    partitions: tuple[PartitionStatus, ...]


def status_of(
    cluster: str,
    quorum: QuorumDescription | QuorumHere,
    image: MetadataImage,
    voters: VotersChanged | None,
    described: Mapping[NodeId, ReplicasDescribed],
) -> ClusterStatus:
    """In: `described`: the answers of nodes about the partitions that they lead."""
    decides = quorum.controller if isinstance(quorum, QuorumDescription) else None
    led = {led.partition: led for answer in described.values() for led in answer.led}
    return ClusterStatus(
        cluster,
        decides,
        quorum.term,
        quorum.commit,
        quorum.last_index,
        throttled_rate(image),
        image.version,
        tuple(_nodes(quorum, image, voters)),
        tuple(_partitions(image, led)),
    )


def _nodes(
    quorum: QuorumDescription | QuorumHere, image: MetadataImage, voters: VotersChanged | None
) -> Iterable[NodeStatus]:
    replicas = Counter(node for state in image.partitions() for node in state.replicas)
    leads = Counter(state.leader for state in image.partitions())
    told = quorum if isinstance(quorum, QuorumDescription) else None
    lags = {member.node: quorum.last_index - member.index for member in told.members} if told else {}
    heard = {seen.node: seen for seen in told.brokers} if told else {}
    members = voters.members() if voters else ()
    for node in sorted({*nodes_of(image), *members}):
        broker, seen = image.brokers.get(node), heard.get(node)
        state: NodeState = "added" if broker is None else "fenced" if broker.fenced else "up"
        yield NodeStatus(
            id=node,
            state="leaving" if state == "up" and seen is not None and seen.leaving else state,
            role=_role(node, voters),
            controller=told is not None and told.controller == node,
            address=image.addresses.get(node),
            kafka=broker.address("kafka") if broker else None,
            http=broker.address("http") if broker else None,
            rack=broker.rack if broker else None,
            incarnation=broker.incarnation if broker else None,
            metadata_lag=lags.get(node),
            heard_ms_ago=seen.heard_ms_ago if seen else None,
            replicas=replicas[node],
            leads=leads[node],
            newest_version=seen.newest_version if seen else None,
        )


def nodes_of(image: MetadataImage) -> list[NodeId]:
    """The nodes that are registered or were added, and were not removed since."""
    added = (node for node, address in image.addresses.items() if address is not None)
    return sorted({*image.brokers, *added})


def _role(node: NodeId, voters: VotersChanged | None) -> NodeRole:
    if voters is None:
        return "unknown"
    return "voter" if node in voters.voters else "learner" if node in voters.learners else "none"


def _partitions(image: MetadataImage, led: Mapping[PartitionId, LedPartition]) -> Iterable[PartitionStatus]:
    for topic in sorted(image.topics.values(), key=lambda topic: topic.name):
        for state in topic.partitions:
            found = led.get(PartitionId(state.topic_id, state.partition))
            # An earlier leader may not know yet that it was replaced.
            yield _partition(topic.name, state, found if found and found.leader_epoch == state.leader_epoch else None)


def _partition(topic: str, state: PartitionState, led: LedPartition | None) -> PartitionStatus:
    followers: tuple[FollowerStatus, ...] = ()
    if led is not None:
        followers = tuple(
            FollowerStatus(lag.node, None if lag.offset < 0 else max(0, led.end_offset - lag.offset), lag.behind_ms)
            for lag in led.followers
        )
    return PartitionStatus(
        topic=topic,
        partition=state.partition,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        replicas=state.replicas,
        in_sync=state.isr,
        eligible=state.elr,
        min_in_sync=state.min_isr,
        adding=to_come(state),
        removing=state.removing,
        under_replicated=lacks_replicas(state),
        unclean=state.unclean,
        records=led.end_offset - led.log_start_offset if led else None,
        bytes=led.bytes if led else None,
        followers=followers,
    )
