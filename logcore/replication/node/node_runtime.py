"""A node of a cluster on sockets and disks: it carries out the effects of its machines, in one thread with an event
loop.

The simulator does the same with virtual sockets and disks (`tests/simulation/host.py`). This code decides nothing.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar, assert_never

import structlog

from ..cluster_version import VERSIONS, ClusterVersions
from ..machine import (
    BROKER,
    Asked,
    Committed,
    Effect,
    Input,
    Machine,
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
from ..replica.replica_messages import AwaitCommitted, ForPartition, PartitionId, Produce
from ..shards.coordination_messages import ForGroup, ForTransaction
from .node_codec import Frame
from .node_links import LinkTraffic, NodeLinks, PeerAddress, Peers
from .node_messages import NODE, AskMachine, MachineAnswered, NodeMessage

if TYPE_CHECKING:
    from ..machine_messages import Answer, Change, Request

_log: Final = structlog.get_logger("millstream.logcore")
_TICK_S: Final = 0.05
_SLEPT_NS: Final = 200_000_000  # after this time without a tick, arriving messages must not be handled at the old time
_GRACE_S: Final = 1.0  # for `NoAnswer` to arrive
_LOOK_S: Final = 0.0005
_Result = TypeVar("_Result")
ASK_S: Final = 10.0
"""How long to wait for an answer of another node."""


def time_of_day_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class Storage(Protocol):
    """Stores the changes of a machine. One thread at a time calls it, not the node's thread. Raises OSError."""

    def apply(self, change: Change) -> None: ...

    def sync(self) -> None: ...


class Running(NamedTuple):
    machine: Machine
    storage: Storage


class NodeStopped(RuntimeError):
    """The node ended before it answered; the request may have been carried out, or may still be."""


class NoAnswer(RuntimeError):
    """Another node did not answer in time; the request may have been carried out, or may still be."""


class Awaiting(Protocol):
    """A receiver of an answer. It is called once, on any thread, possibly with locks held."""

    def set_result(self, answer: Answer, /) -> None: ...

    def set_exception(self, failure: Exception, /) -> None: ...


def _pass_on(done: Future[Answer], waiting: Awaiting) -> None:
    failure = done.exception()
    if failure is None:
        waiting.set_result(done.result())
    else:
        assert isinstance(failure, Exception)
        waiting.set_exception(failure)


class _Syncing:
    """Of one machine: the changes that wait for the next sync, and whether a sync is under way."""

    def __init__(self) -> None:
        self.waiting: list[Persist] = []
        self.under_way = False


