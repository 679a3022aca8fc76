"""Members of a quorum without time, disk or network: what is delivered, and to whom, is said step by step."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from millstream.logcore.replication.machine import Effect, NodeId, Persist, Send
from millstream.logcore.replication.raft.quorum_messages import QuorumMessage, nothing_recovered
from millstream.logcore.replication.raft.quorum_state import Role

from ..kernel import Kernel
from ..quorum_checks import CheckedQuorum, QuorumChecks

Delivers = Callable[[Any], bool]


class NotElected(Exception):
    """Too many are against it, which may be right."""


class ByHand:
    """Quorums that write at once. Every step is checked as in a simulation."""

    def __init__(self, voters: int, others: int = 0) -> None:
        nodes = [NodeId(node) for node in range(1, voters + others + 1)]
        first = nothing_recovered(tuple(nodes[:voters]))
        self.checks = QuorumChecks(Kernel(0))
        self.nodes = {node: CheckedQuorum(node, "by hand", first, seed=node) for node in nodes}
        self._sent: deque[tuple[NodeId, Send]] = deque()
        for quorum in self.nodes.values():
            quorum.checks = self.checks
            self.checks.started(quorum.id, first)

    def __getitem__(self, node: int) -> CheckedQuorum:
        return self.nodes[NodeId(node)]

    def elect(self, node: int, reachable: Iterable[int], *, then: Delivers = lambda message: True) -> None:
        """The node stands, as often as it takes, and is heard by these; what it sends as a leader may be lost."""
        among = set(reachable)
        quorum = self[node]
        for _ in range(5):
            quorum._stand()
            self.settle(among, until=lambda: quorum.role is Role.LEADER)
            if quorum.role is Role.LEADER:
                self.settle(among, delivers=then)
                return
        raise NotElected(f"node {node} is not elected")

    def settle(
        self,
        reachable: Iterable[int],
        *,
        delivers: Delivers = lambda message: True,
        until: Callable[[], bool] | None = None,
    ) -> None:
        """Carries out everything among these nodes; what would go elsewhere, or is not to be delivered, is lost."""
        among = set(reachable)
        for quorum in self.nodes.values():
            self._carry_out(quorum, quorum.drain())
        while self._sent and not (until is not None and until()):
            sender, sent = self._sent.popleft()
            if sender in among and sent.to in among and delivers(sent.message):
                quorum = self.nodes[sent.to]
                assert isinstance(sent.message, QuorumMessage)
                quorum.receive(sender, sent.message)
                self._carry_out(quorum, quorum.drain())
        if until is None:
            self._sent.clear()

    def _carry_out(self, quorum: CheckedQuorum, effects: list[Effect]) -> None:
        while effects:
            self.checks.stepped(quorum, effects)
            written = [effect.operation for effect in effects if isinstance(effect, Persist)]
            self._sent.extend((quorum.id, effect) for effect in effects if isinstance(effect, Send))
            if written:
                quorum.persisted(written[-1], None)
            effects = quorum.drain()
