"""A broker: the replicas of a node, the metadata they live by, and the node's standing with the controller.

The life of a broker begins with its registration. Until that is committed, and the metadata applied up to it, none of
its replicas does anything (R7); from then on it is kept alive by heartbeats.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from millstream.errors import LogError

from .controller_messages import (
    BrokerAccepted,
    BrokerHeartbeat,
    BrokerRefused,
    HeartbeatAnswer,
    ProducerIds,
    RegisterBroker,
    ReserveProducerIds,
)
from .machine import (
    CONTROLLER,
    Asked,
    Committed,
    Effect,
    Input,
    NodeId,
    Operation,
    Panic,
    Persist,
    Persisted,
    Received,
    Reply,
    RequestId,
    Send,
    Tick,
)
from .metadata_image import MetadataImage, fold
from .metadata_records import PartitionState, Together, TopicDeleted
from .replica import Replica, ReplicaSettings
from .replica_log import ReplicaLog
from .replica_messages import (
    ACTIVE_CONTROLLER,
    FetchRefused,
    FetchRequest,
    ForPartition,
    MetadataChanged,
    PartitionId,
    Problem,
    Refused,
)


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Times in milliseconds. A broker that is not heard for the controller's session time is fenced."""

    heartbeat_ms: int = 500
    register_ms: int = 500
    producer_ids: int = 1_000  # asked for at a time
    replica: ReplicaSettings = field(default_factory=ReplicaSettings)


class ReplicaLogs(Protocol):
    """The logs on a node's disk. `clean`: all that was ever acknowledged is in them, as far as they can tell (R17)."""

    @property
    def clean(self) -> bool: ...

    def open(self, partition: PartitionId) -> ReplicaLog:
        """The log of the partition, empty where there is none. Raises OSError, `LogError`."""
        ...

    def remove(self, partition: PartitionId) -> None: ...

    def stored(self) -> Iterable[PartitionId]:
        """The partitions that have a log here."""
        ...


class Identity(NamedTuple):
    """Who a process is: `incarnation` counts the starts of the node, on its disk (R8)."""

    cluster: str
    node: NodeId
    incarnation: int
    endpoint: str
    rack: str | None = None


class _Persisting(NamedTuple):
    operation: Operation
    partition: PartitionId
    of_replica: Operation


class Leave(NamedTuple):
    """The process is about to end: what it leads is handed over. Answered when nothing is left to hand over."""


class AskProducerIds(NamedTuple):
    """Answered with `ProducerIds` that nobody else gets."""


