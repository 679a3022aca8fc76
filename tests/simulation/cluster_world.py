"""A whole cluster: the metadata quorum, brokers with replicas, producers and consumers, and what they were promised."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Final

from millstream.logcore.replication.broker.broker import ReplicaBroker
from millstream.logcore.replication.broker.registration import BrokerIdentity
from millstream.logcore.replication.controller.controller import Controller
from millstream.logcore.replication.controller.controller_messages import CreateTopic, Done
from millstream.logcore.replication.controller.metadata_image import ImageCodec, MetadataImage
from millstream.logcore.replication.machine import BROKER, CONTROLLER, Asked, Committed, Effect, Input, NodeId, Send
from millstream.logcore.replication.raft.quorum_files import QuorumDamaged, QuorumFiles
from millstream.logcore.replication.replica.replica import Replica
from millstream.logcore.replication.replica.replica_messages import (
    AlterPartition,
    ForPartition,
    PartitionId,
    Produced,
    ReadBatches,
)
from millstream.logcore.replication.shards.coordinators import default_makers
from millstream.logcore.replication.shards.led_log import ShardMaker
from millstream.logcore.topic_rules import TRANSACTIONS_TOPIC

from .cluster_checks import ClusterChecks
from .cluster_clients import ConsumerClient, ProducerClient, Promises, Requests
from .cluster_disks import exchange_disk, flip_log
from .cluster_logs import SimReplicaLogs
from .cluster_operator import FIRST_REQUEST, ClusterOperator
from .group_clients import FIRST_GROUP_REQUEST, GroupTraffic
from .host import CannotStart, Host, Running
from .kernel import MILLISECOND, InvariantViolated
from .offset_questions import FIRST_QUESTION, OffsetQuestions
from .passing_topic import PassingTopic
from .quorum_checks import CheckedQuorum, QuorumChecks
from .share_clients import FIRST_SHARE_REQUEST, ShareTraffic
from .shrinking_topic import ShrinkingTopic
from .throttled_copying import ThrottledCopying
from .transaction_checks import CountedShard
from .transaction_clients import FIRST_TRANSACTION_REQUEST, TransactionTraffic
from .world import World

if TYPE_CHECKING:
    from .faults import Fault
    from .simulation import Simulation

_ADMIN: Final = 1 << 40  # requests with numbers from here on are those of the operator
_FIRST_PRODUCER: Final = 1 << 40  # ids that the controller gives to nobody
_STILL_BUSY_MS: Final = 2_000  # after the healing, before the producers stop


class ClusterWorld(World):
    """One topic; what is acknowledged has to be there in the end, at its offset, once, on all replicas."""

    name = "cluster"
    node_counts: ClassVar[tuple[int, ...]] = (3, 3, 3, 5)
    must_happen = (
        "acknowledged",
        "acknowledged after a retry",
        "leaders",
        "truncations",
        "read by followers",
        "isr changes",
        "elr elections",
        "elections with a pending isr",
        "duplicates answered after a fail-over",
        "reads of a leader epoch that is over",
        "acknowledged in a topic made anew",
        "damaged logs",
        "replaced nodes",
        *(f"done {act}" for act in ("Reassign", "ElectLeader", "ChangeConfig", "AddPartitions", "RemoveBroker")),
        *GroupTraffic.counters,
        *ShareTraffic.counters,
        *TransactionTraffic.counters,
        *ShrinkingTopic.counters,
        *ThrottledCopying.counters,
        *OffsetQuestions.counters,
    )

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(simulation)
        self.quorum_checks = QuorumChecks(self.kernel)
        self.promises = Promises()
        self.requests = Requests(self)
        self.questions = OffsetQuestions(self)
        self.checks = ClusterChecks(self)
        self.topic: str | None = None
        self.quiet = False
        self.produce_ms: float = self._options["produce_ms"]
        self.read_ms: float = self._options["read_ms"]
        self._producers: list[ProducerClient] = []
        self._consumers: list[ConsumerClient] = []
        self._asked_admin = 0
        self._partition_count = 0  # of those that have clients
        self.operator = ClusterOperator(self)
        self.groups = GroupTraffic(self, self._options.get("group_members", 0))
        self.shares = ShareTraffic(self, self._options.get("share_workers", 0))
        self.transactions = TransactionTraffic(self, self._options["transactional"])
        self.shrinking = ShrinkingTopic(self, every_ms=self._options.get("delete_ms", 0.0))
        self.throttling = ThrottledCopying(self)
        self.lost: NodeId | None = None  # the node whose disk lost something that was safe

    @classmethod
    def draw(cls, random: Random) -> dict[str, Any]:
        min_isr = random.choice([1, 2, 2, 2])
        drawn = {
            "partitions": random.choice([1, 1, 2, 4]),
            "min_isr": min_isr,
            "damage": min_isr > 1 and random.random() < 0.5,  # one node's disk may lose what was safe
            "act_ms": random.choice([0.0, 300.0, 1_000.0, 5_000.0]),  # of the operator; 0: it does nothing
            "producers": random.choice([1, 2, 3]),
            "transactional": random.choice([0, 1, 1, 2]),
            "passing_ms": random.choice([0.0, 0.0, 500.0, 3_000.0]),  # how long a topic lives that is made anew
            "produce_ms": random.choice([2.0, 10.0, 50.0]),
            "read_ms": random.choice([20.0, 100.0]),
            "snapshot_every": random.choice([10, 50, 1_000]),
            "group_members": random.choice([0, 0, 0, 2, 3]),  # of each of two groups
            "delete_ms": random.choice([0.0, 0.0, 100.0, 1_000.0]),  # between deletions of records; 0: there are none
        }
        share_workers = Random(f"{drawn}").choice([0, 0, 0, 3])  # no draw of others is shifted
        return {**drawn, "share_workers": share_workers}

    @classmethod
    def acts(cls) -> Mapping[str, Callable[[Simulation, Fault], None]]:
        return {"flip_log": flip_log, "exchange_disk": exchange_disk}

    @property
    def _options(self) -> dict[str, Any]:
        return self.simulation.options.world

    # Nodes

    def start(self, host: Host) -> Mapping[str, Running]:
        nodes = tuple(NodeId(node) for node in self.simulation.hosts)
        try:
            files = QuorumFiles(host.disk, nodes, ImageCodec(), disk=host.disk_name)
        except QuorumDamaged as error:
            raise CannotStart(str(error)) from error
        self.quorum_checks.started(host.id, files.recovered)
        seed = self.kernel.randoms.schedule.getrandbits(32)
        quorum = CheckedQuorum(host.id, "simulated", files.recovered, seed=seed)
        quorum.checks = self.quorum_checks
        controller = Controller(quorum)
        logs = SimReplicaLogs(host.disk, self.checks.copies_of(host.id), self.kernel.counters)
        logs.opens_late = True
        endpoints = (("kafka", f"node{host.id}:9092"),)
        identity = BrokerIdentity("simulated", host.id, logs.incarnation, endpoints, disk=host.disk_name)
        broker = ReplicaBroker(identity, logs, coordinators=self._coordinators())
        return {CONTROLLER: Running(controller, files), BROKER: Running(broker, logs)}

    def _coordinators(self) -> Mapping[str, ShardMaker]:
        counters = self.kernel.counters
        return {**default_makers(), TRANSACTIONS_TOPIC: lambda log: CountedShard(log, counters)}

    def broker(self, node: int) -> ReplicaBroker | None:
        """The broker that runs on this node now."""
        running = self.simulation.hosts[node].running.get(BROKER)
        return running.machine if running is not None and isinstance(running.machine, ReplicaBroker) else None

    def controller(self, node: int) -> Controller | None:
        running = self.simulation.hosts[node].running.get(CONTROLLER)
        return running.machine if running is not None and isinstance(running.machine, Controller) else None

    def replica(self, node: int, partition: PartitionId) -> Replica | None:
        broker = self.broker(node)
        return broker.replicas.get(partition) if broker is not None else None

    def image(self) -> MetadataImage:
        """The newest that any node knows to be committed."""
        images = [controller.image for node in self.simulation.hosts if (controller := self.controller(node))]
        return max(images, key=lambda image: image.index, default=MetadataImage())

    def partitions(self) -> list[PartitionId]:
        if self.topic is None:
            return []
        return [PartitionId(self.topic, number) for number in range(self._partition_count)]

    # The operator

    def begin(self) -> None:
        self._create_topic()

    def _create_topic(self) -> None:
        """Until somebody says that it is done, or the metadata say so."""
        created = self.image().topic_ids.get("events")
        if created is not None:
            self._created(created)
            return
        self._asked_admin += 1
        node = self.kernel.randoms.workload.choice(list(self.simulation.hosts))
        create = CreateTopic(
            "events", self._options["partitions"], 3, configs=(("min.insync.replicas", str(self._options["min_isr"])),)
        )
        self.simulation.hosts[node].ask(CONTROLLER, _ADMIN + self._asked_admin, create)
        self.kernel.schedule(200 * MILLISECOND, self._create_topic)

    def _created(self, topic: str) -> None:
        if self.topic is not None:
            return
        self.topic = topic
        self.serve(self._options["partitions"])
        self.operator.begin()
        self.groups.begin()
        self.shares.begin()
        self.questions.begin()
        self.transactions.begin()
        self.shrinking.begin()
        self.throttling.begin()
        if self._options["passing_ms"]:
            PassingTopic(self, every_ms=self._options["passing_ms"]).begin()

    def serve(self, partition_count: int) -> None:
        """The topic has so many partitions: those that are new get clients."""
        for number in range(self._partition_count, partition_count):
            self._partition_count = number + 1
            self._begin_clients(PartitionId(self.topic or "", number))

    def _begin_clients(self, partition: PartitionId) -> None:
        clients: list[ProducerClient | ConsumerClient] = []
        for _ in range(self._options["producers"]):
            self._producers.append(ProducerClient(self, _FIRST_PRODUCER + len(self._producers), partition))
            clients.append(self._producers[-1])
        consumers = [ConsumerClient(self, partition, committed_only=committed) for committed in (False, True)]
        self._consumers += consumers
        for client in (*clients, *consumers):
            client.begin()

    # Clients

    def believed_leader(self, partition: PartitionId) -> int | None:
        """What a node picked by chance says; it may be behind, or down."""
        return self.believed(partition)[0]

    def believed(self, partition: PartitionId) -> tuple[int | None, int]:
        """Likewise the leader and its epoch; -1 where the node knows of none."""
        node = self.kernel.randoms.workload.choice(list(self.simulation.hosts))
        broker = self.broker(node)
        state = broker.image.partition(partition) if broker is not None else None
        return (state.leader, state.leader_epoch) if state is not None else (None, -1)

    def ask(self, node: int, number: int, partition: PartitionId, body: Any) -> None:
        self.simulation.hosts[node].ask(BROKER, number, ForPartition(partition, body))

    def replied(self, host: Host, request: int, response: Any) -> None:
        if request >= FIRST_SHARE_REQUEST:
            self.shares.replied(request, response)
            return
        if request >= FIRST_QUESTION:
            self.questions.replied(host, request, response)
            return
        if request >= FIRST_TRANSACTION_REQUEST:
            self.transactions.replied(request, response)
            return
        if request >= FIRST_GROUP_REQUEST:
            self.groups.replied(host, request, response)
            return
        if request >= FIRST_REQUEST:
            self.operator.replied(request, response)
            return
        if request >= _ADMIN:
            if isinstance(response, Done) and response.topic_id is not None:
                self._created(response.topic_id)
            return
        if isinstance(response, ReadBatches) and response.batches:
            replica = self.replica(host.id, self.requests.partition_of(request))
            self.kernel.counters["read by followers"] += replica is not None and replica.leader is None
        if isinstance(response, Produced):
            self.checks.acknowledges(host, self.requests.partition_of(request), response)
        delay = self.kernel.randoms.workload.expovariate(1.0) * 2 * MILLISECOND
        if self.kernel.randoms.workload.random() > 0.02:
            self.kernel.schedule(int(delay), self.requests.answer, request, response)

    def acknowledged(self, partition: PartitionId, offset: int, value: bytes) -> None:
        self.kernel.counters["acknowledged"] += 1
        self.promises.acknowledge(partition, offset, value)
        self.questions.acknowledged(partition, offset)

    def read_committed(self, value: bytes) -> None:
        if value in self.promises.aborted:
            raise InvariantViolated("I16", f"{value!r} was read, and its transaction was not committed")

    # Promises

    def stepped(self, host: Host, machine: str, given: Input, effects: Sequence[Effect]) -> None:
        if machine == CONTROLLER:
            controller = host.running[CONTROLLER].machine
            assert isinstance(controller, Controller)
            self.quorum_checks.stepped(controller.quorum, effects)
            return
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.message, AlterPartition):
                self.checks.proposes(effect.message)
        if isinstance(given, Committed):
            broker = self.broker(host.id)
            assert broker is not None
            self.checks.learned(host, broker)
        elif isinstance(given, Asked):
            self.checks.answers(host, given.body, effects)

    def healed(self) -> None:
        self.kernel.schedule(_STILL_BUSY_MS * MILLISECOND, self._stop_producers)
        self.groups.heal()
        self.shares.heal()

    def _stop_producers(self) -> None:
        self.quiet = True

    def missing(self) -> str | None:
        if not self.quiet:
            return "the producers go on"
        if self.topic is None:
            return "the topic is not made"
        traffic = (
            self.groups.missing() or self.shares.missing() or self.transactions.missing() or self.shrinking.missing()
        )
        return self.checks.missing() or self._unanswered() or traffic

    def _unanswered(self) -> str | None:
        if any(client.waiting for client in self._producers):
            return "producers wait for answers"
        for consumer in self._consumers:
            end = self.checks.end_of(consumer.partition)
            if consumer.offset < end:
                return f"a consumer of partition {consumer.partition.number} is at {consumer.offset} of {end}"
        return None

    def finish(self) -> None:
        self.checks.finish()
        self.transactions.finish()
        self.shrinking.finish()

    def line(self, host: Host) -> str:
        controller, broker = self.controller(host.id), self.broker(host.id)
        if controller is None or broker is None:
            return host.broken or ""
        quorum = controller.quorum
        replicas = "; ".join(self._replica_line(replica) for replica in broker.replicas.values())
        return (
            f"{quorum.role.value:<9} term {quorum.term:<3} commit {quorum.commit:<4} broker epoch {broker.epoch}"
            f" {'fenced' if broker.fenced else 'live'} knows {broker.image.index}: {replicas}"
        )

    def _replica_line(self, replica: Replica) -> str:
        core = replica.core
        role = "leads" if replica.leader else "follows" if replica.follower else "idle"
        members = sorted(replica.leader.in_sync.maximal) if replica.leader else ""
        return (
            f"{core.partition.number} {role} epoch {core.leader_epoch} hw {core.high_watermark}"
            f" durable {core.durable_offset} end {core.log.end_offset} {members}"
        )
