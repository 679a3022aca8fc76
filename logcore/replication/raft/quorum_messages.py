"""Messages between members of the metadata quorum, their changes on the disk, and the state that they start with."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..controller.metadata_records import MetadataRecord
from ..machine import NodeId

if TYPE_CHECKING:
    from ..controller.metadata_image import MetadataImage


class Entry(NamedTuple):
    """One record of the metadata log, with the term of the leader that wrote it."""

    term: int
    record: LogRecord


class LeaderStarted(NamedTuple):
    """The first record of each leader. Once it is committed, so is everything before it (R3)."""

    leader: NodeId


class VotersChanged(NamedTuple):
    """The members of the quorum. It applies on a node as soon as its log has this record. Learners get all entries and
    have no vote."""

    voters: tuple[NodeId, ...]
    learners: tuple[NodeId, ...] = ()
    disks: tuple[str, ...] = ()  # one per voter, "" if not yet known; an empty tuple while a cluster starts

    def disk_of(self, node: NodeId) -> str:
        return self.disks[self.voters.index(node)] if self.disks and node in self.voters else ""

    def counts(self, node: NodeId, disk: str) -> bool:
        """Whether the answers of this voter count: a replacement disk does not have what the previous one promised."""
        return not self.disks or self.disk_of(node) == disk != ""

    def majority(self) -> int:
        return len(self.voters) // 2 + 1

    def members(self) -> tuple[NodeId, ...]:
        return self.voters + self.learners


LogRecord = MetadataRecord | LeaderStarted | VotersChanged
"""All kinds of records of the metadata log: decisions of the controller, and the quorum's own records."""


class Snapshot(NamedTuple):
    """The fold of all records up to and including `index`."""

    index: int
    term: int
    voters: VotersChanged  # as of `index`
    image: MetadataImage | None  # None: there are no records yet


# Messages. `cluster` fences nodes of another cluster that got one of our addresses (R20).


class PreVote(NamedTuple):
    """Asks: would I get your vote in this term? Asking changes nothing (R4)."""

    cluster: str
    term: int
    last_term: int
    last_index: int


class PreVoteAnswer(NamedTuple):
    cluster: str
    term: int  # granted: the term asked for; otherwise the answering node's own term
    granted: bool
    disk: str


class Vote(NamedTuple):
    cluster: str
    term: int
    last_term: int
    last_index: int


class VoteAnswer(NamedTuple):
    cluster: str
    term: int
    granted: bool
    disk: str


class Append(NamedTuple):
    """The entries after (`previous_index`, `previous_term`). Without entries it is a heartbeat."""

    cluster: str
    term: int
    previous_index: int
    previous_term: int
    entries: tuple[Entry, ...]
    commit: int


class AppendAnswer(NamedTuple):
    """Accepted: my log is durable and equal to yours up to `index`. Otherwise: continue from `index`."""

    cluster: str
    term: int
    accepted: bool
    index: int
    disk: str


class InstallSnapshot(NamedTuple):
    """For a member that needs entries which the leader no longer has. Answered by `AppendAnswer`."""

    cluster: str
    term: int
    snapshot: Snapshot


class TimeoutNow(NamedTuple):
    """Hands over leadership: the receiver has the whole log, and stands for election immediately."""

    cluster: str
    term: int


QuorumMessage = PreVote | PreVoteAnswer | Vote | VoteAnswer | Append | AppendAnswer | InstallSnapshot | TimeoutNow


# Changes on the disk


class SaveVote(NamedTuple):
    term: int
    voted_for: NodeId | None


class SaveEntries(NamedTuple):
    """Stores entries that begin at `first_index`; they replace everything from there on."""

    first_index: int
    entries: tuple[Entry, ...]


class SaveSnapshot(NamedTuple):
    """Makes the snapshot durable, and only then drops the entries up to `log_base`; with `reset` all entries."""

    snapshot: Snapshot
    log_base: int
    log_base_term: int
    reset: bool


QuorumChange = SaveVote | SaveEntries | SaveSnapshot


class QuorumRecovered(NamedTuple):
    """What the disk has from the node's previous runs."""

    term: int
    voted_for: NodeId | None
    snapshot: Snapshot
    log_base: int  # the entries begin after it; at most the snapshot's index
    log_base_term: int
    entries: tuple[Entry, ...]
    disk: str = ""  # the name of the disk; a replaced disk without a name is not noticed


def nothing_recovered(voters: tuple[NodeId, ...], learners: tuple[NodeId, ...] = ()) -> QuorumRecovered:
    """The state of a node that was never started. All first voters of a cluster need the same arguments."""
    return QuorumRecovered(0, None, Snapshot(0, 0, VotersChanged(voters, learners), None), 0, 0, ())
