"""A node's registration with the controller, and the heartbeats that keep it.

Each process registers once (R8). From then on it sends heartbeats, or is fenced. The answers also renew the lease that
allows it to answer reads of the partitions that it leads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..cluster_version import VERSIONS
from ..controller.controller_messages import (
    BrokerAccepted,
    BrokerHeartbeat,
    BrokerRefused,
    ControllerMessage,
    HeartbeatAnswer,
    RegisterBroker,
    ReserveProducerIds,
)
from ..controller.metadata_records import Endpoints
from ..machine import CONTROLLER, Effect, NodeId, Panic, Reply, RequestId, Send
from .leader_lease import LeaderLease


class BrokerIdentity(NamedTuple):
    """Identifies a process: `incarnation` counts the starts of the node on its disk (R8); `disk` names that disk."""

    cluster: str
    node: NodeId
    incarnation: int
    endpoints: Endpoints
    rack: str | None = None
    disk: str = ""


class HeartbeatTimes(NamedTuple):
    """In milliseconds."""

    register_ms: int
    heartbeat_ms: int


class Registration:
    """State: the epoch of the registration, once it is committed, and when to send the next message.

    Out: all messages go to the controller of this node, which forwards them to the deciding one.
    """

    def __init__(self, identity: BrokerIdentity, times: HeartbeatTimes, emit: Callable[[Effect], None]) -> None:
        self.epoch: int | None = None
        self.fenced = True
        self.lease = LeaderLease()
        self._identity = identity
        self._times = times
        self._emit = emit
        self._now_ms = 0
        self._speaks_at_ms = 0
        self._beats = 0
        self._leaving: list[RequestId] = []

    def is_due(self, now_ms: int) -> bool:
        self._now_ms = now_ms
        return now_ms >= self._speaks_at_ms

    def hurry(self) -> None:
        """Sends a message with the next tick."""
        self._speaks_at_ms = self._now_ms

    def leave(self, request: RequestId) -> None:
        """The process is about to end. The request is answered when this node is fenced."""
        self._leaving.append(request)
        self.hurry()

    def say(self, message: ControllerMessage) -> None:
        self._emit(Send(self._identity.node, message, CONTROLLER))

    def register(self, *, clean: bool) -> None:
        """In: `clean`: as far as the logs of this node can tell, they have everything ever acknowledged (R17)."""
        who = self._identity
        self._speaks_at_ms = self._now_ms + self._times.register_ms
        self.say(RegisterBroker(who.cluster, who.node, who.incarnation, clean, who.endpoints, who.rack, who.disk))

    def beat(self, epoch: int, applied_index: int, *, wanted_ids: int) -> None:
        """Sends a heartbeat. They are more frequent while unanswered: the lease needs the answer of a new controller.

        In: `wanted_ids`: how many producer ids to ask for.
        """
        wait_ms = self._times.heartbeat_ms
        self._beats += 1
        self._speaks_at_ms = self._now_ms + (wait_ms // 4 if self.lease.is_unanswered else wait_ms)
        self.lease.sent(self._beats, self._now_ms)
        who = self._identity
        leaves, newest = bool(self._leaving), VERSIONS.newest
        self.say(BrokerHeartbeat(who.cluster, who.node, epoch, self._beats, applied_index, leaves, newest))
        if wanted_ids:
            self.say(ReserveProducerIds(who.cluster, who.node, epoch, self._beats, wanted_ids))

    def accepted(self, accepted: BrokerAccepted) -> bool:
        """Takes the answer to the registration; whether the broker starts with it."""
        if self.epoch is not None or not self._is_ours(accepted):
            return False
        self.epoch = accepted.epoch
        self.hurry()
        return True

    def refused(self, refused: BrokerRefused) -> None:
        if self._is_ours(refused):
            self._emit(Panic(f"the cluster does not take this node: {refused.reason}"))

    def _is_ours(self, answer: BrokerAccepted | BrokerRefused) -> bool:
        who = self._identity
        return (answer.incarnation, answer.disk) == (who.incarnation, who.disk)

    def heard(self, answer: HeartbeatAnswer, applied_index: int) -> None:
        """In: `applied_index`: the index up to which this node has applied the metadata."""
        if answer.epoch != self.epoch:
            return
        if not answer.known:
            self._emit(Panic("this registration is over: another process is this node, or the node was removed"))
            return
        self.fenced = answer.fenced
        self.lease.answered(answer, applied_index)
        if answer.fenced:
            for request in self._leaving:
                self._emit(Reply(request, None))
            self._leaving.clear()
