"""The leader's view of its followers: which are in sync, which might be, and which proposal awaits the controller."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from ..controller.metadata_records import PartitionState
from ..machine import NodeId


class FetchNote(NamedTuple):
    """When a follower fetched, and the end of the leader's log at that time."""

    at_ms: int
    end_offset: int


@dataclass(slots=True)
class FollowerProgress:
    """What a follower has acknowledged. `caught_up_ms`: when it last had the whole log of that time.

    Two fetches of the follower's current incarnation determine this: `last`, and `awaited`, an earlier one whose end
    offset it has not reached yet. `last` is not enough: a follower that always lags a few fetches never has what the
    log had at its last fetch.
    """

    offset: int
    broker_epoch: int
    caught_up_ms: int
    last: FetchNote
    awaited: FetchNote

    def note(self, offset: int, now: FetchNote) -> None:
        """The same incarnation of the follower fetches from `offset`."""
        reached = [fetched.at_ms for fetched in (self.awaited, self.last, now) if offset >= fetched.end_offset]
        self.caught_up_ms = max(self.caught_up_ms, *reached) if reached else self.caught_up_ms
        self.offset = max(self.offset, offset)  # a lower one is an old copy
        self.last = now
        if offset >= self.awaited.end_offset:
            self.awaited = now

    def begin_anew(self, offset: int, broker_epoch: int, now: FetchNote) -> None:
        """The first fetch of a new incarnation of the follower. Notes about the previous one do not apply to it."""
        self.offset, self.broker_epoch = offset, broker_epoch
        self.last = self.awaited = now
        if offset >= now.end_offset:
            self.caught_up_ms = now.at_ms


@dataclass(slots=True)
class InSyncReplicas:
    """State: the committed set, and every set that the controller may have committed since, all at one partition epoch.

    `maximal` is their union; the high watermark waits for all of it (R11, R12). It shrinks only with a new partition
    epoch, because a copy of a refused request may still be under way.
    """

    committed: frozenset[NodeId]
    partition_epoch: int
    maximal: frozenset[NodeId]
    pending: frozenset[NodeId] | None = None
    asked_ms: int = 0
    followers: dict[NodeId, FollowerProgress] = field(default_factory=dict)

    @classmethod
    def of(cls, view: PartitionState) -> InSyncReplicas:
        committed = frozenset(view.isr)
        return cls(committed, view.partition_epoch, committed)

    def adopt(self, view: PartitionState) -> None:
        """Takes newer committed metadata of the same leader epoch."""
        self.committed = self.maximal = frozenset(view.isr)
        self.partition_epoch, self.pending = view.partition_epoch, None
        self.followers = {node: known for node, known in self.followers.items() if node in view.replicas}

    def propose(self, members: Iterable[NodeId], now_ms: int) -> None:
        self.pending = frozenset(members)
        self.maximal |= self.pending
        self.asked_ms = now_ms

    def refused(self) -> None:
        """The last request was refused; `maximal` stays."""
        self.pending = None

    @property
    def unsettled(self) -> bool:
        """Whether a refused set still holds the high watermark back."""
        return self.pending is None and self.maximal != self.committed

    def is_only(self, node: NodeId) -> bool:
        """Whether no other node is in sync, or might be, and no proposal is pending."""
        return self.pending is None and len(self.maximal) == len(self.committed) == 1 and node in self.maximal

    def acknowledged(self, node: NodeId) -> int:
        known = self.followers.get(node)
        return known.offset if known is not None else -1

    def note_fetch(self, node: NodeId, offset: int, broker_epoch: int, end_offset: int, now_ms: int) -> bool:
        """Notes what a fetch acknowledges. False if it comes from an earlier incarnation of the follower."""
        known = self.followers.get(node)
        now = FetchNote(now_ms, end_offset)
        if known is None:
            # A new follower counts as caught up now: it must have time for one more fetch.
            self.followers[node] = FollowerProgress(offset, broker_epoch, now_ms, now, now)
            return True
        if broker_epoch < known.broker_epoch:
            return False
        if broker_epoch > known.broker_epoch:
            known.begin_anew(offset, broker_epoch, now)
        else:
            known.note(offset, now)
        return True
