"""The promises of the metadata quorum, checked after every step: I1 to I6."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from millstream.logcore.replication.machine import Committed, Effect, NodeId, Panic, Send
from millstream.logcore.replication.raft.quorum import Quorum
from millstream.logcore.replication.raft.quorum_messages import (
    Append,
    AppendAnswer,
    Entry,
    LeaderStarted,
    QuorumRecovered,
    Vote,
    VoteAnswer,
)
from millstream.logcore.replication.raft.quorum_state import Role

from .kernel import InvariantViolated, Kernel


class CheckedQuorum(Quorum):
    """A quorum that tells the checks what it commits, before a snapshot can take it out of its log."""

    checks: QuorumChecks

    def _truncate(self, first_gone: int) -> bool:
        self.checks.kernel.counters["conflicting entries"] += 1
        return super()._truncate(first_gone)

    def _commit_up_to(self, index: int) -> None:
        for offset, entry in enumerate(self.log.after(self.commit, max(0, index - self.commit)), 1):
            self.checks.commits(self, self.commit + offset, entry)
        super()._commit_up_to(index)


class QuorumChecks:
    """What all nodes have said and decided so far. It outlives their processes."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.committed: list[Entry] = [Entry(0, LeaderStarted(NodeId(0)))]  # by index, from 1 on
        self._committed_in: list[int] = [0]  # likewise: the term in which it was
        self._leaders: dict[int, NodeId] = {}  # by term
        self._granted: dict[tuple[NodeId, int], NodeId] = {}  # who got the vote of a node in a term
        self._spoken_term: dict[NodeId, int] = {}
        self._commits: dict[NodeId, int] = {}  # of the life that a node has now

    def started(self, node: NodeId, recovered: QuorumRecovered) -> None:
        spoken = self._spoken_term.get(node, 0)
        if recovered.term < spoken:
            raise InvariantViolated("I3", f"node {node} spoke in term {spoken} and came back in {recovered.term}")
        self._commits[node] = recovered.snapshot.index

    def forget(self, node: NodeId) -> None:
        """Its disk is gone, and with it what it has promised."""
        self._spoken_term.pop(node, None)
        self._granted = {key: vote for key, vote in self._granted.items() if key[0] != node}

    def stepped(self, quorum: Quorum, effects: Sequence[Effect]) -> None:
        node = quorum.id
        if quorum.role is Role.LEADER and self._leaders.get(quorum.term) != node:
            self._check_new_leader(quorum)
        if quorum.commit < self._commits[node]:
            raise InvariantViolated("I4", f"node {node} takes back what was committed")
        for effect in effects:
            kind = effect.__class__
            if kind is Send:
                self._check_message(node, effect.to, effect.message)  # pyrefly: ignore[missing-attribute]
            elif kind is Committed:
                self._check_committed(quorum, effect)  # pyrefly: ignore[bad-argument-type]
            elif kind is Panic and "cannot be written" not in effect.reason:  # pyrefly: ignore[missing-attribute]
                raise InvariantViolated("I4", effect.reason)

    def commits(self, quorum: Quorum, index: int, entry: Entry) -> None:
        """A node learns that this entry is committed (I5)."""
        node = quorum.id
        if index < len(self.committed):
            if self.committed[index] != entry:
                raise InvariantViolated("I5", f"entry {index} is {self.committed[index]}, and on node {node} {entry}")
        elif index == len(self.committed):
            self.committed.append(entry)
            self._committed_in.append(quorum.term)
        else:
            raise InvariantViolated("I5", f"node {node} commits {index} before {len(self.committed)}")

    def _check_new_leader(self, quorum: Quorum) -> None:
        term, node = quorum.term, quorum.id
        if term in self._leaders:
            raise InvariantViolated("I1", f"nodes {self._leaders[term]} and {node} lead in term {term}")
        self._leaders[term] = node
        self.kernel.counters["elections"] += 1
        # A leader of long ago, whose votes came late, lacks what later ones have committed, and commits nothing itself.
        last = bisect_left(self._committed_in, term) - 1
        if last > quorum.log.snapshot.index and quorum.log.term_at(last) != self.committed[last].term:
            raise InvariantViolated("I6", f"leader {node} of term {term} lacks the committed entry {last}")

    def _check_message(self, node: NodeId, to: NodeId, message: Any) -> None:
        kind = message.__class__
        if kind is VoteAnswer and message.granted:
            self._check_vote(node, message.term, to)
        elif kind is Vote:
            self._check_vote(node, message.term, node)
        elif kind is not Append and not (kind is AppendAnswer and message.accepted):
            return
        if message.term > self._spoken_term.get(node, 0):
            self._spoken_term[node] = message.term

    def _check_vote(self, node: NodeId, term: int, candidate: NodeId) -> None:
        before = self._granted.setdefault((node, term), candidate)
        if before != candidate:
            raise InvariantViolated("I3", f"node {node} votes for {before} and {candidate} in term {term}")

    def _check_committed(self, quorum: Quorum, effect: Committed) -> None:
        """I5, and that a node's records follow each other without a gap."""
        node = quorum.id
        if effect.first_index != self._commits[node] + 1 and effect.image is None:
            raise InvariantViolated("I5", f"node {node} gets {effect.first_index} after {self._commits[node]}")
        self._commits[node] = effect.first_index + len(effect.records) - 1
