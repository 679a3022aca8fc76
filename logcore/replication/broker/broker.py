"""A broker: the replicas of a node, the committed metadata, and the node's registration with the controller.

A broker starts with its registration. Until that is committed, and the metadata are applied up to it, no replica does
anything (R7). From then on heartbeats keep the broker registered.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, assert_never

from millstream.errors import LogError

from ...topic_rules import TRANSACTIONS_TOPIC
from ..controller.controller_messages import (
    BrokerAccepted,
    BrokerRefused,
    ControllerMessage,
    HeartbeatAnswer,
    ProducerIds,
    StandingMessage,
)
from ..controller.controller_requests import ControllerRequest
from ..controller.metadata_image import MetadataImage, folded
from ..controller.metadata_records import (
    BrokerFenced,
    BrokerUnfenced,
    ConfigChanged,
    PartitionState,
    Together,
    TopicDeleted,
)
from ..controller.operations_messages import DescribeReplicas, ReplicasDescribed
from ..controller.partition_rules import is_alone
from ..machine import (
    Asked,
    Committed,
    Effect,
    Input,
    NodeId,
    Operation,
    Persist,
    Persisted,
    Received,
    Reply,
    RequestId,
    Send,
    Tick,
)
from ..raft.quorum_messages import LogRecord, QuorumMessage
from ..replica.replica import Replica, ReplicaSettings
from ..replica.replica_core import NEVER_MS, NodeTime
from ..replica.replica_figures import described
from ..replica.replica_log import ReplicaLog
from ..replica.replica_messages import (
    ACTIVE_CONTROLLER,
    COORDINATOR,
    AlterPartition,
    AskEpochEnd,
    AskOffsets,
    FetchRefused,
    FetchRequest,
    ForPartition,
    MetadataChanged,
    PartitionId,
    Problem,
    Read,
    Refused,
    ReplicaAnswer,
)
from ..replica.throttle import Throttle, throttled_rates
from ..shards.coordination import CoordinationSettings, Coordinators
from ..shards.coordination_messages import ForEveryShard, ForGroup, ForTransaction, ShardAnswer, ShardView, place_of
from ..shards.led_log import ShardMaker
from ..shards.transaction_messages import (
    AskOutcome,
    AskProducerId,
    ForCoordinators,
    ProducerGiven,
    ReplicaMessage,
    ShardMessage,
    ToCoordinator,
    ToEveryCoordinator,
)
from .alarms import Alarms
from .leader_lease import LeaderLease
from .producer_ids import ProducerIdPool
from .registration import BrokerIdentity, HeartbeatTimes, Registration

if TYPE_CHECKING:
    from ..machine_messages import Message, Request

_READS: Final = (Read, AskOffsets, AskEpochEnd)


@dataclass(frozen=True, slots=True)
class ReplicaBrokerSettings:
    """Times in milliseconds. A broker that is silent for the controller's session time is fenced."""

    heartbeat_ms: int = 500
    register_ms: int = 500
    producer_ids: int = 1_000  # per request to the controller
    replica: ReplicaSettings = field(default_factory=ReplicaSettings)
    coordination: CoordinationSettings = field(default_factory=CoordinationSettings)


class ReplicaLogs(Protocol):
    """The logs on a node's disk. `clean`: as far as they can tell, they have everything ever acknowledged (R17)."""

    @property
    def clean(self) -> bool: ...

    @property
    def failed(self) -> bool:
        """Whether a disk has failed for one of them, so that it is no longer usable."""
        ...

    @property
    def opens_late(self) -> bool:
        """Whether a log that no other node copies is opened only when it is requested."""
        ...

    def open(self, partition: PartitionId) -> ReplicaLog:
        """The log of the partition; a new, empty one if there is none. Raises OSError, `LogError`."""
        ...

    def configure(self, topic: str, name: str, config: Mapping[str, str]) -> None:
        """Sets the settings of a topic, for its open logs and those opened later. In: the topic's id and name."""
        ...

    def registered(self) -> None:
        """The controller now knows whether the logs are clean; the next start need not report that again."""
        ...

    def remove(self, partition: PartitionId) -> None: ...

    def stored(self) -> Iterable[PartitionId]:
        """The partitions that have a log here."""
        ...


