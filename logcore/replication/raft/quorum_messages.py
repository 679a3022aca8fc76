"""What the members of the metadata quorum say to each other, keep on disk, and are started with."""

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
    """The first record of each leader. Once it is committed, so is all before it (R3)."""

    leader: NodeId


class VotersChanged(NamedTuple):
    """Who is in the quorum, from when a node has this record in its log. Learners get all, and decide nothing."""

    voters: tuple[NodeId, ...]
    learners: tuple[NodeId, ...] = ()
    disks: tuple[str, ...] = ()  # by voter; an empty text where it is not known yet. None are while a cluster begins

    def disk_of(self, node: NodeId) -> str:
        return self.disks[self.voters.index(node)] if self.disks and node in self.voters else ""

    def counts(self, node: NodeId, disk: str) -> bool:
        """Whether what this voter says counts: a disk in the place of another one has forgotten what it promised."""
        return not self.disks or self.disk_of(node) == disk != ""

    def majority(self) -> int:
        return len(self.voters) // 2 + 1

    def members(self) -> tuple[NodeId, ...]:
        return self.voters + self.learners


LogRecord = MetadataRecord | LeaderStarted | VotersChanged
"""All kinds of records of the metadata log: what the controller decides, and the quorum's own."""


class Snapshot(NamedTuple):
    """The fold of all records up to and including `index`."""

    index: int  # pyright: ignore[reportIncompatibleMethodOverride]
    term: int
    voters: VotersChanged  # as of `index`
    image: MetadataImage | None  # None: of no record


# Messages. `cluster` fences off nodes of another cluster that were given our addresses (R20).


class PreVote(NamedTuple):
    """Would I get your vote in this term? Nothing changes by asking (R4)."""

    cluster: str
    term: int
    last_term: int
    last_index: int


class PreVoteAnswer(NamedTuple):
    cluster: str
    term: int  # the answering node's own, if it is above the asked one; else the asked one
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
    """The entries behind (`previous_index`, `previous_term`); without entries a sign of life."""

    cluster: str
    term: int
    previous_index: int
    previous_term: int
    entries: tuple[Entry, ...]
    commit: int


class AppendAnswer(NamedTuple):
    """Accepted: my log is durable and equal to yours up to `index`. Else: go on from `index`."""

    cluster: str
    term: int
    accepted: bool
    index: int  # pyright: ignore[reportIncompatibleMethodOverride]
    disk: str


class InstallSnapshot(NamedTuple):
    """For who is so far behind that the entries are gone. Answered by `AppendAnswer`."""

    cluster: str
    term: int
    snapshot: Snapshot


class TimeoutNow(NamedTuple):
    """Become leader, you have everything: leadership is handed over."""

    cluster: str
    term: int


QuorumMessage = PreVote | PreVoteAnswer | Vote | VoteAnswer | Append | AppendAnswer | InstallSnapshot | TimeoutNow


# Changes on the disk


class SaveVote(NamedTuple):
    term: int
    voted_for: NodeId | None


class SaveEntries(NamedTuple):
    """These entries begin at `first_index`; what was there and behind it is gone."""

    first_index: int
    entries: tuple[Entry, ...]


class SaveSnapshot(NamedTuple):
    """The snapshot is safe before the entries up to `log_base` go; with `reset` all entries go."""

    snapshot: Snapshot
    log_base: int
    log_base_term: int
    reset: bool


QuorumChange = SaveVote | SaveEntries | SaveSnapshot


class QuorumRecovered(NamedTuple):
    """What the disk holds of a node's life before."""

    term: int
    voted_for: NodeId | None
    snapshot: Snapshot
    log_base: int  # the entries begin behind it; not above the snapshot's index
    log_base_term: int
    entries: tuple[Entry, ...]
    disk: str = ""  # names the disk; where it has no name, nobody notices that it was exchanged


def nothing_recovered(voters: tuple[NodeId, ...], learners: tuple[NodeId, ...] = ()) -> QuorumRecovered:
    """A node that was never started. All first voters of a cluster must be given the same."""
    return QuorumRecovered(0, None, Snapshot(0, 0, VotersChanged(voters, learners), None), 0, 0, ())
