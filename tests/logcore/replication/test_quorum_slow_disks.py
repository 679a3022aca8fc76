"""A quorum whose disks are slow: who answers that it lives need not have written anything for that."""

from __future__ import annotations

from collections import deque
from typing import Any

from millstream.logcore.replication.controller.metadata_records import ConfigChanged
from millstream.logcore.replication.machine import NodeId, Persist, Send
from millstream.logcore.replication.raft.quorum import Quorum
from millstream.logcore.replication.raft.quorum_messages import QuorumMessage, nothing_recovered
from millstream.logcore.replication.raft.quorum_state import Role

NODES = tuple(NodeId(node) for node in (1, 2, 3))
STEP_MS = 50


class SlowQuorum:
    """Messages arrive at once; a sync takes `sync_ms`, and one runs at a time, for all that was written before it."""

    def __init__(self) -> None:
        self.sync_ms = 0
        self.now_ms = 0
        self.members = {node: Quorum(node, "slow", nothing_recovered(NODES), seed=node) for node in NODES}
        self._written: dict[NodeId, int] = dict.fromkeys(NODES, 0)
        self._syncs: dict[NodeId, tuple[int, int] | None] = dict.fromkeys(NODES)  # when it ends, what it makes durable
        self._sent: deque[tuple[NodeId, Send]] = deque()

    def run(self, milliseconds: int) -> None:
        end_ms = self.now_ms + milliseconds
        while self.now_ms < end_ms:
            self.now_ms += STEP_MS
            for node in NODES:
                self.members[node].tick(self.now_ms)
                self._settle()

    def leader(self) -> Quorum:
        [leader] = [member for member in self.members.values() if member.role is Role.LEADER]
        return leader

    def _settle(self) -> None:
        busy = True
        while busy:
            busy = sum(self._carry_out(node) for node in NODES) > 0
            while self._sent:
                sender, sent = self._sent.popleft()
                assert isinstance(sent.message, QuorumMessage)
                self.members[sent.to].receive(sender, sent.message)
                busy = True

    def _carry_out(self, node: NodeId) -> bool:
        effects: list[Any] = self.members[node].drain()
        for effect in effects:
            if isinstance(effect, Send):
                self._sent.append((node, effect))
            elif isinstance(effect, Persist):
                self._written[node] = int(effect.operation)
        sync = self._syncs[node]
        if sync is not None and sync[0] <= self.now_ms:
            self._syncs[node] = None
            self.members[node].persisted(sync[1], None)
            return True
        if sync is None and self._written[node]:
            self._syncs[node] = self.now_ms + self.sync_ms, self._written[node]
            self._written[node] = 0
            return not self.sync_ms
        return bool(effects)


def test_a_leader_goes_on_leading_while_the_disks_of_all_take_longer_than_an_election() -> None:
    quorum = SlowQuorum()
    quorum.run(5_000)
    leader, term = quorum.leader(), quorum.leader().term
    quorum.sync_ms = 3_000
    proposed: list[int] = []
    for _ in range(20):
        index = leader.propose(ConfigChanged("", "record", None))
        assert index is not None
        proposed.append(index)
        quorum.run(1_000)
    quorum.run(10_000)
    assert (quorum.leader(), quorum.leader().term) == (leader, term)
    assert leader.commit >= proposed[-1]


def test_nothing_is_committed_before_a_majority_has_written_it() -> None:
    quorum = SlowQuorum()
    quorum.run(5_000)
    quorum.sync_ms = 3_000
    before = quorum.leader().commit
    quorum.leader().propose(ConfigChanged("", "record", None))
    quorum.run(2_500)
    assert quorum.leader().commit == before
    quorum.run(5_000)
    assert quorum.leader().commit > before