class _Persisting(NamedTuple):
    operation: Operation
    partition: PartitionId
    of_replica: Operation


class OpenReplica(NamedTuple):
    """Opens a replica that may be resting, for a caller that wants to read its state. Answered with None after that."""

    partition: PartitionId


class LeaveCluster(NamedTuple):
    """The process is about to end: hand over the partitions that it leads. Answered when no more can be handed over."""


BrokerRequest = (
    LeaveCluster
    | DescribeReplicas
    | OpenReplica
    | AskProducerId
    | ForGroup
    | ForTransaction
    | ForEveryShard
    | ForPartition
)
BrokerAnswer = ReplicasDescribed | ProducerGiven | ReplicaAnswer | ShardAnswer | tuple[ShardView, ...] | None


class ReplicaBroker:
    """State: the node's registration, the image of committed metadata, and the open replicas of this node.

    A replica that no other node waits for rests until it is requested: a node may have ten thousand of them.
    The broker emits the effects of its replicas as its own, with one sequence of operation numbers for all syncs.
    """

    def __init__(
        self,
        identity: BrokerIdentity,
        logs: ReplicaLogs,
        settings: ReplicaBrokerSettings | None = None,
        coordinators: Mapping[str, ShardMaker] | None = None,
    ) -> None:
        """In: `coordinators`: by topic name, what creates the shards of its partitions."""
        self.identity = identity
        self.settings = settings or ReplicaBrokerSettings()
        self.image = MetadataImage()
        times = HeartbeatTimes(self.settings.register_ms, self.settings.heartbeat_ms)
        self.registration = Registration(identity, times, self.emit)
        self.replicas: dict[PartitionId, Replica] = {}
        self.unopened: dict[PartitionId, str] = {}  # why the log could not be opened
        self.throttle = Throttle()
        self.producer_ids = ProducerIdPool()
        self.coordinators = Coordinators(self, coordinators or {}, self.settings.coordination)
        self._logs = logs
        self._time = NodeTime()
        self._alarms = Alarms()
        self._next_operation = 0
        self._persisting: deque[_Persisting] = deque()
        self._out: list[Effect] = []

    @property
    def epoch(self) -> int | None:
        """The broker epoch, once the registration is committed."""
        return self.registration.epoch

    @property
    def alone(self) -> bool:
        """Whether there is no other node that has records which this one lacks, or that could lead in its place."""
        return self._logs.opens_late

    @property
    def fenced(self) -> bool:
        return self.registration.fenced

    @property
    def lease(self) -> LeaderLease:
        return self.registration.lease

    @property
    def active(self) -> bool:
        """R7: the node is registered, and has applied all metadata up to its registration."""
        return self.epoch is not None and self.image.index >= self.epoch

    def step(self, given: Input) -> list[Effect]:
        match given:
            case Received(sender, message):
                self._receive(sender, message)
            case Asked(request, body):
                self._ask(request, body)
            case Committed():
                self._learn(given)
            case Persisted(operation, failed):
                self._persisted(operation, failed)
            case Tick(now_ms):
                self._tick(given, now_ms)
            case _:
                assert_never(given)
        return self.take_effects()

    def take_effects(self) -> list[Effect]:
        effects, self._out = self._out, []
        return effects

    # Registration and heartbeats

    def _tick(self, tick: Tick, now_ms: int) -> None:
        self._time.now_ms = now_ms
        for partition in list(self.unopened):
            self._adopt_current(partition)
        if self.registration.is_due(now_ms):
            self._speak()
        due = self._alarms.take(now_ms)
        if self._logs.failed:
            due += [partition for partition, replica in self.replicas.items() if not replica.core.log.usable]
        for partition in due:
            self._take(partition, self.replicas[partition].step(tick))
        self.coordinators.tick(now_ms, tick.wall_ms)

    def _speak(self) -> None:
        if self.epoch is None:
            self.registration.register(clean=self._logs.clean)
        elif not self._fails_those_it_leads():
            wanted_ids = self.settings.producer_ids if self.producer_ids.asks else 0
            self.registration.beat(self.epoch, self.image.index, wanted_ids=wanted_ids)

    def _fails_those_it_leads(self) -> bool:
        """Whether its disk fails partitions that another node could lead. Then it is silent, so that after its session
        other nodes lead them. If none could, silence would only take away the leader of its other partitions, again and
        again."""
        states = map(self.image.partition, self.unopened)
        return any(state is not None and self._could_be_replaced(state) for state in states)

    def _could_be_replaced(self, state: PartitionState) -> bool:
        own = self.identity.node
        others = (node for node in (*state.isr, *state.elr) if node != own)
        return state.leader == own and any(map(self.image.is_live, others))

    def _accepted(self, accepted: BrokerAccepted) -> None:
        if self.registration.accepted(accepted):
            self._logs.registered()
            if self.active:
                self._begin()

    def _got_ids(self, ids: ProducerIds) -> None:
        if ids.epoch == self.epoch:
            self.producer_ids.got(ids)
            self._serve_ids()

    def _serve_ids(self) -> None:
        while (served := self.producer_ids.served()) is not None:
            self._out.append(Reply(served[0], ProducerGiven(served[1], 0)))
        if self.producer_ids.asks:
            self.registration.hurry()

    # Metadata

    def _learn(self, committed: Committed) -> None:
        was_active = self.active
        self.image = committed.folded or folded(self.image, committed)
        self.throttle.set_rates(throttled_rates(self.image, self.identity.node))
        self.lease.learned(self.image.index)
        if not self.active:
            return
        if committed.image is not None or not was_active:
            self._begin()
            return
        for record in committed.records:
            for part in record.records if isinstance(record, Together) else (record,):
                self._apply(part)

    def _apply(self, record: LogRecord) -> None:
        if isinstance(record, PartitionState):
            newest = self._newest(record)
            if newest is not None:  # otherwise a later record deletes its topic
                self._adopt(newest)
        elif isinstance(record, TopicDeleted):
            known = {*self.replicas, *self.unopened, *self._logs.stored()}
            for partition in sorted(partition for partition in known if partition.topic == record.topic_id):
                self._drop(partition)
        elif isinstance(record, ConfigChanged):
            self._configure(sorted({partition.topic for partition in self.replicas}))
        elif isinstance(record, BrokerFenced | BrokerUnfenced) and record.broker == self.identity.node:
            self._adopt_alone()

    def _newest(self, state: PartitionState) -> PartitionState | None:
        """The partition's state in the image. A state that a later record has replaced is ignored (R7).

        A node that learns in one step that it left a partition and returned keeps its log, as after a snapshot. If it
        removed the log, a fetch that an earlier record has caused, in the newest leader epoch, would acknowledge
        records of the removed log, and the leader would add the empty replica to the ISR (I8).
        """
        return self.image.partition(PartitionId(state.topic_id, state.partition))

    def _adopt_alone(self) -> None:
        """Updates partitions of which this node has the only replica, after a record about the node itself. Resting
        replicas get the state when they are requested."""
        if self._logs.opens_late:
            for partition in (*self.replicas, *self.unopened):
                self._adopt_current(partition)
            return
        for row in self.image.rows():
            if is_alone(row.first, self.identity.node):
                for state in row.states():
                    self._adopt(state)

    def _configure(self, topics: Iterable[str]) -> None:
        for id in topics:
            topic = self.image.topics.get(id)
            if topic is not None:
                self._logs.configure(id, topic.name, self.image.topic_config(id))

    def _begin(self) -> None:
        """Applies everything in the image that concerns this node: after its registration, or after a snapshot."""
        self._configure(sorted({partition.topic for partition in self.replicas}))
        for partition in (*self.replicas, *self.unopened):
            self._adopt_current(partition)
        for row in self.image.rows():
            if not self._rests(row.first):
                for state in row.states():
                    self._adopt(state)
        for partition in self._strangers():
            self._drop(partition)

    def _strangers(self) -> list[PartitionId]:
        """Logs of partitions that are no longer this node's."""
        ours: defaultdict[str, set[int]] = defaultdict(set)
        for state, count in self.image.rows():
            if self.identity.node in state.replicas:
                ours[state.topic_id].update(range(state.partition, state.partition + count))
        return sorted(each for each in (*self.replicas, *self._logs.stored()) if each.number not in ours[each.topic])

    def _rests(self, state: PartitionState) -> bool:
        """Whether its replica may rest until it is requested: no other node copies it, and it coordinates nothing."""
        return (
            self._logs.opens_late
            and is_alone(state, self.identity.node)
            and not self.coordinators.is_of_coordinators(state.topic_id)
        )

    def _adopt(self, state: PartitionState) -> None:
        """In: `state`: the newest state of the partition."""
        partition = PartitionId(state.topic_id, state.partition)
        known = partition in self.replicas or partition in self.unopened
        if self.identity.node not in state.replicas:
            if known:
                self._drop(partition)
        elif known or not self._rests(state):
            self._adopt_current(partition)

    def _replica(self, partition: PartitionId) -> Replica | None:
        """The replica of this node; opens one that was resting."""
        found = self.replicas.get(partition)
        if found is None and self.active and partition not in self.unopened:
            self._adopt_current(partition)
            found = self.replicas.get(partition)
        return found

    def _adopt_current(self, partition: PartitionId) -> None:
        """Gives the replica its state in the image."""
        current = self.image.partition(partition)
        if current is None or self.identity.node not in current.replicas:
            self.unopened.pop(partition, None)
            return
        replica = self.replicas.get(partition) or self._open(partition)
        if replica is not None:
            changed = MetadataChanged(current, self.image.index)
            self._take(partition, replica.step(Received(self.identity.node, changed)))

    def _open(self, partition: PartitionId) -> Replica | None:
        """None if the disk refuses. Then each tick tries again, and other replicas continue."""
        assert self.epoch is not None
        self._configure((partition.topic,))
        try:
            log = self._logs.open(partition)
        except (OSError, LogError) as error:
            self.unopened[partition] = str(error)
            return None
        self.unopened.pop(partition, None)
        own, settings = self.identity.node, self.settings.replica
        epoch, time, alone = self.epoch, self._time, self.alone
        replica = Replica(own, partition, log, settings, epoch, epoch, self.throttle, time, node_alone=alone)
        self.replicas[partition] = replica
        return replica

    def _drop(self, partition: PartitionId) -> None:
        """The partition is no longer this node's: answers waiting requests, and removes the log."""
        self.unopened.pop(partition, None)
        self._alarms.set(partition, NEVER_MS)
        replica = self.replicas.pop(partition, None)
        if replica is not None:
            self._take(partition, replica.resign())
            self._persisting = deque(each for each in self._persisting if each.partition != partition)
        self._logs.remove(partition)

    # Replicas

    def _receive(self, sender: NodeId, message: Message) -> None:
        match message:
            case BrokerAccepted():
                self._accepted(message)
            case BrokerRefused():
                self.registration.refused(message)
            case HeartbeatAnswer():
                self.registration.heard(message, self.image.index)
            case ProducerIds():
                self._got_ids(message)
            case _:
                self._to_replica(sender, message)

    def _to_replica(self, sender: NodeId, message: Message) -> None:
        if not isinstance(message, ReplicaMessage):
            if not isinstance(message, ShardMessage):
                foreign: QuorumMessage | ControllerMessage | StandingMessage | ForCoordinators = message
                raise AssertionError(f"not for a broker: {foreign!r}")
            self.coordinators.receive(sender, message)
            return
        partition = message.partition
        replica = self._replica(partition)
        if replica is not None:
            self._take(partition, replica.step(Received(sender, message)))
        elif isinstance(message, FetchRequest):
            problem = Problem.UNKNOWN_PARTITION
            answer = FetchRefused(partition, message.leader_epoch, message.correlation, problem, 0)
            self._out.append(Send(sender, answer))

    def _ask(self, request: RequestId, body: Request) -> None:
        match body:
            case LeaveCluster():
                self.registration.leave(request)
            case DescribeReplicas():
                self._open_all()
                self._out.append(Reply(request, described(self.replicas, self.unopened)))
            case OpenReplica(partition):
                self._replica(partition)
                self._out.append(Reply(request, None))
            case AskProducerId() if self.producer_ids.is_crowded:
                text = "too many wait for producer ids, which the controller does not give now; ask again"
                self._out.append(Reply(request, Refused(Problem.COORDINATOR_NOT_AVAILABLE, text)))
            case AskProducerId():
                self.producer_ids.wait_for_id(request)
                self._serve_ids()
            case ForGroup() | ForTransaction() | ForEveryShard():
                self.coordinators.ask(request, body)
            case ForPartition(partition, asked):
                replica = self._replica(partition)
                if replica is None:
                    text = f"node {self.identity.node} has no replica of {partition.topic}-{partition.number}"
                    self._out.append(Reply(request, Refused(Problem.UNKNOWN_PARTITION, text)))
                elif isinstance(asked, _READS) and replica.leader is not None and not self.leads_for_certain():
                    text = f"node {self.identity.node} is out of touch with the controller: another one may lead by now"
                    self._out.append(Reply(request, Refused(Problem.NOT_LEADER, text)))
                else:
                    self._take(partition, replica.step(Asked(request, asked)))
            case _:
                foreign: ControllerRequest = body
                raise AssertionError(f"not a request to a broker: {foreign!r}")

    def _open_all(self) -> None:
        """Opens resting replicas, too, because the description contains their sizes."""
        for row in self.image.rows():
            if self._rests(row.first):
                for state in row.states():
                    self._replica(PartitionId(state.topic_id, state.partition))

    def leads_for_certain(self) -> bool:
        """Whether the partitions that this node believes to lead cannot have another leader yet (T-L4)."""
        return self.lease.holds(self._time.now_ms)

    def _take(self, partition: PartitionId, effects: list[Effect]) -> None:
        """Passes on a replica's effects. If the replica is a coordinator's, the shard may now be able to continue."""
        self.pass_on(partition, effects)
        if self.coordinators.coordinates(partition):
            self.coordinators.advance(partition)

    def emit(self, effect: Effect) -> None:
        self._out.append(effect)

    def pass_on(self, partition: PartitionId, effects: list[Effect]) -> None:
        """Turns a replica's effects into effects of this machine."""
        for effect in effects:
            match effect:
                case Persist(of_replica, change):
                    operation = Operation(self._next_operation)
                    self._next_operation += 1
                    self._persisting.append(_Persisting(operation, partition, of_replica))
                    self._out.append(Persist(operation, change))
                case Send(to, message) if to == ACTIVE_CONTROLLER:
                    assert isinstance(message, AlterPartition), "replicas say nothing else to the controller"
                    self.registration.say(message)
                case Send(to, ToEveryCoordinator(message)) if to == COORDINATOR:
                    self._say_to_every_coordinator(message)
                case Send(to, message) if to == COORDINATOR:
                    assert isinstance(message, ToCoordinator), "one coordinator, or every one"
                    self._say_to_coordinator(message)
                case _:
                    self._out.append(effect)
        replica = self.replicas.get(partition)
        if replica is not None:
            self._alarms.set(partition, replica.due_ms)

    def _say_to_coordinator(self, message: ToCoordinator) -> None:
        """Sends nothing if there is no coordinator now; the replica repeats the message."""
        place = place_of(self.image, TRANSACTIONS_TOPIC, message.transactional_id)
        state = self.image.partition(place) if place is not None else None
        if place is not None and state is not None and state.leader is not None:
            self._out.append(Send(state.leader, message.message._replace(partition=place)))

    def _say_to_every_coordinator(self, message: AskOutcome) -> None:
        topic = self.image.topics.get(self.image.topic_ids.get(TRANSACTIONS_TOPIC, ""))
        for state in topic.partitions if topic is not None else ():
            if state.leader is not None:
                place = PartitionId(state.topic_id, state.partition)
                self._out.append(Send(state.leader, message._replace(partition=place)))

    def _persisted(self, operation: Operation, failed: str | None) -> None:
        """The sync covers all syncs requested before it; each replica is told only the last one of its own."""
        done: dict[PartitionId, Operation] = {}
        while self._persisting and self._persisting[0].operation <= operation:
            _, partition, of_replica = self._persisting.popleft()
            done[partition] = of_replica
        for partition, of_replica in done.items():
            replica = self.replicas.get(partition)
            if replica is not None:
                self._take(partition, replica.step(Persisted(of_replica, failed)))