class NodeRuntime:
    """State: the machines and what they wait for. Any thread may call `ask` and `stop`.

    `panicked(reason)` is called once, in the node's thread, when a machine cannot continue: the process must end.
    """

    def __init__(
        self,
        peers: Peers,
        machines: Mapping[str, Running],
        panicked: Callable[[str], None],
        now_ms: Callable[[], int] = time_of_day_ms,
    ) -> None:
        """In: `now_ms`: the time of day."""
        self._now_ms = now_ms
        self.id = peers.node
        self.address: PeerAddress | None = None
        self._machines = dict(machines)
        self._panicked = panicked
        self._links = NodeLinks(peers, self._arrived, self._lost)
        self._syncing = {name: _Syncing() for name in machines}
        self._todo: deque[tuple[str, Input]] = deque()
        self._stepping = False
        self._holds = 0  # callers of `hold`: no sync begins
        self._told_ns = time.monotonic_ns()  # the time of the last tick
        self._requests = 0
        self._life = time.time_ns()
        self._asked: dict[RequestId, Future[Answer]] = {}
        self._asked_at: dict[RequestId, NodeId] = {}  # those of `_asked` that went to another node
        self._lock = threading.Lock()
        self._stopped = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=f"node {peers.node}", daemon=True)

    @property
    def is_stepping(self) -> bool:
        """Whether the current thread is the one that steps the machines. It must not wait for an answer."""
        return threading.current_thread() is self._thread

    def start(self) -> PeerAddress:
        """Returns when the node listens. Raises OSError."""
        self._thread.start()
        self.address = asyncio.run_coroutine_threadsafe(self._links.start(), self._loop).result()
        self._loop.call_soon_threadsafe(self._tick)
        return self.address

    def stop(self) -> None:
        """Ends the node; waiting requests get `NodeStopped`."""
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
        asyncio.run_coroutine_threadsafe(self._links.stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._end_waiting()

    def ask(self, machine: str, body: Request, *, at: NodeId | None = None, timeout_s: float = ASK_S) -> Future[Answer]:
        """Sends a client's request to a machine of this node, or of another one. If another node takes longer than
        `timeout_s`, the future gets `NoAnswer`. It cannot be cancelled: a caller that gives up drops it."""
        future: Future[Answer] = Future()
        future.set_running_or_notify_cancel()  # otherwise a future cancelled while it is settled would end the node
        with self._lock:
            if self._stopped:
                future.set_exception(NodeStopped(f"node {self.id} was stopped"))
                return future
            self._requests += 1
            request = RequestId(self._requests)
            self._asked[request] = future
            if at is None or at == self.id:
                self._loop.call_soon_threadsafe(self._take, machine, Asked(request, body))
            else:
                self._loop.call_soon_threadsafe(self._ask_at, at, AskMachine(request, self._life, machine, body))
                self._loop.call_soon_threadsafe(self._loop.call_later, timeout_s, self._give_up, request, at)
        return future

    def answer(self, machine: str, body: Request, *, at: NodeId | None = None, timeout_s: float = ASK_S) -> Answer:
        """Sends a request and waits for the answer. Raises `NoAnswer`, `NodeStopped`."""
        grace_s = 0.0 if at is None or at == self.id else _GRACE_S
        try:
            return self.ask(machine, body, at=at, timeout_s=timeout_s).result(timeout_s + grace_s)
        except TimeoutError as error:
            raise NoAnswer(f"node {at or self.id} has not answered in {timeout_s} s") from error

    def answers(self, machine: str, bodies: Sequence[Request], *, timeout_s: float = ASK_S) -> list[Answer]:
        """The answers of a machine of this node to several requests. Raises like `answer` if one has no answer."""
        asked = [self.ask(machine, body) for body in bodies]
        try:
            return [each.result(timeout_s) for each in asked]
        except TimeoutError as error:
            raise NoAnswer(f"node {self.id} has not answered in {timeout_s} s") from error

    def produce(self, partition: PartitionId, asked: Produce, *, timeout_s: float = ASK_S) -> Answer:
        """Like `answer`, for the partition's replica on this node. Raises like `answer`."""
        return self.answer(BROKER, ForPartition(partition, asked), timeout_s=timeout_s)

    def answer_now(self, asked: ForTransaction | ForGroup, *, timeout_s: float = ASK_S) -> Answer:
        """Like `answer`, for a coordinator on this node."""
        return self.answer(BROKER, asked, timeout_s=timeout_s)

    def commit(self, partitions: Sequence[PartitionId]) -> list[Answer]:
        """The answers to `AwaitCommitted` for each partition. Raises like `answers`."""
        return self.answers(BROKER, [ForPartition(each, AwaitCommitted()) for each in partitions])

    def begin_produce(self, partition: PartitionId, asked: Produce, waiting: Awaiting) -> None:
        """Like `produce`, for a caller that does not wait on this thread."""
        self.ask(BROKER, ForPartition(partition, asked)).add_done_callback(lambda done: _pass_on(done, waiting))

    def tell(self, machine: str, body: Request) -> None:
        """Sends a request to a machine of this node, without waiting for an answer."""
        with self._lock:
            if not self._stopped:
                self._requests += 1
                self._loop.call_soon_threadsafe(self._take, machine, Asked(RequestId(self._requests), body))

    def caught_up(self) -> Future[Answer]:
        """Done when the machines have taken everything that `tell` sent before, so a caller can limit its speed."""
        future: Future[Answer] = Future()
        future.set_running_or_notify_cancel()
        with self._lock:
            if self._stopped:
                future.set_result(None)
                return future
            self._requests += 1
            request = RequestId(self._requests)
            self._asked[request] = future
            self._loop.call_soon_threadsafe(self._settle, request, None)
        return future

    def set_peer(self, node: NodeId, address: PeerAddress | None) -> None:
        """Sets the address of another node; None: it is no longer in this cluster. Any thread may call it."""
        with self._lock:
            if not self._stopped:
                self._loop.call_soon_threadsafe(self._links.set_peer, node, address)

    def use_version(self, version: int) -> None:
        """The cluster uses this version: this node refuses connections with nodes that speak only older ones."""
        self._links.versions = ClusterVersions(max(VERSIONS.oldest, version), VERSIONS.newest)

    def hold(self, look: Callable[[], _Result]) -> _Result:
        """Like `LoneNode.hold`, on the node's thread. Also raises `NodeStopped`."""
        looked: Future[_Result] = Future()
        with self._lock:
            if self._stopped:
                raise NodeStopped(f"node {self.id} was stopped")
            self._loop.call_soon_threadsafe(self._begin_hold, look, looked)
        while not wait([looked], _GRACE_S).done:
            if not self._thread.is_alive():
                raise NodeStopped(f"node {self.id} was stopped")
        return looked.result()

    @property
    def traffic(self) -> Mapping[NodeId, LinkTraffic]:
        """The traffic with each other node. Any thread may read it."""
        return dict(self._links.traffic)

    # In the node's thread

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def _tick(self) -> None:
        if self._stopped:
            return
        self._tell_the_time()
        self._loop.call_later(_TICK_S, self._tick)

    def _tell_the_time(self) -> None:
        self._told_ns = time.monotonic_ns()
        now = Tick(self._told_ns // 1_000_000, self._now_ms())
        for name in list(self._machines):
            self._take(name, now)

    def _arrived(self, sender: NodeId, frame: Frame) -> None:
        """After a pause of the process, the machines first get a tick: the controller here may have been replaced, and
        must not tell others that they lead (T-L4)."""
        if time.monotonic_ns() - self._told_ns > _SLEPT_NS:
            self._tell_the_time()
        message = frame.message
        if isinstance(message, NodeMessage):
            self._hear(sender, message)
        elif frame.machine in self._machines:
            self._take(frame.machine, Received(sender, message))

    # Requests from node to node

    def _ask_at(self, node: NodeId, asked: AskMachine) -> None:
        self._asked_at[RequestId(asked.number)] = node
        self._links.send(node, Frame(NODE, asked))

    def _lost(self, node: NodeId) -> None:
        """Requests to this node may be lost: their callers must ask again, or ask another node."""
        for request in [request for request, at in self._asked_at.items() if at == node]:
            self._give_up(request, node)

    def _hear(self, sender: NodeId, message: NodeMessage) -> None:
        match message:
            case MachineAnswered(number, life, answer):
                if life == self._life:
                    self._settle(RequestId(number), answer)
            case AskMachine(machine=machine, body=body):
                if machine in self._machines:
                    asked = self.ask(machine, body)
                    asked.add_done_callback(lambda done: self._answer_to(sender, message, done))
            case _:
                assert_never(message)

    def _answer_to(self, node: NodeId, asked: AskMachine, done: Future[Answer]) -> None:
        if done.exception() is None:
            self._links.send(node, Frame(NODE, MachineAnswered(asked.number, asked.life, done.result())))

    def _give_up(self, request: RequestId, at: NodeId) -> None:
        self._asked_at.pop(request, None)
        with self._lock:
            future = self._asked.pop(request, None)
        if future is not None:
            future.set_exception(NoAnswer(f"node {at} did not answer"))

    def _settle(self, request: RequestId, answer: Answer) -> None:
        self._asked_at.pop(request, None)
        with self._lock:
            future = self._asked.pop(request, None)
        if future is not None:
            future.set_result(answer)

    def _take(self, machine: str, given: Input) -> None:
        """Steps the machine, and then machines of this node with the inputs that this causes, one after the other."""
        if machine not in self._machines:
            self._refuse(given)
            return
        self._todo.append((machine, given))
        if self._stepping:
            return
        self._stepping = True
        try:
            while self._todo and not self._stopped:
                name, now = self._todo.popleft()
                for effect in self._machines[name].machine.step(now):
                    self._carry_out(name, effect)
        except Exception as error:
            _log.exception("a machine of this node broke")
            self._panic(f"{type(error).__name__}: {error}")
        finally:
            self._stepping = False

    def _carry_out(self, name: str, effect: Effect) -> None:
        match effect:
            case Send(to, message, machine):
                if to == self.id:
                    self._todo.append((machine or name, Received(self.id, message)))
                else:
                    self._links.send(to, Frame(machine or name, message))
            case Persist():
                self._persist(name, effect)
            case Reply(request, response):
                self._settle(request, response)
            case Committed():
                self._todo.extend((other, effect) for other in self._machines if other != name)
            case Panic(reason):
                self._panic(reason)
            case _:
                assert_never(effect)

    def _panic(self, reason: str) -> None:
        if not self._machines:
            return  # the node is ending already
        _log.error("this node ends, for going on could lose or alter records", reason=reason)
        self._todo.clear()
        self._machines.clear()
        self._end_waiting()
        self._panicked(reason)

    def _refuse(self, given: Input) -> None:
        """Refuses a request to a machine that does not exist, or no longer exists."""
        if isinstance(given, Asked):
            with self._lock:
                future = self._asked.pop(given.request, None)
            if future is not None:
                future.set_exception(NodeStopped(f"node {self.id} has ended"))

    def _end_waiting(self) -> None:
        with self._lock:
            asked, self._asked = self._asked, {}
        for future in asked.values():
            future.set_exception(NodeStopped(f"node {self.id} was stopped"))

    # Disks

    def _begin_hold(self, look: Callable[[], _Result], looked: Future[_Result]) -> None:
        self._holds += 1
        self._hold(look, looked)

    def _hold(self, look: Callable[[], _Result], looked: Future[_Result]) -> None:
        if not self._stopped and any(syncing.under_way for syncing in self._syncing.values()):
            self._loop.call_later(_LOOK_S, self._hold, look, looked)
            return
        try:
            looked.set_result(look())
        except BaseException as error:
            looked.set_exception(error)
        self._holds -= 1
        for name, syncing in self._syncing.items():
            self._sync_if_due(name, syncing)

    def _persist(self, name: str, effect: Persist) -> None:
        syncing = self._syncing[name]
        syncing.waiting.append(effect)
        self._sync_if_due(name, syncing)

    def _sync_if_due(self, name: str, syncing: _Syncing) -> None:
        if syncing.waiting and not syncing.under_way and not self._holds and name in self._machines:
            self._sync(name)

    def _sync(self, name: str) -> None:
        """Runs one sync at a time: changes that arrive meanwhile wait for the next one, and share it."""
        syncing = self._syncing[name]
        effects, syncing.waiting, syncing.under_way = syncing.waiting, [], True
        storage = self._machines[name].storage
        done = self._loop.run_in_executor(None, _make_durable, storage, [effect.change for effect in effects])
        done.add_done_callback(lambda result: self._synced(name, effects[-1].operation, result))

    def _synced(self, name: str, last: Operation, result: asyncio.Future[None]) -> None:
        if self._stopped or name not in self._machines:
            return
        error = result.exception()
        self._syncing[name].under_way = False
        self._take(name, Persisted(last, str(error) if error is not None else None))
        self._sync_if_due(name, self._syncing[name])


def _make_durable(storage: Storage, changes: list[Change]) -> None:
    for change in changes:
        storage.apply(change)
    storage.sync()
