"""The metadata quorum: Raft as a machine without I/O. One `Quorum` runs on every node, voters and learners alike.

`QuorumState` (terms, durability) < `Elections` < `Replication` < `Quorum` (inputs, proposals, membership, snapshots).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, assert_never

from ..machine import Effect, NodeId, Persisted, Received, Tick
from .quorum_messages import (
    Append,
    AppendAnswer,
    Entry,
    InstallSnapshot,
    LogRecord,
    PreVote,
    PreVoteAnswer,
    QuorumMessage,
    QuorumRecovered,
    SaveSnapshot,
    Snapshot,
    TimeoutNow,
    Vote,
    VoteAnswer,
    VotersChanged,
)
from .quorum_replication import Replication
from .quorum_state import QuorumSettings, Role

if TYPE_CHECKING:
    from ..controller.metadata_image import MetadataImage

_KEPT_ENTRIES: Final = 64  # entries up to a snapshot that stay in the log, for followers that lag a little


class Quorum(Replication):
    """A member of the metadata quorum."""

    def __init__(
        self,
        node: NodeId,
        cluster: str,
        recovered: QuorumRecovered,
        *,
        seed: int,
        settings: QuorumSettings | None = None,
    ) -> None:
        super().__init__(node, cluster, recovered, seed=seed, settings=settings or QuorumSettings())
        self._votes = set()
        self._progress = {}
        self._heartbeat_at_ms = 0

    # Inputs

    def step(self, given: Received[QuorumMessage] | Tick | Persisted) -> list[Effect]:
        match given:
            case Received(sender, message):
                self.receive(sender, message)
            case Tick(now_ms):
                self.tick(now_ms)
            case Persisted(operation, failed):
                self.persisted(operation, failed)
            case _:
                assert_never(given)
        return self.drain()

    def receive(self, sender: NodeId, message: QuorumMessage) -> None:
        if not self._is_of_this_cluster(message):
            return
        match message:
            case Append():
                self._on_append(sender, message)
            case AppendAnswer():
                self._on_append_answer(sender, message)
            case PreVote():
                self._on_pre_vote(sender, message)
            case PreVoteAnswer():
                self._on_pre_vote_answer(sender, message)
            case Vote():
                self._on_vote(sender, message)
            case VoteAnswer():
                self._on_vote_answer(sender, message)
            case InstallSnapshot():
                self._on_install_snapshot(sender, message)
            case TimeoutNow():
                self._on_timeout_now(sender, message)
            case _:
                assert_never(message)

    def _is_of_this_cluster(self, message: QuorumMessage) -> bool:
        """R20."""
        return message.cluster == self.cluster

    def tick(self, now_ms: int) -> None:
        self.now_ms = max(self.now_ms, now_ms)
        if self.role is Role.LEADER:
            self._lead_on()
            self._name_disks()
        else:
            self._stand_when_due()

    # Requests to a leader

    @property
    def leads(self) -> bool:
        """Whether this node leads and has committed a record of its own term. Only then it knows everything that is
        committed (R3)."""
        return self.role is Role.LEADER and self.log.term_at(self.commit) == self.term

    def propose(self, *records: LogRecord) -> int | None:
        """Appends these records; returns the index of the last one. All are committed once that one is. None: this node
        does not lead, or too much is uncommitted."""
        if self.role is not Role.LEADER or self.log.last_index - self.commit >= self.settings.uncommitted_max:
            return None
        self._append(tuple(Entry(self.term, record) for record in records))
        self._replicate()
        return self.log.last_index

    def change_voters(self, wanted: VotersChanged) -> str | None:
        """Begins to add, promote or remove one member. Returns None, or the reason why it is refused."""
        if not self._may_change_voters():
            return "the leader is new, or another change is under way"
        now = self.log.voters
        if self._too_many(now, wanted):
            return "one voter at a time"
        if not wanted.voters:
            return "no voter would be left"
        joining = set(wanted.voters) - set(now.voters)
        if any(self._of(node).match < self.commit for node in joining):
            return "the new voter has not caught up: add it as a learner first"
        wanted = wanted._replace(disks=self._disks_of(wanted.voters))
        if not self._counts_enough(wanted):
            return "not all voters were heard of yet"
        return None if self.propose(wanted) is not None else "too much is under way"

    def _counts_enough(self, wanted: VotersChanged) -> bool:
        """Whether each voter would count. A voter whose disk is unknown does not, but may be needed for a majority."""
        return all(wanted.disks) if self.disk and wanted.voters != self.log.voters.voters else True

    def _name_disks(self) -> None:
        """Proposes the voters' disks once those of a majority are known. From then on only voters with a known disk
        count; the others count as soon as their disks are known."""
        voters = self.log.voters
        if not self.disk or all(voters.disks or [""]) or not self._may_change_voters():
            return
        disks = self._disks_of(voters.voters)
        if disks != voters.disks and sum(map(bool, disks)) >= voters.majority():
            self.propose(voters._replace(disks=disks))

    def _disks_of(self, voters: tuple[NodeId, ...]) -> tuple[str, ...]:
        """For each voter the disk that the quorum has recorded; otherwise that of its last answer to this leader."""
        if not self.disk:
            return ()
        now = self.log.voters
        heard = {member: progress.disk for member, progress in self._progress.items()} | {self.id: self.disk}
        return tuple(now.disk_of(voter) or heard.get(voter, "") for voter in voters)

    def _may_change_voters(self) -> bool:
        """Only after a record of the own term and the previous change of voters are committed (T-L25)."""
        return self.leads and self.log.voters_index <= self.commit

    def _too_many(self, now: VotersChanged, wanted: VotersChanged) -> bool:
        """Voters change one at a time, so that any old majority and any new majority share a voter."""
        return len(set(now.voters) ^ set(wanted.voters)) > 1

    def members(self) -> list[tuple[NodeId, int, int]]:
        """On a leader: each voter and learner, the index up to which it is known to have the log, and the time when it
        was last heard."""
        others = [(node, self._of(node)) for node in self._others(self.log.voters.members())]
        return [
            (self.id, self.durable_index, self.now_ms),
            *((node, progress.match, progress.heard_ms) for node, progress in others),
        ]

    def transfer(self, to: NodeId) -> bool:
        """Hands leadership to a voter that has the whole log. False if it cannot."""
        if self.role is not Role.LEADER or to == self.id or to not in self.log.voters.voters:
            return False
        if self._of(to).match != self.log.last_index:
            return False
        self._send(to, TimeoutNow(self.cluster, self.term))
        return True

    def compact(self, index: int, image: MetadataImage) -> None:
        """Lets the log drop the records up to `index`, which is committed. In: `image`: the fold of these records."""
        assert self.log.snapshot.index < index <= self.commit
        term = self.log.term_at(index)
        assert term is not None
        snapshot = Snapshot(index, term, self.log.voters_at(index), image)
        kept = 0 if self.log.voters.members() == (self.id,) else _KEPT_ENTRIES
        base = max(self.log.base, index - kept)
        self.log.compact(snapshot, base)
        self._persist(SaveSnapshot(snapshot, base, self.log.base_term, reset=False))
