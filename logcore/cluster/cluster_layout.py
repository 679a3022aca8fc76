"""The layout of the cluster as this node knows it: for answers to Kafka's clients, and for the changes they request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from ..client import Offsets, TopicPartition
from ..error_codes import ErrorCode
from ..errors import InvalidReplicationFactor, NotNow, OffsetOutOfRange, TopicExists, UnknownTopic
from ..protocol.layout import (
    ANY_EPOCH,
    NOBODY,
    EpochAnswer,
    KeyKind,
    LeaderOffsets,
    NodeAddress,
    PartitionLayout,
    QuorumLayout,
    TopicCreation,
)
from ..replication.broker.nearest import nearest_replica
from ..replication.cluster_version import VERSIONS
from ..replication.controller.controller_messages import AddPartitions, CreateTopic, ElectLeader, Reassign
from ..replication.controller.metadata_image import BrokerImage
from ..replication.controller.operations_messages import DescribeQuorum, QuorumDescription
from ..replication.controller.partition_rules import to_come
from ..replication.machine import NodeId
from ..replication.replica.replica import Replica
from ..replication.replica.replica_leader import Leader
from ..replication.replica.replica_messages import (
    AskEpochEnd,
    Deleted,
    DeleteRecords,
    PartitionId,
    ReplicaRequest,
)
from ..replication.replica.replica_reading import epoch_problem
from ..replication.shards.coordination_messages import place_of
from ..storage.epoch_cache import EpochBoundary
from ..topic_rules import GROUPS_TOPIC, TRANSACTIONS_TOPIC, check_topic
from .cluster_log import ClusterLog
from .peers import address_of
from .quorum_layout import quorum_layout
from .refusals import check_done, given, refused

_ANSWER_S: Final = 10.0
_CREATED_S: Final = 3.0  # when a client waits without knowing that a topic is created for it
_COORDINATOR_PARTITIONS: Final = 8
_MIN_ISR: Final = "min.insync.replicas"
_TOPICS: Final[dict[KeyKind, str]] = {"group": GROUPS_TOPIC, "transaction": TRANSACTIONS_TOPIC}
_Wanted = TypeVar("_Wanted")
COORDINATOR_CONFIG: Final = {"cleanup.policy": "compact", "segment.bytes": str(16 * 1024 * 1024)}


class ClusterLayout:
    """`LogLayout`. `address_for`: the address that a client should use next if it connected to the given one; used
    until the node has registered an address for clients."""

    def __init__(
        self, log: ClusterLog, address_for: Callable[[tuple[str, int]], tuple[str, int]] = lambda local: local
    ) -> None:
        self._log = log
        self._node = log.node
        self._address_for = address_for

    @property
    def node(self) -> int:
        return self._node.id

    @property
    def cluster_version(self) -> int:
        """The newest version while this node knows nothing about the cluster; it then answers nothing else."""
        image = self._node.image
        return image.version if image.index else VERSIONS.newest

    @property
    def controller(self) -> int:
        """The controller, or this node if it is not known. Every node passes requests on to the controller."""
        leader = self._node.controller
        return leader if leader is not None and self._node.image.is_live(leader) else self._node.id

    def nodes(self, local: tuple[str, int]) -> Sequence[NodeAddress]:
        """All registered nodes, fenced or not: librdkafka abandons nodes that are no longer listed, and a request to a
        coordinator on such a node then waits forever. If a node is only down, it looks for the coordinator again."""
        return [self._address(broker, local) for broker in self._node.image.brokers.values()]

    def _address(self, broker: BrokerImage, local: tuple[str, int]) -> NodeAddress:
        told = broker.address("kafka")
        if told is None and broker.id == self._node.id:
            return NodeAddress(broker.id, *self._address_for(local), broker.rack)
        address = address_of(told or ":0")
        return NodeAddress(broker.id, address.host, address.port, broker.rack)

    def quorum(self) -> QuorumLayout:
        found = self._node.ask_controller(DescribeQuorum())
        if not isinstance(found, QuorumDescription):
            raise NotNow(ErrorCode.not_controller, "nobody decides now")
        return quorum_layout(found, self._node.now_ms())

    def partition(self, topic: str, partition: int) -> PartitionLayout:
        image = self._node.image
        id = image.topic_ids.get(topic)
        state = image.partition(PartitionId(id, partition)) if id is not None else None
        if state is None:  # it was deleted after it was looked up
            return PartitionLayout(NOBODY, ANY_EPOCH, (), ())
        return PartitionLayout(
            leader=NOBODY if state.leader is None else state.leader,
            leader_epoch=state.leader_epoch,
            replicas=state.replicas,
            in_sync=state.isr,
            eligible=state.elr,
            offline=[node for node in state.replicas if not image.is_live(node)],
            adding=to_come(state),
            removing=state.removing,
        )

    # Coordinators

    def coordinator(self, kind: KeyKind, key: str, local: tuple[str, int]) -> NodeAddress:
        topic = _TOPICS[kind]
        if place_of(self._node.image, topic, key) is None:
            self._create_coordinators(topic)
        image = self._node.image
        place = place_of(image, topic, key)
        if place is None:
            raise NotNow(ErrorCode.coordinator_not_available, "the topic of the coordinators is being made")
        state = image.partition(place)
        leader = image.brokers.get(state.leader) if state is not None and state.leader is not None else None
        if leader is None or leader.fenced:
            raise NotNow(ErrorCode.coordinator_not_available, "the coordinator has no leader now")
        return self._address(leader, local)

    @property
    def _coordinators(self) -> int:
        """The number of coordinators. A single node needs only one."""
        return 1 if self._node.settings.alone else _COORDINATOR_PARTITIONS

    def _create_coordinators(self, topic: str) -> None:
        """Creates the topic with all replicas that it will ever need. Until enough nodes are registered, clients must
        retry."""
        replication = self.default_replication()
        if len(self._node.image.brokers) < min(replication, len(self._node.settings.voters)):
            return
        try:
            self._create(TopicCreation(topic, self._coordinators, COORDINATOR_CONFIG, replication), _CREATED_S)
        except (TopicExists, NotNow):
            pass  # another node creates it, too; or the client must retry

    # At the leader

    def check_leads(self, where: TopicPartition, leader_epoch: int = ANY_EPOCH) -> None:
        self._leading(where, leader_epoch)

    def check_reads(self, where: TopicPartition, leader_epoch: int, offset: int, rack: str) -> int:
        replica = self._log.replica(where)
        if rack and replica.follower is not None:
            self._check_follows(replica, leader_epoch, offset)
            return NOBODY
        replica, leader = self._leading_for_certain(where, leader_epoch)
        view = replica.core.view
        if not rack or view is None:
            return NOBODY
        near = nearest_replica(self._node.image, view, rack, offset, leader.in_sync.acknowledged)
        return NOBODY if near is None else near

    def _check_follows(self, replica: Replica, leader_epoch: int, offset: int) -> None:
        """Sends readers back to the leader if this replica is not in sync, or not connected to the others."""
        core = replica.core
        if core.view is None or self._node.id not in core.view.isr or not self._node.serving:
            raise NotNow(ErrorCode.not_leader_or_follower, f"node {self._node.id} is not in sync: read from the leader")
        problem = epoch_problem(core.leader_epoch, leader_epoch)
        if problem is not None:
            raise refused(problem)
        if offset > core.high_watermark:
            raise NotNow(ErrorCode.offset_not_available, f"{core.high_watermark} is as far as this replica knows")

    def _leading(self, where: TopicPartition, leader_epoch: int) -> tuple[Replica, Leader]:
        replica = self._log.replica(where)
        leader = replica.leader
        if leader is None or self._node.failure is not None:
            raise NotNow(
                ErrorCode.not_leader_or_follower,
                f"node {self._node.id} does not lead partition {where.partition} of topic {where.topic}",
            )
        problem = epoch_problem(replica.core.leader_epoch, leader_epoch)
        if problem is not None:
            raise refused(problem)
        return replica, leader

    def _leading_for_certain(self, where: TopicPartition, leader_epoch: int) -> tuple[Replica, Leader]:
        """For reads: a leader that was replaced without knowing may not know all that is committed (T-L4)."""
        leading = self._leading(where, leader_epoch)
        if not self._node.leads_for_certain:
            raise NotNow(
                ErrorCode.not_leader_or_follower,
                f"node {self._node.id} is out of touch with the controller: another one may lead partition"
                f" {where.partition} of topic {where.topic} by now",
            )
        return leading

    def offsets(self, where: TopicPartition, leader_epoch: int = ANY_EPOCH) -> LeaderOffsets:
        """R16: raises `NotNow` until this leader knows what earlier leaders have committed."""
        replica, leader = self._leading_for_certain(where, leader_epoch)
        found: Offsets = self._log.partition(*where).offsets()
        self._leading_for_certain(where, leader_epoch)  # again, since the process may have been suspended
        if found.high_watermark < leader.epoch_start:
            raise NotNow(ErrorCode.offset_not_available, "the new leader does not know yet what is committed")
        return LeaderOffsets(found, replica.core.leader_epoch)

    def epoch_end(self, where: TopicPartition, epoch: int, leader_epoch: int = ANY_EPOCH) -> EpochAnswer:
        self._leading_for_certain(where, ANY_EPOCH)
        end = EpochAnswer(*self._ask(self._log.id_of(where), AskEpochEnd(epoch, leader_epoch), EpochBoundary))
        self._leading_for_certain(where, ANY_EPOCH)
        return end

    def delete_records(self, where: TopicPartition, offset: int) -> int:
        self._log.check_own(where.topic)  # only coordinators may delete their own records
        offsets = self.offsets(where).offsets
        if not 0 <= offset <= offsets.high_watermark:
            raise OffsetOutOfRange(
                f"the records before offset {offset} of {where.topic}-{where.partition} cannot be deleted:"
                f" it ends at {offsets.high_watermark}"
            )
        return self._ask(self._log.id_of(where), DeleteRecords(offset), Deleted).log_start_offset

    def _ask(self, partition: PartitionId, body: ReplicaRequest, kind: type[_Wanted]) -> _Wanted:
        return given(self._node.partition_answer(partition, body, _ANSWER_S), kind)

    # Changes

    def default_replication(self) -> int:
        """The replication factor for the current number of nodes; some may have been added after this one started."""
        return self._node.settings.default_replication(len(self._node.image.brokers))

    def create_topic(self, topic: TopicCreation, *, only_check: bool = False) -> None:
        check_topic(topic.name, topic.partition_count, topic.config)
        if topic.name in self._log.topics():
            raise TopicExists(f'topic "{topic.name}" exists already')
        if topic.name in _TOPICS.values():
            topic = TopicCreation(topic.name, self._coordinators, COORDINATOR_CONFIG)
        if only_check:
            self._check_replication(topic)
        else:
            self._create(topic)

    def _check_replication(self, topic: TopicCreation) -> None:
        known = len(self._node.image.brokers)
        factor = topic.replication_factor if topic.replication_factor != -1 else self.default_replication()
        if not topic.assignment and not 0 < factor <= known:
            raise InvalidReplicationFactor(f"replication factor {factor}, and the cluster has {known} brokers")

    def _create(self, topic: TopicCreation, timeout_s: float = _ANSWER_S) -> None:
        """Creates a topic. With three or more replicas, two must have each record, unless a setting says otherwise."""
        assignment = tuple(tuple(map(NodeId, replicas)) for replicas in topic.assignment)
        factor = topic.replication_factor if topic.replication_factor != -1 else self.default_replication()
        config = dict(topic.config)
        if min(map(len, assignment), default=factor) >= 3 and not self._has_min_isr():
            config.setdefault(_MIN_ISR, "2")
        asked = CreateTopic(topic.name, topic.partition_count, factor, assignment, tuple(sorted(config.items())))
        check_done(self._node.decide(asked, timeout_s))

    def _has_min_isr(self) -> bool:
        """Whether the cluster has a setting for all topics."""
        return self._node.image.config("", _MIN_ISR) is not None

    def add_partitions(
        self, topic: str, partition_count: int, assignment: Sequence[Sequence[int]] = (), *, only_check: bool = False
    ) -> None:
        known = self._log.topic(topic)
        if known is None:
            raise UnknownTopic(f'topic "{topic}" does not exist')
        self._log.check_own(topic)
        check_topic(topic, partition_count, known.config)
        if partition_count <= known.partition_count:
            raise NotNow(
                ErrorCode.invalid_partitions,
                f'topic "{topic}" has {known.partition_count} partitions, and cannot have {partition_count}',
            )
        placed = tuple(tuple(map(NodeId, replicas)) for replicas in assignment)
        if placed:
            self._check_placed(topic, partition_count - known.partition_count, placed)
        if not only_check:
            check_done(self._node.decide(AddPartitions(topic, partition_count, placed)))

    def _check_placed(self, topic: str, added: int, placed: Sequence[Sequence[NodeId]]) -> None:
        """Checks the assignment with the metadata that this node knows. The controller decides."""
        image = self._node.image
        like = image.partition(self._log.id_of(TopicPartition(topic, 0)))
        factor = len(like.replicas) - len(like.adding) if like is not None else 0
        known = all(node in image.brokers for nodes in placed for node in nodes)
        if not known or [len(nodes) for nodes in placed] != [factor] * added or any(map(_has_twins, placed)):
            why = f'{added} new partitions of "{topic}", of {factor} replicas each, cannot be on {placed}'
            raise NotNow(ErrorCode.invalid_replica_assignment, why)

    def elect(self, where: TopicPartition, *, unclean: bool) -> None:
        check_done(self._node.decide(ElectLeader(self._log.id_of(where), unclean)))

    def reassign(self, where: TopicPartition, replicas: Sequence[int] | None) -> None:
        wanted = None if replicas is None else tuple(map(NodeId, replicas))
        check_done(self._node.decide(Reassign(self._log.id_of(where), wanted)))


def _has_twins(nodes: Sequence[NodeId]) -> bool:
    return len(set(nodes)) != len(nodes)
