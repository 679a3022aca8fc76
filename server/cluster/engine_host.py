"""Runs the engine of a cluster: only on the leader of partition 0 of the command topic.

A thread watches the cluster's metadata. When this node becomes the leader it starts the engine, which reads the command
topic and takes over all queries from their changelogs. When the node loses leadership, or the engine its lease
(`engine_log.py`), the engine ends at once. Two engines may overlap briefly: the lease makes the older one harmless.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import structlog
from starlette.types import ASGIApp

from millstream.errors import MillstreamError

from ...logcore.errors import TopicExists
from ...logcore.replication.controller.metadata_image import MetadataImage
from ...logcore.replication.controller.metadata_records import PartitionState
from ...logcore.replication.machine import NodeId
from ..catalog.command_topic import COMMAND_CONFIG, COMMAND_TOPIC
from ..engine.engine import Engine

_LOOK_S: Final = 0.05
_AGAIN_S: Final = 0.5  # after a failed start

_log = structlog.get_logger("millstream.server")


class HostNode(Protocol):
    """The server's view of its own node."""

    @property
    def id(self) -> NodeId: ...

    @property
    def image(self) -> MetadataImage:
        """The cluster's metadata, as far as this node has received it."""
        ...

    @property
    def serving(self) -> bool:
        """Whether the node is registered and not fenced."""
        ...

    @property
    def cut_off(self) -> bool:
        """Whether no controller has answered for ten seconds: `image` may be out of date."""
        ...


@dataclass(frozen=True, slots=True)
class RunningEngine:
    """An engine that answers. `stop` lets its queries commit first; `leave` ends it when they must not write any
    more."""

    engine: Engine
    app: ASGIApp
    stop: Callable[[], None]
    leave: Callable[[], None]


class EngineHost:
    """Call `start`, then `stop`. In: `open_engine`: its argument is a function to call when the engine has lost its
    lease. It may raise, and is retried. `create_topic` creates a topic in the cluster.

    State: the engine, if it runs here. Only the host's own thread starts and ends engines.
    """

    def __init__(
        self,
        node: HostNode,
        open_engine: Callable[[Callable[[], None]], RunningEngine],
        create_topic: Callable[[str, int, dict[str, str]], None],
    ) -> None:
        self._node = node
        self._open_engine = open_engine
        self._create_topic = create_topic
        self._running: RunningEngine | None = None
        self._lost = threading.Event()
        self._stopping = threading.Event()
        self._woken = threading.Event()
        self._not_before = 0.0
        self._thread = threading.Thread(target=self._run, name="millstream-engine-host", daemon=True)

    @property
    def running(self) -> RunningEngine | None:
        """The engine, if it runs here and answers."""
        return self._running

    @property
    def place(self) -> NodeId | None:
        """The node that runs the engine or is about to, as far as this node knows."""
        state = self._command_partition()
        return None if state is None or state.leader is None or state.leader < 0 else state.leader

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the engine; its queries stop at their current positions. May be called twice."""
        self._stopping.set()
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._look()
            except Exception as error:  # any error has to be retried: otherwise the cluster has no engine
                known = isinstance(error, MillstreamError)
                _log.warning("engine does not start", error=str(error), exc_info=not known)
                self._not_before = time.monotonic() + _AGAIN_S
            self._woken.wait(_LOOK_S)
            self._woken.clear()
        running, self._running = self._running, None
        if running is not None:
            _end(running.stop)

    def _look(self) -> None:
        leads = self._node.serving and self.place == self._node.id
        if self._running is not None and (self._lost.is_set() or not leads):
            self._leave()
        if time.monotonic() < self._not_before:
            return
        if self._running is None and leads:
            self._begin()
        elif self._node.serving and self._command_partition() is None:
            with contextlib.suppress(TopicExists):
                self._create_topic(COMMAND_TOPIC, 1, dict(COMMAND_CONFIG))

    def _begin(self) -> None:
        began = time.monotonic()
        self._lost.clear()
        self._running = self._open_engine(self._lose)
        _log.info("engine started", node=self._node.id, seconds=round(time.monotonic() - began, 2))

    def _leave(self) -> None:
        running, self._running = self._running, None
        assert running is not None
        _log.info("engine ends here", node=self._node.id, leader=self.place)
        _end(running.leave)

    def _lose(self) -> None:
        self._lost.set()
        self._woken.set()

    def _command_partition(self) -> PartitionState | None:
        image = self._node.image
        topic_id = image.topic_ids.get(COMMAND_TOPIC)
        topic = None if topic_id is None else image.topics.get(topic_id)
        return topic.partitions[0] if topic is not None and topic.partitions else None


def _end(end: Callable[[], None]) -> None:
    """Ends the engine once, and ignores failures: it answers nobody any more, and cannot write without its lease."""
    try:
        end()
    except Exception as error:
        _log.error("engine did not end properly", error=str(error), exc_info=True)
