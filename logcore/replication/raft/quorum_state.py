"""The state of a member of the quorum, and what all roles have in common: they keep terms, write before they send, and
emit what is committed. The subclasses in `quorum_elections.py` and `quorum_replication.py` add the rest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple

from ..machine import Committed, Effect, NodeId, Operation, Panic, Persist, Send
from .quorum_log import QuorumLog
from .quorum_messages import Entry, QuorumChange, QuorumMessage, QuorumRecovered, SaveEntries, SaveVote

_MULTIPLIER: Final = 6_364_136_223_846_793_005
_INCREMENT: Final = 1_442_695_040_888_963_407
_WAITING_MAX: Final = 1_024  # if a disk hangs for long, the oldest answers are dropped, as any message may be lost


class Role(Enum):
    FOLLOWER = "follower"
    ASKING = "asking"  # for pre-votes
    CANDIDATE = "candidate"
    LEADER = "leader"


class QuorumSettings(NamedTuple):
    """Times in milliseconds, and limits."""

    election_ms: int = 1_000  # a follower waits for a leader between once and twice this time
    heartbeat_ms: int = 150
    entries_max: int = 64  # per message
    unanswered_max: int = 512  # unanswered entries that may be under way to one follower
    uncommitted_max: int = 4_096  # with more uncommitted entries, proposals are refused


class _Waiting(NamedTuple):
    operation: int
    term: int
    to: NodeId
    message: QuorumMessage


class QuorumState:
    """Invariants: the term, the vote in a term and `commit` never go back; base <= snapshot <= commit <= last index."""

    def __init__(
        self, node: NodeId, cluster: str, recovered: QuorumRecovered, *, seed: int, settings: QuorumSettings
    ) -> None:
        self.id = node
        self.cluster = cluster
        self.disk = recovered.disk
        self.settings = settings
        # Durable (once the changes given to `_persist` are)
        self.term = recovered.term
        self.voted_for: NodeId | None = recovered.voted_for
        self.log = QuorumLog(recovered)
        # Not durable
        self.role = Role.FOLLOWER
        self.leader: NodeId | None = None
        self.commit = self.log.snapshot.index
        self.durable_index = self.log.last_index  # of the own log
        self.now_ms = 0
        self._out: list[Effect] = []
        self._operation = 0
        self._operation_durable = 0
        self._term_operation = 0  # the operation that makes the term and the vote durable
        self._waiting: deque[_Waiting] = deque(maxlen=_WAITING_MAX)  # messages to send once an operation is durable
        self._writing: deque[tuple[int, int]] = deque()  # (operation, last index that it makes durable)
        self._elect_at_ms: int | None = None
        self._leader_heard_ms: int | None = None
        self._random = (seed * 2_654_435_761 + node * 40_503) & 0xFFFF_FFFF_FFFF_FFFF
        if self.commit > 0:
            self._out.append(Committed(self.commit + 1, (), self.log.snapshot.image))

    def drain(self) -> list[Effect]:
        """The effects since the last call."""
        out, self._out = self._out, []
        return out

    # Terms and roles

    def _observe_term(self, term: int) -> None:
        """Adopts a term above the own one: in a new term this node is a follower, whatever its role was before."""
        if term > self.term:
            self.term = term
            self.voted_for = None
            self._persist(SaveVote(term, None))
            self._follow(None)

    def _follow(self, leader: NodeId | None) -> None:
        if self.role is not Role.FOLLOWER or leader != self.leader:
            self.role = Role.FOLLOWER
            self.leader = leader
        self._delay_election()

    def _delay_election(self) -> None:
        self._elect_at_ms = self.now_ms + self._election_timeout_ms()

    def _election_timeout_ms(self) -> int:
        """Differs between nodes and between calls, so that two candidates are seldom active at the same time."""
        self._random = (self._random * _MULTIPLIER + _INCREMENT) & 0xFFFF_FFFF_FFFF_FFFF
        return self.settings.election_ms + (self._random >> 33) % self.settings.election_ms

    # Writing and sending

    def _persist(self, change: QuorumChange) -> None:
        self._operation += 1
        if isinstance(change, SaveVote):
            self._term_operation = self._operation
        self._out.append(Persist(Operation(self._operation), change))

    def _send(self, to: NodeId, message: QuorumMessage) -> None:
        self._out.append(Send(to, message))

    def _say_once_durable(self, to: NodeId, message: QuorumMessage) -> None:
        """Sends the message once everything written so far is durable, unless the term is over by then."""
        if self._is_durable():
            self._say(to, message)
        else:
            self._waiting.append(_Waiting(self._operation, self.term, to, message))

    def _is_durable(self) -> bool:
        """Whether everything written is durable."""
        return self._operation_durable >= self._operation

    @property
    def _term_is_durable(self) -> bool:
        return self._operation_durable >= self._term_operation

    def _say(self, to: NodeId, message: QuorumMessage) -> None:
        if to == self.id:
            self._heard_own(message)
        else:
            self._out.append(Send(to, message))

    def persisted(self, operation: int, failed: str | None) -> None:
        """Everything written up to this operation is durable."""
        if failed is not None:
            self._out.append(Panic(f"the metadata log cannot be written: {failed}"))
            return
        self._operation_durable = max(self._operation_durable, operation)
        while self._writing and self._writing[0][0] <= operation:
            self.durable_index = max(self.durable_index, self._writing.popleft()[1])
        while self._waiting and self._waiting[0].operation <= operation:
            waiting = self._waiting.popleft()
            if waiting.term == self.term:
                self._say(waiting.to, waiting.message)
        self._wrote()

    def _append(self, entries: tuple[Entry, ...]) -> None:
        """Appends to the own log."""
        first_index = self.log.last_index + 1
        self.log.append(entries)
        self._persist(SaveEntries(first_index, entries))
        self._writing.append((self._operation, self.log.last_index))

    def _truncate(self, first_gone: int) -> bool:
        """False (and the process ends) if that would remove committed entries (I4)."""
        if not self._may_truncate(first_gone):
            self._out.append(
                Panic(f"entry {first_gone} of the metadata log is committed, and a leader has another one")
            )
            return False
        self.log.truncate(first_gone)
        self.durable_index = min(self.durable_index, first_gone - 1)
        self._writing = deque((operation, min(index, first_gone - 1)) for operation, index in self._writing)
        return True

    def _may_truncate(self, first_gone: int) -> bool:
        return first_gone > self.commit

    # Committed entries

    def _commit_up_to(self, index: int) -> None:
        """Emits the entries that are now committed. `index` is in the log."""
        if index <= self.commit:
            return
        first = self.commit + 1
        records = tuple(entry.record for entry in self.log.after(self.commit, index - self.commit))
        self.commit = index
        self._out.append(Committed(first, records))

    # Overridden by subclasses

    def _heard_own(self, message: QuorumMessage) -> None:
        """Takes a message of this node to itself (its own vote)."""
        raise TypeError(f"a node says nothing to itself but its vote: {message!r}")

    def _wrote(self) -> None:
        """Called when more of the own log is durable."""

    def _others(self, members: Iterable[NodeId]) -> list[NodeId]:
        return [member for member in members if member != self.id]
