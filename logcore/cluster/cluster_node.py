"""One node of a cluster in this process: its files, its machines, and the requests of other threads to them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack, suppress
from pathlib import Path
from random import SystemRandom
from typing import Final, TypeVar

from millstream.errors import LogError

from ..error_codes import ErrorCode
from ..errors import CorruptLog, LogClosed, NotNow, unusable_directory
from ..replication.broker.broker import LeaveCluster, OpenReplica, ReplicaBroker
from ..replication.broker.lone_leaders import LoneLeaders
from ..replication.broker.registration import BrokerIdentity
from ..replication.controller.controller import Controller
from ..replication.controller.controller_messages import Done, NotController, Refused
from ..replication.controller.controller_requests import DecidedRequest, LeaderAnswer, LeaderRequest
from ..replication.controller.metadata_codec import LaterRecord
from ..replication.controller.metadata_image import ImageCodec, MetadataImage
from ..replication.controller.metadata_records import Endpoints
from ..replication.controller.operations_messages import QuorumDescription
from ..replication.disk.disk_folder import DiskFolder
from ..replication.disk.disk_logs import DiskLogs
from ..replication.machine import BROKER, CONTROLLER, NodeId
from ..replication.machine_messages import Answer, Request
from ..replication.node.lone_node import LoneNode
from ..replication.node.node_links import LinkTraffic, Peers
from ..replication.node.node_runtime import ASK_S, Awaiting, NoAnswer, NodeRuntime, NodeStopped, Running
from ..replication.raft.quorum import Quorum
from ..replication.raft.quorum_files import QuorumDamaged, QuorumFiles
from ..replication.replica.replica import Replica
from ..replication.replica.replica_messages import ForPartition, PartitionId, Produce, ReplicaRequest
from ..replication.shards.coordination_messages import ForGroup, ForTransaction
from ..replication.shards.coordinators import default_makers
from ..replication.shards.group_shard import GroupSettings
from ..replication.shards.transaction_shard import TransactionSettings
from .peers import PeerFollower
from .settings import ClusterSettings
from .watch import MetadataWatch

WATCH: Final = "watch"
_AGAIN_S: Final = 0.05
_ANSWER_S: Final = 2.0  # the time for a controller's answer, before another node is asked
_DECIDED_S: Final = 10.0
_ALONE_S: Final = 0.5  # after this time no node is expected to take over from a leaving one
_LOOK_S: Final = 0.05

Changed = Callable[[MetadataImage], None]
_Result = TypeVar("_Result")


class CannotListenToNodes(LogError):
    """The node cannot listen at its address for the other nodes of the cluster."""

    code = "CANNOT_LISTEN_TO_NODES"


class WrittenByLaterRelease(LogError):
    """The cluster of this directory uses a version that is newer than this release."""

    code = "WRITTEN_BY_LATER_RELEASE"


def _check_whole(logs: Path, metadata: Path) -> None:
    """Checks the directory of a single node. Logs that are not in the metadata are removed, so without metadata all of
    them would be. Raises `CorruptLog`."""
    decided = metadata.exists() and any(metadata.iterdir())
    if logs.exists() == decided or (logs.exists() and not any(logs.glob("*-*"))):
        return
    there, missing = (logs, metadata) if logs.exists() else (metadata, logs)
    raise CorruptLog(f"{missing} is missing, though there is {there}", hint="Restore it from a backup.")


class ClusterNode:
    """State: the files, the machines once started, and the listeners for new metadata. Any thread may call any method.

    `panicked(reason)` is called once, on the node's thread, when the node cannot continue: the process must end.
    """

    def __init__(
        self,
        settings: ClusterSettings,
        panicked: Callable[[str], None] = lambda reason: None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Opens and recovers the files. In: `clock`: the time of day, in seconds. Raises `LogError`."""
        self.settings = settings
        self._clock = clock
        self.failure: str | None = None
        self.advanced: Callable[[PartitionId], None] = lambda partition: None
        """It is called on the node's thread when this replica of the node has more to read."""
        self.expires: Callable[[str], bool] = lambda group: not group.startswith("_millstream")
        """Whether offsets of this group may expire. It is called on the node's thread."""
        self._panicked = panicked
        self._listeners: tuple[Changed, ...] = ()
        self._news = threading.Condition()
        self._broker: ReplicaBroker | None = None
        self._controller: Controller | None = None
        self._node: NodeRuntime | LoneNode | None = None
        self.watch = MetadataWatch(
            settings.node, lambda: self._broker is not None and self._broker.active, self._controller_heard_ms
        )
        self.watch.listen(self._changed)
        if settings.alone:
            _check_whole(settings.folder / "replicas", settings.folder / "quorum")
        with ExitStack() as opened:
            self.logs = DiskLogs(
                settings.folder,
                settings.node,
                settings.name,
                opens_late=settings.alone,
                others=len(settings.members) > 1,
                on_advance=lambda partition: self.advanced(partition),
                now_ms=self.now_ms,
                expiry=settings.expiry,
                durable=settings.durable,
            )
            opened.callback(self.logs.close)
            self.logs.wake = self.replica
            self._files = self._quorum_files()
            opened.callback(self._files.close)
            self._parts = opened.pop_all()

    def _quorum_files(self) -> QuorumFiles:
        settings = self.settings
        try:
            folder = DiskFolder(settings.folder / "quorum", durable=settings.durable)
            return QuorumFiles(folder, settings.voters, ImageCodec(), disk=self.logs.disk, durable=settings.durable)
        except OSError as error:
            raise unusable_directory(error, settings.folder) from error
        except LaterRecord as error:
            raise WrittenByLaterRelease(
                f"the metadata in {settings.folder / 'quorum'} were written by a later release: {error}",
                hint="Start that release. To go back to an earlier one, restore a backup that was taken with it.",
            ) from error
        except QuorumDamaged as error:
            anew = "take this node out of the cluster and let it in with an empty directory"
            raise CorruptLog(
                f"the metadata in {settings.folder / 'quorum'} are damaged: {error}",
                hint="Restore the directory from a backup." if settings.alone else f"Restore the file, or {anew}.",
            ) from error

    # Life

    def start(self, endpoints: Endpoints) -> None:
        """`endpoints`: the addresses for clients. Returns when other nodes can connect; see `wait_until_live`.

        Raises `CannotListenToNodes`.
        """
        settings = self.settings
        seed = SystemRandom().getrandbits(32)
        quorum = Quorum(settings.node, settings.name, self._files.recovered, seed=seed, settings=settings.of_quorum)
        self._controller = Controller(quorum, settings.of_controller)
        own = settings.members[settings.node]
        where = (*endpoints, ("node", f"{own.host}:{own.port}"))
        groups = GroupSettings(settings.expiry, expires=lambda group: self.expires(group))
        transactions = TransactionSettings(expire_ms=settings.expiry.transactional_ids_ms)
        identity = BrokerIdentity(
            settings.name, settings.node, self.logs.incarnation, where, settings.rack, self.logs.disk
        )
        self._broker = ReplicaBroker(identity, self.logs, settings.of_broker, default_makers(groups, transactions))
        machines = {
            CONTROLLER: Running(self._controller, self._files),
            BROKER: Running(self._broker, self.logs),
            WATCH: Running(self.watch, self.watch),  # after the broker, since it reports what the broker knows
        }
        node = self._node_of(machines, self._broker)
        self.listen(PeerFollower(settings.members, node.set_peer, listed=settings.addresses_listed))
        self.listen(lambda image: node.use_version(image.version))
        try:
            node.start()
        except OSError as error:
            node.stop()
            raise CannotListenToNodes(
                f"cannot listen at {own.host}:{own.port}, where the other nodes look for node {settings.node}: {error}",
                hint="Another process may use the port; the address is the one of this node in the list of nodes.",
            ) from error
        self._node = node
        self.logs.start_housekeeping()

    def _node_of(self, machines: Mapping[str, Running], broker: ReplicaBroker) -> NodeRuntime | LoneNode:
        settings = self.settings
        if settings.alone:
            leaders = LoneLeaders(broker, self.logs)
            return LoneNode(settings.node, machines, self._panic, lambda: self.serving, self.now_ms, leaders)
        peers = Peers(
            settings.name, settings.node, settings.secret, settings.members, settings.serving, settings.connecting
        )
        return NodeRuntime(peers, machines, self._panic, self.now_ms)

    def wait_until_serving(self, timeout_s: float) -> bool:
        """Whether the node serves within `timeout_s`. Only for a single node."""
        assert isinstance(self._node, LoneNode)
        self._node.served.wait(timeout_s)
        return self.serving

    def wait_until_live(self, timeout_s: float) -> bool:
        """Whether the cluster considers this node live within `timeout_s`."""
        return self.wait_for(lambda image: image.is_live(self.id), timeout_s)

    def leave(self, timeout_s: float = 5.0) -> None:
        """Hands over the partitions that this node leads, if other nodes can take them. After that it should stop."""
        if self._node is None or self.failure is not None:
            return
        left, now = self._node.ask(BROKER, LeaveCluster()), time.monotonic()
        deadline, in_company = now + timeout_s, now
        while now < min(deadline, in_company + _ALONE_S):
            if not wait([left], _LOOK_S).not_done:
                return
            now = time.monotonic()
            if self._has_company():
                in_company = now

    def _has_company(self) -> bool:
        """Whether another node could take over, and a majority could decide that."""
        assert self._controller is not None
        voters, traffic = self._controller.quorum.log.voters, self.traffic
        reached = sum(node == self.id or (node in traffic and traffic[node].connected) for node in voters.voters)
        others = any(node != self.id and self.image.is_live(node) for node in self.image.brokers)
        return others and reached >= voters.majority()

    def end(self) -> None:
        """Ends all decisions and writes. Threads that wait for an answer get `NodeStopped`. The files stay open for
        readers. It may be called again."""
        if self._node is not None:
            self._node.stop()

    def stop(self) -> None:
        """Stops immediately, without handing over. It may be called again."""
        self.end()
        with self._news:
            self._news.notify_all()
        self._parts.close()

    def _panic(self, reason: str) -> None:
        self.failure = reason
        self._panicked(reason)

    # What it knows

    def now_ms(self) -> int:
        """The time of day."""
        return int(self._clock() * 1000)

    @property
    def id(self) -> NodeId:
        return self.settings.node

    @property
    def image(self) -> MetadataImage:
        """The cluster's metadata, as far as this node knows them."""
        return self.watch.image

    @property
    def serving(self) -> bool:
        """Whether the node is registered and not fenced."""
        broker = self._broker
        return broker is not None and self.failure is None and broker.epoch is not None and not broker.fenced

    @property
    def cut_off(self) -> bool:
        """Whether no controller has answered for ten seconds: `image` may be out of date."""
        return self.watch.cut_off

    @property
    def leads_for_certain(self) -> bool:
        """Whether no other node can yet lead this node's partitions: its lease still holds at this moment."""
        broker = self._broker
        return broker is not None and broker.lease.holds(time.monotonic_ns() // 1_000_000)

    def _controller_heard_ms(self) -> int | None:
        """When the lease ends or ended; None if there is no other node."""
        broker = self._broker
        return None if broker is None or len(self.image.brokers) < 2 else broker.lease.until_ms

    @property
    def controller(self) -> NodeId | None:
        """The leader of the quorum, as far as this node knows."""
        return self._controller.quorum.leader if self._controller is not None else None

    @property
    def traffic(self) -> Mapping[NodeId, LinkTraffic]:
        """The traffic with each other node."""
        return {} if self._node is None else self._node.traffic

    def partition_id(self, topic: str, partition: int) -> PartitionId | None:
        topic_id = self.image.topic_ids.get(topic)
        return PartitionId(topic_id, partition) if topic_id is not None else None

    def replica(self, partition: PartitionId) -> Replica | None:
        """The replica, only for reading, since it belongs to the node's thread. It is opened if it was not."""
        broker = self._broker
        if broker is None:
            return None
        found = broker.replicas.get(partition)
        if found is None and self._rests(broker, partition):
            with suppress(NoAnswer, NodeStopped):
                self.answer(BROKER, OpenReplica(partition))
            found = broker.replicas.get(partition)
        return found

    def replica_if_open(self, partition: PartitionId) -> Replica | None:
        """The replica if it is open, else None."""
        return None if self._broker is None else self._broker.replicas.get(partition)

    def damage(self, partition: PartitionId) -> CorruptLog | None:
        """The damage of a replica that no other node can replace; None if none is known."""
        found = self.logs.why_unreadable(partition)
        return found if found is not None or self._broker is None else self._broker.coordinators.damage(partition)

    def _rests(self, broker: ReplicaBroker, partition: PartitionId) -> bool:
        """Whether the replica is closed but can be opened. That may wait, so the node's own thread must not do it."""
        if not self.logs.opens_late or partition in broker.unopened or self._node is None or self._node.is_stepping:
            return False
        state = self.image.partition(partition)
        return state is not None and self.id in state.replicas and self.failure is None

    def leads(self, topic: str, partition: int) -> bool:
        """Whether this node leads the partition, as far as it knows. Another one may have been elected."""
        id = self.partition_id(topic, partition)
        if id is None or self._broker is None or self.failure is not None:
            return False
        replica, state = self._broker.replicas.get(id), self.image.partition(id)
        if replica is None:  # it may be closed
            return self.logs.opens_late and self.serving and state is not None and state.leader == self.id
        return replica.leader is not None

    def listen(self, listener: Changed) -> Callable[[], None]:
        """Calls it with each new image of the metadata, on the node's thread, so it must be quick. Returns a function
        that ends this."""
        with self._news:
            self._listeners = (*self._listeners, listener)

        def end() -> None:
            with self._news:
                self._listeners = tuple(other for other in self._listeners if other is not listener)

        return end

    def wait_for(self, condition: Callable[[MetadataImage], bool], timeout_s: float) -> bool:
        """Waits for metadata that meet the condition. Returns whether they came in time."""
        with self._news:
            return self._news.wait_for(lambda: condition(self.image), timeout_s)

    def _changed(self, before: MetadataImage, image: MetadataImage) -> None:
        for listener in self._listeners:
            listener(image)
        with self._news:
            self._news.notify_all()

    # What it is asked

    def ask(self, machine: str, body: Request, *, at: NodeId | None = None, timeout_s: float = ASK_S) -> Future[Answer]:
        """See `NodeRuntime.ask`. Raises `LogClosed`."""
        return self._running().ask(machine, body, at=at, timeout_s=timeout_s)

    def answer(self, machine: str, body: Request, *, at: NodeId | None = None, timeout_s: float = ASK_S) -> Answer:
        """See `NodeRuntime.answer`. Also raises `LogClosed`."""
        return self._running().answer(machine, body, at=at, timeout_s=timeout_s)

    def answers(self, machine: str, bodies: Sequence[Request], *, timeout_s: float = ASK_S) -> list[Answer]:
        """See `LoneNode.answers`. Also raises `LogClosed`."""
        return self._running().answers(machine, bodies, timeout_s=timeout_s)

    def produce(self, partition: PartitionId, asked: Produce, timeout_s: float) -> Answer:
        """See `LoneNode.produce`. Also raises `LogClosed`."""
        return self._running().produce(partition, asked, timeout_s=timeout_s)

    def answer_now(self, asked: ForTransaction | ForGroup, timeout_s: float) -> Answer:
        """See `LoneNode.answer_now`. Also raises `LogClosed`."""
        return self._running().answer_now(asked, timeout_s=timeout_s)

    def commit(self, partitions: Sequence[PartitionId]) -> list[Answer]:
        """See `LoneNode.commit`. Also raises `LogClosed`."""
        return self._running().commit(partitions)

    def begin_produce(self, partition: PartitionId, asked: Produce, waiting: Awaiting) -> None:
        """See `LoneNode.begin_produce`. Raises `LogClosed`."""
        self._running().begin_produce(partition, asked, waiting)

    def _running(self) -> NodeRuntime | LoneNode:
        if self._node is None or self.failure is not None:
            raise LogClosed("this node has not started yet" if self._node is None else "this node has ended")
        return self._node

    def tell(self, machine: str, body: Request) -> None:
        """See `NodeRuntime.tell`."""
        if self._node is not None:
            self._node.tell(machine, body)

    def caught_up(self) -> Future[Answer]:
        """See `NodeRuntime.caught_up`."""
        if self._node is None:
            raise LogClosed("this node has not started yet")
        return self._node.caught_up()

    def hold(self, look: Callable[[], _Result]) -> _Result:
        """See `LoneNode.hold`. Also raises `LogClosed`."""
        try:
            return self._running().hold(look)
        except NodeStopped as error:
            raise LogClosed("this node has ended") from error

    def partition_answer(self, partition: PartitionId, body: ReplicaRequest, timeout_s: float = ASK_S) -> Answer:
        """The answer of a replica of this node. Raises `NotNow` and `LogClosed`."""
        try:
            return self.answer(BROKER, ForPartition(partition, body), timeout_s=timeout_s)
        except NodeStopped as error:
            raise LogClosed("this node has ended") from error
        except NoAnswer as error:
            raise NotNow(ErrorCode.request_timed_out, "the replica has not answered in time") from error

    def ask_controller(self, body: LeaderRequest, timeout_s: float = _DECIDED_S) -> LeaderAnswer:
        """Looks for the leader of the quorum, and returns its answer.

        Raises `NotNow` if no node answers in time. The request may have been carried out, or may still be.
        """
        deadline = time.monotonic() + timeout_s
        at, members = self.controller or self.id, sorted(self.settings.members)
        while time.monotonic() < deadline:
            answer = self._answer_of(at, body, min(_ANSWER_S, deadline - time.monotonic()))
            if answer is not None and not isinstance(answer, NotController):
                return answer
            hint = answer.leader if answer is not None else None
            following = members[(members.index(at) + 1) % len(members)] if at in members else members[0]
            at = hint if hint is not None and hint != at else following
            time.sleep(_AGAIN_S)
        raise NotNow(ErrorCode.request_timed_out, "no controller of the cluster has answered in time")

    def _answer_of(self, at: NodeId, body: LeaderRequest, timeout_s: float) -> LeaderAnswer | NotController | None:
        try:
            answer = self.answer(CONTROLLER, body, at=at, timeout_s=timeout_s)
        except NoAnswer:
            return None
        except NodeStopped as error:
            raise LogClosed("this node has ended") from error
        assert isinstance(answer, LeaderAnswer | NotController), f"not an answer of the controller: {answer!r}"
        return answer

    def decide(self, body: DecidedRequest, timeout_s: float = _DECIDED_S) -> Done | Refused:
        """Changes the metadata. When it is done, this node knows the change. Raises the errors of `ask_controller`."""
        answer = self.ask_controller(body, timeout_s)
        assert not isinstance(answer, QuorumDescription), "nothing was to be described"
        if isinstance(answer, Done):
            self.wait_for(lambda image: image.index >= answer.index, timeout_s)
        return answer
