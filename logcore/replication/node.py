"""A node of a cluster on sockets and disks: it carries out what its machines decide, in one thread with an event loop.

The simulator does the same with virtual sockets and disks (`tests/simulation/host.py`); nothing is decided here.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Final, NamedTuple, Protocol

import structlog

from .machine import (
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
from .node_codec import Frame
from .node_links import Address, NodeLinks, Peers

_log: Final = structlog.get_logger(__name__)
_TICK_S: Final = 0.05


class Storage(Protocol):
    """Where the changes of a machine go: called by one thread at a time, which is not the node's. Raises OSError."""

    def apply(self, change: Any) -> None: ...

    def sync(self) -> None: ...


class Running(NamedTuple):
    machine: Machine
    storage: Storage


class NodeStopped(RuntimeError):
    """The node ended before it answered; what was asked may have happened, or may yet."""


class _Syncing:
    """Per machine: the changes that wait for the next sync, and whether one is under way."""

    def __init__(self) -> None:
        self.waiting: list[Persist] = []
        self.under_way = False


class Node:
    """State: the machines and what they wait for. Any thread may call `ask` and `stop`.

    `panicked(reason)` is called once, in the node's thread, when a machine cannot go on: the process is to end.
    """

    def __init__(self, peers: Peers, machines: Mapping[str, Running], panicked: Callable[[str], None]) -> None:
        self.id = peers.node
        self.address: Address | None = None
        self._machines = dict(machines)
        self._panicked = panicked
        self._links = NodeLinks(peers, self._arrived)
        self._syncing = {name: _Syncing() for name in machines}
        self._todo: deque[tuple[str, Input]] = deque()
        self._stepping = False
        self._requests = 0
        self._asked: dict[RequestId, Future[Any]] = {}
        self._lock = threading.Lock()
        self._stopped = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=f"node {peers.node}", daemon=True)

    def start(self) -> Address:
        """Returns when the node listens. Raises OSError."""
        self._thread.start()
        self.address = asyncio.run_coroutine_threadsafe(self._links.start(), self._loop).result()
        self._loop.call_soon_threadsafe(self._tick)
        return self.address

    def stop(self) -> None:
        """Ends it; who waits for an answer gets `NodeStopped`."""
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
        asyncio.run_coroutine_threadsafe(self._links.stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        for future in self._asked.values():
            future.set_exception(NodeStopped(f"node {self.id} was stopped"))
        self._asked.clear()

    def ask(self, machine: str, body: Any) -> Future[Any]:
        """A client's request to a machine of this node."""
        future: Future[Any] = Future()
        with self._lock:
            if self._stopped:
                future.set_exception(NodeStopped(f"node {self.id} was stopped"))
                return future
            self._requests += 1
            request = RequestId(self._requests)
            self._asked[request] = future
        self._loop.call_soon_threadsafe(self._take, machine, Asked(request, body))
        return future

    # In the node's thread

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def _tick(self) -> None:
        if self._stopped:
            return
        now = Tick(time.monotonic_ns() // 1_000_000)
        for name in self._machines:
            self._take(name, now)
        self._loop.call_later(_TICK_S, self._tick)

    def _arrived(self, sender: NodeId, frame: Frame) -> None:
        if frame.machine in self._machines:
            self._take(frame.machine, Received(sender, frame.message))

    def _take(self, machine: str, given: Input) -> None:
        """Steps the machine, and whatever that leads to within this node, one after the other."""
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
                with self._lock:
                    future = self._asked.pop(request, None)
                if future is not None and not future.cancelled():
                    future.set_result(response)
            case Committed():
                self._todo.extend((other, effect) for other in self._machines if other != name)
            case Panic(reason):
                self._panic(reason)

    def _panic(self, reason: str) -> None:
        _log.error("this node ends, for going on could lose or alter records", reason=reason)
        self._todo.clear()
        self._machines.clear()
        self._panicked(reason)

    # Disks

    def _persist(self, name: str, effect: Persist) -> None:
        syncing = self._syncing[name]
        syncing.waiting.append(effect)
        if not syncing.under_way:
            self._sync(name)

    def _sync(self, name: str) -> None:
        """One sync at a time: what comes while it runs waits for the next one, and shares it."""
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
        if name in self._machines and self._syncing[name].waiting and not self._syncing[name].under_way:
            self._sync(name)


def _make_durable(storage: Storage, changes: list[Any]) -> None:
    for change in changes:
        storage.apply(change)
    storage.sync()