class Broker:
    """State: the registration, the image of committed metadata, the replicas of this node.

    The replicas' effects go out as its own: syncs are numbered anew, one sequence for all of them.
    """

    def __init__(self, identity: Identity, logs: ReplicaLogs, settings: BrokerSettings | None = None) -> None:
        self.identity = identity
        self.settings = settings or BrokerSettings()
        self.image = MetadataImage()
        self.epoch: int | None = None  # of the registration, once it is committed
        self.fenced = True
        self.replicas: dict[PartitionId, Replica] = {}
        self.unopened: dict[PartitionId, str] = {}  # why the disk does not give the log
        self._logs = logs
        self._now_ms = 0
        self._speaks_at_ms = 0
        self._beats = 0
        self._leaving: RequestId | None = None
        self._wants_ids: deque[RequestId] = deque()
        self._next_operation = 0
        self._persisting: deque[_Persisting] = deque()
        self._out: list[Effect] = []

    @property
    def active(self) -> bool:
        """R7: registered, and aware of all that was decided before."""
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
        effects, self._out = self._out, []
        return effects

    # Standing with the controller

    def _tick(self, tick: Tick, now_ms: int) -> None:
        self._now_ms = now_ms
        for partition in list(self.unopened):
            self._adopt_current(partition)
        if now_ms >= self._speaks_at_ms:
            if self.epoch is None:
                self._register()
            elif not self._fails_those_it_leads():
                self._beat(self.epoch)
        for partition, replica in self.replicas.items():
            self._take(partition, replica.step(tick))

    def _register(self) -> None:
        who = self.identity
        self._speaks_at_ms = self._now_ms + self.settings.register_ms
        self._say(RegisterBroker(who.cluster, who.node, who.incarnation, self._logs.clean, who.endpoint, who.rack))

    def _beat(self, epoch: int) -> None:
        self._beats += 1
        self._speaks_at_ms = self._now_ms + self.settings.heartbeat_ms
        who, leaving = self.identity, self._leaving is not None
        self._say(BrokerHeartbeat(who.cluster, who.node, epoch, self._beats, self.image.index, leaving))
        if self._wants_ids:
            self._say(ReserveProducerIds(who.cluster, who.node, epoch, self._beats, self.settings.producer_ids))

    def _fails_those_it_leads(self) -> bool:
        """Then it is silent, and after its session somebody else leads them."""
        states = map(self.image.partition, self.unopened)
        return any(state is not None and state.leader == self.identity.node for state in states)

    def _say(self, message: Any) -> None:
        """To the controller of this node, which passes it on to the one that decides."""
        self._out.append(Send(self.identity.node, message, CONTROLLER))

    def _accepted(self, accepted: BrokerAccepted) -> None:
        if accepted.incarnation == self.identity.incarnation and self.epoch is None:
            self.epoch = accepted.epoch
            self._speaks_at_ms = self._now_ms
            if self.active:
                self._begin()

    def _refused(self, refused: BrokerRefused) -> None:
        if refused.incarnation == self.identity.incarnation:
            self._out.append(Panic(f"the cluster does not take this node: {refused.reason}"))

    def _heard(self, answer: HeartbeatAnswer) -> None:
        if answer.epoch != self.epoch:
            return
        if not answer.known:
            self._out.append(Panic("this registration is over: another process is this node, or the node was removed"))
            return
        self.fenced = answer.fenced
        if self._leaving is not None and answer.fenced:
            self._out.append(Reply(self._leaving, None))
            self._leaving = None

    def _got_ids(self, ids: ProducerIds) -> None:
        if ids.epoch == self.epoch and self._wants_ids:
            self._out.append(Reply(self._wants_ids.popleft(), ids))

    # Metadata

    def _learn(self, committed: Committed) -> None:
        was_active = self.active
        if committed.image is not None:
            self.image = committed.image
        for index, record in enumerate(committed.records, committed.first_index):
            self.image = fold(self.image, index, record)
        if not self.active:
            return
        if committed.image is not None or not was_active:
            self._begin()
            return
        for record in committed.records:
            for part in record.records if isinstance(record, Together) else (record,):
                self._apply(part)

    def _apply(self, record: Any) -> None:
        if isinstance(record, PartitionState):
            self._adopt(record)
        elif isinstance(record, TopicDeleted):
            for partition in [known for known in self.replicas if known.topic == record.topic_id]:
                self._drop(partition)

    def _begin(self) -> None:
        """All that the image says of this node: at the start of a life, or after a snapshot."""
        for state in self.image.partitions():
            self._adopt(state)
        for partition in sorted({*self.replicas, *self._logs.stored()}):
            state = self.image.partition(partition)
            if state is None or self.identity.node not in state.replicas:
                self._drop(partition)

    def _adopt(self, state: PartitionState) -> None:
        partition = PartitionId(state.topic_id, state.partition)
        if self.identity.node in state.replicas:
            self._adopt_current(partition)
        elif partition in self.replicas or partition in self.unopened:
            self._drop(partition)

    def _adopt_current(self, partition: PartitionId) -> None:
        """Tells the replica what the image says of it, which may be of a later record than the one looked at."""
        current = self.image.partition(partition)
        if current is None or self.identity.node not in current.replicas:
            self.unopened.pop(partition, None)
            return
        replica = self.replicas.get(partition) or self._open(partition)
        if replica is not None:
            self._take(partition, replica.step(Tick(self._now_ms)))
            changed = MetadataChanged(current, self.image.index)
            self._take(partition, replica.step(Received(self.identity.node, changed)))

    def _open(self, partition: PartitionId) -> Replica | None:
        """None where the disk refuses; then it is tried again, and the other replicas go on."""
        assert self.epoch is not None
        try:
            log = self._logs.open(partition)
        except (OSError, LogError) as error:
            self.unopened[partition] = str(error)
            return None
        self.unopened.pop(partition, None)
        replica = Replica(self.identity.node, partition, log, self.settings.replica, self.epoch, self.epoch)
        self.replicas[partition] = replica
        return replica

    def _drop(self, partition: PartitionId) -> None:
        """The partition is no longer this node's: who waits is told, and the log goes."""
        self.unopened.pop(partition, None)
        replica = self.replicas.pop(partition, None)
        if replica is not None:
            self._take(partition, replica.resign())
            self._persisting = deque(each for each in self._persisting if each.partition != partition)
        self._logs.remove(partition)

    # Replicas

    def _receive(self, sender: NodeId, message: Any) -> None:
        match message:
            case BrokerAccepted():
                self._accepted(message)
            case BrokerRefused():
                self._refused(message)
            case HeartbeatAnswer():
                self._heard(message)
            case ProducerIds():
                self._got_ids(message)
            case _:
                self._to_replica(sender, message)

    def _to_replica(self, sender: NodeId, message: Any) -> None:
        partition: PartitionId = message.partition
        replica = self.replicas.get(partition)
        if replica is not None:
            self._take(partition, replica.step(Received(sender, message)))
        elif isinstance(message, FetchRequest):
            problem = Problem.UNKNOWN_PARTITION
            answer = FetchRefused(partition, message.leader_epoch, message.correlation, problem, 0)
            self._out.append(Send(sender, answer))

    def _ask(self, request: RequestId, body: Any) -> None:
        match body:
            case Leave():
                self._leaving = request
                self._speaks_at_ms = self._now_ms
            case AskProducerIds():
                self._wants_ids.append(request)
                self._speaks_at_ms = self._now_ms
            case ForPartition(partition, asked):
                replica = self.replicas.get(partition)
                if replica is None:
                    text = f"node {self.identity.node} has no replica of {partition.topic}-{partition.number}"
                    self._out.append(Reply(request, Refused(Problem.UNKNOWN_PARTITION, text)))
                else:
                    self._take(partition, replica.step(Asked(request, asked)))
            case _:
                raise AssertionError(f"unknown request {body!r}")

    def _take(self, partition: PartitionId, effects: list[Effect]) -> None:
        """Passes on what a replica wants done."""
        for effect in effects:
            match effect:
                case Persist(of_replica, change):
                    operation = Operation(self._next_operation)
                    self._next_operation += 1
                    self._persisting.append(_Persisting(operation, partition, of_replica))
                    self._out.append(Persist(operation, change))
                case Send(to, message) if to == ACTIVE_CONTROLLER:
                    self._say(message)
                case _:
                    self._out.append(effect)

    def _persisted(self, operation: Operation, failed: str | None) -> None:
        """Stands for all syncs that were asked for before this one."""
        while self._persisting and self._persisting[0].operation <= operation:
            _, partition, of_replica = self._persisting.popleft()
            replica = self.replicas.get(partition)
            if replica is not None:
                self._take(partition, replica.step(Persisted(of_replica, failed)))
