"""Elections of the metadata quorum: pre-votes, votes, and who wins (R1, R2, R4)."""

from __future__ import annotations

from abc import ABC, abstractmethod

from ..machine import NodeId
from .quorum_messages import (
    PreVote,
    PreVoteAnswer,
    QuorumMessage,
    SaveVote,
    TimeoutNow,
    Vote,
    VoteAnswer,
    VotersChanged,
)
from .quorum_state import QuorumState, Role


class Elections(QuorumState, ABC):
    """How a follower becomes a leader. A node that is not a voter (or no longer one) never stands for election, but it
    votes when asked: the candidate may know of a change of voters that this node has not heard of yet."""

    _votes: set[NodeId]

    def _stand_when_due(self) -> None:
        if self._elect_at_ms is None and not self._is_alone():
            self._delay_election()
        elif self._elect_at_ms is None or self.now_ms >= self._elect_at_ms:
            self._delay_election()
            if self._may_stand():
                self._ask_for_pre_votes()
            else:
                self.leader = None  # so registrations go to all voters in turn, to find the leader

    def _is_alone(self) -> bool:
        """Whether this node is the only voter. Then it need not wait: it can depose no other leader (R4)."""
        return self.log.voters.voters == (self.id,)

    def _may_stand(self) -> bool:
        """Whether this node may stand for election: it is a voter, or it is being removed and the removal is not
        committed yet. In the second case it may be the only node that knows of the removal."""
        log = self.log
        if self.id in log.voters.voters:
            return self._counts(self.id, self.disk)
        return log.voters_index > self.commit and self.id in log.voters_before.voters

    # The candidate

    def _ask_for_pre_votes(self) -> None:
        self.role, self.leader = Role.ASKING, None
        self._votes = {self.id}
        if self._has_majority(self._votes):
            self._stand()
            return
        asked = PreVote(self.cluster, self.term + 1, self.log.last_term, self.log.last_index)
        for voter in self._others(self.log.voters.voters):
            self._send(voter, asked)

    def _on_pre_vote_answer(self, sender: NodeId, answer: PreVoteAnswer) -> None:
        if not answer.granted:
            self._observe_term(answer.term)
        elif self.role is Role.ASKING and answer.term == self.term + 1 and self._counts(sender, answer.disk):
            self._votes.add(sender)
            if self._has_majority(self._votes):
                self._stand()

    def _stand(self) -> None:
        """Becomes a candidate. Only once its own vote is durable, that vote counts and other voters are asked."""
        self.role, self.leader = Role.CANDIDATE, None
        self.term += 1
        self.voted_for = self.id
        self._votes = set()
        self._delay_election()
        self._persist(SaveVote(self.term, self.id))
        self._say_once_durable(self.id, VoteAnswer(self.cluster, self.term, True, self.disk))
        asked = Vote(self.cluster, self.term, self.log.last_term, self.log.last_index)
        for voter in self._others(self.log.voters.voters):
            self._say_once_durable(voter, asked)

    def _heard_own(self, message: QuorumMessage) -> None:
        assert isinstance(message, VoteAnswer), f"a node says nothing to itself but its vote: {message!r}"
        self._on_vote_answer(self.id, message)

    def _on_vote_answer(self, sender: NodeId, answer: VoteAnswer) -> None:
        self._observe_term(answer.term)
        if (
            self.role is Role.CANDIDATE
            and answer.term == self.term
            and answer.granted
            and self._counts(sender, answer.disk)
        ):
            self._votes.add(sender)
            if self._has_majority(self._votes):
                self._lead()

    def _on_timeout_now(self, sender: NodeId, message: TimeoutNow) -> None:
        if message.term == self.term and self.leader == sender and self._may_stand():
            self._stand()

    def _has_majority(self, votes: set[NodeId]) -> bool:
        voters = self.log.voters
        return sum(voter in votes for voter in voters.voters) >= self._votes_needed(voters)

    def _votes_needed(self, voters: VotersChanged) -> int:
        """A majority. While no disk is recorded, all voters: the disk of one of them may be new and empty."""
        return voters.majority() if voters.disks or not self.disk else len(voters.voters)

    def _counts(self, voter: NodeId, disk: str) -> bool:
        return self.log.voters.counts(voter, disk)

    # The voter

    def _on_pre_vote(self, sender: NodeId, asked: PreVote) -> None:
        granted = (
            asked.term > self.term and self._is_as_new(asked.last_term, asked.last_index) and not self._hears_a_leader()
        )
        self._send(sender, PreVoteAnswer(self.cluster, asked.term if granted else self.term, granted, self.disk))

    def _on_vote(self, sender: NodeId, asked: Vote) -> None:
        self._observe_term(asked.term)
        granted = (
            asked.term == self.term
            and self._vote_is_free(sender)
            and self._is_as_new(asked.last_term, asked.last_index)
        )
        if granted and self.voted_for is None:
            self.voted_for = sender
            self._persist(SaveVote(self.term, sender))
        if granted:
            self._delay_election()
        self._say_once_durable(sender, VoteAnswer(self.cluster, self.term, granted, self.disk))

    def _vote_is_free(self, candidate: NodeId) -> bool:
        """One vote per term (R1)."""
        return self.voted_for is None or self.voted_for == candidate

    def _is_as_new(self, last_term: int, last_index: int) -> bool:
        """Whether a log that ends here is at least as up to date as the own log (R2)."""
        return (last_term, last_index) >= (self.log.last_term, self.log.last_index)

    def _hears_a_leader(self) -> bool:
        """Whether this node hears a leader, or is one. A live leader is not replaced because another node does not hear
        it (R4)."""
        if self.role is Role.LEADER:
            return True
        heard = self._leader_heard_ms
        return heard is not None and self.now_ms - heard < self.settings.election_ms

    @abstractmethod
    def _lead(self) -> None:
        """Begins to lead after a won election; `Replication` implements it."""
