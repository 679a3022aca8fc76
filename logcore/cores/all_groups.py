"""All groups: classic ones (members assign), consumer groups (the coordinator assigns), and share groups.

It is pure, like each of the three; the shell (`replication/shards/group_shard.py`) writes records and sends answers. A
name belongs to one kind at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from .classic_members import ClassicMessage, from_classic, to_classic
from .consumer_groups import JOINS, ConsumerGroups
from .group_messages import (
    Answered,
    CheckCommit,
    ConsumerBeat,
    ConsumerHeartbeat,
    GroupDescription,
    GroupFault,
    Joined,
    JoinGroup,
)
from .group_records import GroupRecord, Kind
from .groups import Groups
from .share_groups import SHARE_KINDS, ShareGroups, ShareHeartbeat


class AllGroups:
    """A group without members takes the kind of the first member that joins. A group of consumers with members changes
    its kind when the first member joins that lets the coordinator assign, and when the last such member has left. A
    share group keeps its kind. See `Groups`, `ConsumerGroups`, `ShareGroups`.

    State: the groups, as the fold of their records and of later messages.
    """

    def __init__(self) -> None:
        self._classic = Groups()
        self._assigning = ConsumerGroups()
        self.share = ShareGroups()
        self._answers: list[Answered] = []

    def apply(self, record: GroupRecord) -> None:
        """Applies a record. Members come before their assignments."""
        if record.key.kind in SHARE_KINDS:
            self.share.apply(record)
        else:
            (self._classic if record.key.kind is Kind.CLASSIC else self._assigning).apply(record)

    def begin(self, now_ms: int) -> None:
        """Call it after the last record: from now on each member has a whole session timeout to send something."""
        self._classic.begin(now_ms)
        self._assigning.begin(now_ms)
        self.share.begin(now_ms)
        self._let_assign(self._assigning.classic_ones(), now_ms)

    def step(self, message: ClassicMessage, ticket: int, partition_counts: Mapping[str, int], now_ms: int) -> None:
        """In: `partition_counts`: of all existing topics. Answers come from `take_answers`."""
        name = message.group
        if self._assigning.is_in_use(name):
            self._answers.append(Answered(ticket, self._assigning.step(message, partition_counts, now_ms)))
            self._let_assign([name], now_ms)
        elif isinstance(message, JoinGroup) and self.share.has(name):
            self._answers.append(Answered(ticket, Joined(GroupFault.INCONSISTENT_PROTOCOL, message.member_id)))
        else:
            self._answers += self._classic.step(message, ticket, now_ms)
            if self._classic.has(name):
                self._assigning.forget(name)

    def take_answers(self) -> list[Answered]:
        """The answers that can be sent now: possibly to the last message, and to older ones."""
        answers, self._answers = self._answers + self._classic.take_answers(), []
        return answers

    def beat(self, beat: ConsumerHeartbeat, partition_counts: Mapping[str, int], now_ms: int) -> ConsumerBeat:
        """In: `partition_counts`: of all existing topics. Answers to other members come from `take_answers`."""
        if self.share.has(beat.group):
            return ConsumerBeat(GroupFault.NOT_FOUND, beat.member_id)
        if self._classic.is_in_use(beat.group):
            fault = self._assign_for(beat, now_ms)
            if fault is not GroupFault.NONE:
                return ConsumerBeat(fault, beat.member_id)
        answer = self._assigning.beat(beat, partition_counts, now_ms)
        if self._assigning.has(beat.group):
            self._classic.forget(beat.group)  # the group once had members of the other kind
        self._let_assign([beat.group], now_ms)
        return answer

    def _assign_for(self, beat: ConsumerHeartbeat, now_ms: int) -> GroupFault:
        """Turns a classic group into one whose coordinator assigns, because a member joins that requires it."""
        group = self._classic.find(beat.group)
        taken = None if group is None else from_classic(group, now_ms)
        if taken is None:
            return GroupFault.NOT_FOUND
        if beat.epoch != JOINS:  # it was a member before the group became classic
            return GroupFault.UNKNOWN_MEMBER
        fault = self._assigning.fault(beat)
        if fault is GroupFault.NONE:
            self._classic.give_up(beat.group, now_ms)
            self._assigning.take_over(beat.group, taken)
        return fault

    def _let_assign(self, names: Iterable[str], now_ms: int) -> None:
        """Turns groups into classic ones if no member is left that needs the coordinator to assign."""
        for name in names:
            if self._assigning.is_classic(name):
                self._classic.take_over(to_classic(name, self._assigning.give_up(name)), now_ms)

    def share_beat(self, beat: ShareHeartbeat, partition_counts: Mapping[str, int], now_ms: int) -> ConsumerBeat:
        """Like `beat`, for a member of a share group."""
        if self._classic.has(beat.group) or self._assigning.has(beat.group):
            return ConsumerBeat(GroupFault.NOT_FOUND, beat.member_id)
        return self.share.beat(beat, partition_counts, now_ms)

    def forget_topics(self, gone: Collection[str]) -> None:
        """Topics of these names were deleted. New topics may have the same names now."""
        self._assigning.forget_topics(gone)
        self.share.forget_topics(gone)

    def check_commit(self, check: CheckCommit, now_ms: int) -> GroupFault:
        """Whether this member may commit offsets now."""
        if self.share.has(check.group):
            return GroupFault.NOT_FOUND
        if self._assigning.is_in_use(check.group):
            return self._assigning.check_commit(check, now_ms)
        [answered] = self._classic.step(check, 0, now_ms)
        return answered.reply.fault

    def tick(self, now_ms: int) -> None:
        """Handles timeouts. Answers come from `take_answers`."""
        self._assigning.tick(now_ms)
        self._let_assign(self._assigning.classic_ones(), now_ms)
        self.share.tick(now_ms)
        self._answers += self._classic.tick(now_ms)

    def next_deadline_ms(self) -> int | None:
        """The earliest time at which `tick` has something to do."""
        kinds = (self._classic, self._assigning, self.share)
        deadlines = (kind.next_deadline_ms() for kind in kinds)
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def take_records(self) -> list[GroupRecord]:
        """The records to write now, in this order."""
        return [*self._classic.take_records(), *self._assigning.take_records(), *self.share.take_records()]

    def rewrite(self) -> None:
        """The records of `take_records` were lost, so they are written again."""
        self._classic.rewrite()
        self._assigning.rewrite()
        self.share.rewrite()

    def describe(self, group: str) -> GroupDescription:
        """The group's description; the state is DEAD if the group does not exist."""
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
        """Removes a group without members; False if the group is in use."""
        return all(kind.forget(group) for kind in (self._assigning, self._classic, self.share))
