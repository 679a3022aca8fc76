"""Replication of the metadata log: what a leader sends, what a follower accepts, and when an entry is committed."""

from __future__ import annotations

from dataclasses import dataclass

from ..machine import Committed, NodeId, Panic
from .quorum_elections import Elections
from .quorum_messages import Append, AppendAnswer, Entry, InstallSnapshot, LeaderStarted, SaveSnapshot
from .quorum_state import Role


@dataclass(slots=True)
class MemberProgress:
    """What a leader knows about another member. Invariant: match < next."""

    next: int  # the index of the next entry to send to it
    match: int = 0  # up to this index its log is durable and equal to the leader's
    heard_ms: int = 0
    disk: str = ""  # the disk that its answers name
    snapshot_sent_ms: int | None = None  # set while it needs a snapshot


class Replication(Elections):
    """Both sides of replication: leader and follower."""

    _progress: dict[NodeId, MemberProgress]
    _heartbeat_at_ms: int

    # The leader

    def _lead(self) -> None:
        self.role, self.leader = Role.LEADER, self.id
        self._progress = {}
        self._append((Entry(self.term, LeaderStarted(self.id)),))
        self._replicate()

    def _lead_on(self) -> None:
        """A leader's tick: it steps down if no majority answers, and sends heartbeats (R4)."""
        if not self._is_heard():
            self._follow(None)
        elif self.now_ms >= self._heartbeat_at_ms:
            self._replicate()

    def _is_heard(self) -> bool:
        """Whether a majority of the voters answered within the last election timeout."""
        voters = self.log.voters
        since_ms = self.now_ms - self.settings.election_ms
        heard = sum(
            voter == self.id or (self._of(voter).heard_ms >= since_ms and self._counts(voter, self._of(voter).disk))
            for voter in voters.voters
        )
        return heard >= voters.majority()

    def _replicate(self) -> None:
        """Sends new entries, or a heartbeat, to all other members."""
        self._heartbeat_at_ms = self.now_ms + self.settings.heartbeat_ms
        for member in self._others(self.log.voters.members()):
            self._send_to(member, self._of(member))

    def _of(self, member: NodeId) -> MemberProgress:
        progress = self._progress.get(member)
        if progress is None:
            progress = self._progress[member] = MemberProgress(self.log.last_index, heard_ms=self.now_ms)
        return progress

    def _send_to(self, member: NodeId, progress: MemberProgress) -> None:
        if progress.next <= self.log.base:
            self._send_snapshot(member, progress)
            return
        previous = progress.next - 1
        room = self.settings.unanswered_max - (previous - progress.match) if progress.match else 1
        entries = self.log.after(previous, min(room, self.settings.entries_max)) if room > 0 else ()
        term = self.log.term_at(previous)
        assert term is not None, "what is sent next stands behind something in the log"
        self._send(member, Append(self.cluster, self.term, previous, term, entries, self.commit))
        progress.next += len(entries)

    def _send_snapshot(self, member: NodeId, progress: MemberProgress) -> None:
        """Sends the snapshot once per election timeout; in between, a heartbeat that fits any log."""
        sent_ms = progress.snapshot_sent_ms
        if sent_ms is None or self.now_ms - sent_ms >= self.settings.election_ms:
            progress.snapshot_sent_ms = self.now_ms
            self._send(member, InstallSnapshot(self.cluster, self.term, self.log.snapshot))
        else:
            self._send(member, Append(self.cluster, self.term, 0, 0, (), 0))

    def _on_append_answer(self, sender: NodeId, answer: AppendAnswer) -> None:
        self._observe_term(answer.term)
        if self.role is not Role.LEADER or answer.term != self.term:
            return
        progress = self._of(sender)
        if progress.disk != answer.disk:  # the disk was replaced: the known progress does not apply to the new one
            progress = self._progress[sender] = MemberProgress(self.log.last_index, disk=answer.disk)
        progress.heard_ms = self.now_ms
        if not answer.accepted:
            progress.next = max(progress.match + 1, min(answer.index, self.log.last_index + 1))
            self._send_to(sender, progress)
            return
        if answer.index > progress.match:
            progress.match = min(answer.index, self.log.last_index)
            progress.snapshot_sent_ms = None
            progress.next = max(progress.next, progress.match + 1)
            if not self._commit_what_a_majority_has() and progress.next <= self.log.last_index:
                self._send_to(sender, progress)

    def _wrote(self) -> None:
        if self.role is Role.LEADER:
            self._commit_what_a_majority_has()

    def _commit_what_a_majority_has(self) -> bool:
        """Commits what a majority has. If that is more than before, it informs all members and returns True."""
        voters = self.log.voters
        matches = sorted(self._own_match() if voter == self.id else self._match_of(voter) for voter in voters.voters)
        index = matches[len(matches) - voters.majority()]
        if index <= self.commit or not self._may_commit(index):
            return False
        self._commit_up_to(index)
        self._replicate()
        if self.id not in voters.voters and self.log.voters_index <= self.commit:
            self._follow(None)  # this node is no longer a voter: the others elect a leader
        return True

    def _match_of(self, voter: NodeId) -> int:
        progress = self._of(voter)
        return progress.match if self._counts(voter, progress.disk) else 0

    def _own_match(self) -> int:
        """A leader counts itself only for entries that are durable on its own disk."""
        return self.durable_index

    def _may_commit(self, index: int) -> bool:
        """Entries of earlier terms are committed only by an entry of the own term (R2; figure 8 of the Raft paper)."""
        return self.log.term_at(index) == self.term

    # The follower

    def _on_append(self, sender: NodeId, message: Append) -> None:
        if not self._takes_from(sender, message.term):
            return
        previous, entries = message.previous_index, message.entries
        if previous < self.log.base:  # entries that a snapshot replaced are committed, hence equal
            entries = entries[self.log.base - previous :]
            previous = self.log.base
        elif self.log.term_at(previous) != message.previous_term:
            self._say_once_durable(sender, self._append_answer(accepted=False, index=self._where_to_go_on(previous)))
            return
        if self._take(previous, entries):
            match = self._compared(previous + len(entries))
            self._show_life(sender, match)
            self._say_once_durable(sender, self._append_answer(accepted=True, index=match))
            self._commit_up_to(min(message.commit, match))

    def _show_life(self, leader: NodeId, match: int) -> None:
        """Answers while something is still being written: a disk may take longer than the election timeout, and a
        leader without answers steps down although all nodes hear it. The answer confirms only durable entries, and is
        sent only if the term is durable: a node that forgot its term would accept entries from an older leader in place
        of those that it has just confirmed."""
        if self._term_is_durable and not self._is_durable():
            self._send(leader, self._append_answer(accepted=True, index=min(match, self.durable_index)))

    def _compared(self, last: int) -> int:
        """The index up to which the own log is known to equal the leader's. Later entries may be from other leaders."""
        return last

    def _takes_from(self, leader: NodeId, term: int) -> bool:
        """Whether `leader` leads in the current term. A leader of an earlier term is told the current one."""
        self._observe_term(term)
        if term < self.term:
            self._say_once_durable(leader, self._append_answer(accepted=False, index=0))
            return False
        if self.role is Role.LEADER or (self.role is Role.FOLLOWER and self.leader not in (None, leader)):
            self._out.append(Panic(f"nodes {self.leader} and {leader} both lead in term {term}"))
            return False
        self._follow(leader)
        self._leader_heard_ms = self.now_ms
        return True

    def _where_to_go_on(self, previous: int) -> int:
        """The index from which the leader should try next: the first entry of the term that differs, or the end of this
        log."""
        if previous > self.log.last_index:
            return self.log.last_index + 1
        return max(self.log.first_of_term(previous), self.commit + 1)

    def _take(self, previous: int, entries: tuple[Entry, ...]) -> bool:
        """Makes the own log equal to the leader's after `previous`; keeps entries that are already equal."""
        log = self.log
        for place, entry in enumerate(entries):
            index = previous + 1 + place
            term = log.term_at(index)
            if term == entry.term:
                continue
            if term is not None and not self._truncate(index):
                return False
            self._append(entries[place:])
            return True
        return True

    def _on_install_snapshot(self, sender: NodeId, message: InstallSnapshot) -> None:
        if not self._takes_from(sender, message.term):
            return
        snapshot = message.snapshot
        if snapshot.index > self.commit:
            if self.log.term_at(snapshot.index) == snapshot.term:
                self._keep_snapshot(snapshot.index, message)
            else:
                self._replace_log(message)
        self._say_once_durable(sender, self._append_answer(accepted=True, index=self.commit))

    def _keep_snapshot(self, index: int, message: InstallSnapshot) -> None:
        """Keeps the entries after the snapshot. Those up to it are committed, because the logs agree at its index."""
        self._commit_up_to(index)
        self.log.compact(message.snapshot, index)
        self._persist(SaveSnapshot(message.snapshot, index, message.snapshot.term, reset=False))

    def _replace_log(self, message: InstallSnapshot) -> None:
        snapshot = message.snapshot
        self.log.reset(snapshot)
        self.commit = snapshot.index
        self._persist(SaveSnapshot(snapshot, snapshot.index, snapshot.term, reset=True))
        self._writing.clear()
        self._writing.append((self._operation, snapshot.index))
        self.durable_index = 0
        self._out.append(Committed(snapshot.index + 1, (), snapshot.image))

    def _append_answer(self, *, accepted: bool, index: int) -> AppendAnswer:
        return AppendAnswer(self.cluster, self.term, accepted, index, self.disk)
