"""Groups of all kinds, side by side: those whose members assign, those whose coordinator does, and share groups.

Pure, as each of them: what to write and what to answer is the shell's affair
(`replication/shards/group_shard.py`). A name belongs to one kind at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from .consumer_groups import ConsumerGroups
from .group_messages import (
    Answered,
    CheckCommit,
    ConsumerBeat,
    ConsumerHeartbeat,
    GroupDescription,
    GroupFault,
    Joined,
    JoinGroup,
    Message,
)
from .group_records import GroupRecord, Kind
from .groups import Groups
from .share_groups import SHARE_KINDS, ShareGroups, ShareHeartbeat


class AllGroups:
    """A group without members changes its kind with the first that joins; a share group stays one. See `Groups`,
    `ConsumerGroups`, `ShareGroups`.

    State: the groups, as the fold of their records and of what was asked since.
    """

    def __init__(self) -> None:
        self._classic = Groups()
        self._assigning = ConsumerGroups()
        self.share = ShareGroups()

    def apply(self, record: GroupRecord) -> None:
        """Takes in a record; members come before what they read."""
        if record.key.kind in SHARE_KINDS:
            self.share.apply(record)
        else:
            (self._classic if record.key.kind is Kind.CLASSIC else self._assigning).apply(record)

    def begin(self, now_ms: int) -> None:
        """All records are there: each member has a whole session to be heard of."""
        self._classic.begin(now_ms)
        self._assigning.begin(now_ms)
        self.share.begin(now_ms)

    def step(self, message: Message, ticket: int, now_ms: int) -> list[Answered]:
        """The answers that can be given now: to this message, perhaps, and to older ones."""
        other = self._assigning.is_in_use(message.group) or self.share.has(message.group)
        if isinstance(message, JoinGroup) and other:
            return [Answered(ticket, Joined(GroupFault.INCONSISTENT_PROTOCOL, message.member_id))]
        answered = self._classic.step(message, ticket, now_ms)
        if self._classic.has(message.group):
            self._assigning.forget(message.group)
        return answered

    def beat(self, beat: ConsumerHeartbeat, partition_counts: Mapping[str, int], now_ms: int) -> ConsumerBeat:
        """In: `partition_counts`: of all topics that there are."""
        if self._classic.is_in_use(beat.group) or self.share.has(beat.group):
            return ConsumerBeat(GroupFault.NOT_FOUND, beat.member_id)
        answer = self._assigning.beat(beat, partition_counts, now_ms)
        if self._assigning.has(beat.group):
            self._classic.forget(beat.group)  # the group had members of the other kind once
        return answer

    def share_beat(self, beat: ShareHeartbeat, partition_counts: Mapping[str, int], now_ms: int) -> ConsumerBeat:
        """The same, of a member of a share group."""
        if self._classic.has(beat.group) or self._assigning.has(beat.group):
            return ConsumerBeat(GroupFault.NOT_FOUND, beat.member_id)
        return self.share.beat(beat, partition_counts, now_ms)

    def forget_topics(self, gone: Collection[str]) -> None:
        """Topics of these names were deleted, and perhaps others made that have them now."""
        self._assigning.forget_topics(gone)
        self.share.forget_topics(gone)

    def check_commit(self, check: CheckCommit, now_ms: int) -> GroupFault:
        """Whether this member may commit offsets now."""
        if self.share.has(check.group):
            return GroupFault.NOT_FOUND
        if self._assigning.is_in_use(check.group):
            return self._assigning.check_commit(check)
        [answered] = self._classic.step(check, 0, now_ms)
        return answered.reply.fault

    def tick(self, now_ms: int) -> list[Answered]:
        """What follows from the passing of time."""
        self._assigning.tick(now_ms)
        self.share.tick(now_ms)
        return self._classic.tick(now_ms)

    def next_deadline_ms(self) -> int | None:
        """When `tick` has something to do, at the earliest."""
        kinds = (self._classic, self._assigning, self.share)
        deadlines = (kind.next_deadline_ms() for kind in kinds)
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def take_records(self) -> list[GroupRecord]:
        """What is to be written now, in this order."""
        return [*self._classic.take_records(), *self._assigning.take_records(), *self.share.take_records()]

    def rewrite(self) -> None:
        """What was to be written is lost: it is written once more."""
        self._classic.rewrite()
        self._assigning.rewrite()
        self.share.rewrite()

    def describe(self, group: str) -> GroupDescription:
        """Of a group that is not there with the state DEAD."""
        if self.share.has(group):
            return self.share.describe(group)
        return self._assigning.describe(group) if self._assigning.has(group) else self._classic.describe(group)

    def names(self) -> list[str]:
        return [*self._classic.names(), *self._assigning.names(), *self.share.names()]

    def has(self, group: str) -> bool:
        return any(kind.has(group) for kind in (self._classic, self._assigning, self.share))

    def is_in_use(self, group: str) -> bool:
        """Whether it has members, or expects one."""
        return any(kind.is_in_use(group) for kind in (self._classic, self._assigning, self.share))

    def forget(self, group: str) -> bool:
        """Lets go of a group without members; False where it is in use."""
        return all(kind.forget(group) for kind in (self._assigning, self._classic, self.share))
