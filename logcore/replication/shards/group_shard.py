"""The coordinator of the consumer groups of one partition of `__consumer_offsets`: members, and committed offsets.

`all_groups.py` and `group_commits.py` decide; this module handles the requests and writes the records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from ...client import TopicPartition
from ...coordination.group_topic import GroupTopic
from ...cores.all_groups import AllGroups
from ...cores.expiry import ExpiryTimes
from ...cores.group_expiry import expired, subscribed
from ...cores.group_messages import (
    CheckCommit,
    CommittedOffset,
    ConsumerBeat,
    ConsumerHeartbeat,
    GroupAnswer,
    GroupDescription,
    GroupFault,
    GroupState,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Sync,
)
from ...cores.share_groups import SHARE, ShareHeartbeat
from ...error_codes import ErrorCode
from ...records.key_values import KeyValue
from ...topic_rules import TRANSACTIONS_TOPIC
from ..machine import NodeId, RequestId, Send
from ..replica.replica_messages import Problem, Refused
from ..time_of_day import TimeOfDay
from ..topic_ids import ImageTopicIds
from .coordination_messages import ShardQuestion, ShardRequest
from .group_commits import CommittedOffsets
from .led_log import OUT_OF_TOUCH, AskedNow, LedLog
from .shard_group_requests import (
    AskCommitted,
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    GroupCommits,
    ListGroups,
    OffsetsDeleted,
)
from .share_messages import (
    AcknowledgeRecords,
    AcquireRecords,
    AskShareOffsets,
    DeleteShareOffsets,
    LookForRecords,
    ReleaseRecords,
    ResetShareOffsets,
)
from .share_shard import ShareShard
from .transaction_messages import (
    ApplyOffsets,
    AskUnapplied,
    HoldOffsets,
    OffsetsApplied,
    OffsetsHeld,
    ShardMessage,
    TransactionMessage,
    TransactionRequest,
)

_NEVER: Final = 1 << 62
_COMPLETE_MS: Final = 600_000  # by far enough for the coordinator to note that an end is complete
_log: Final = structlog.get_logger("millstream.logcore")


def _is_foreign(group: str) -> bool:
    return not group.startswith("_millstream")


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Times in milliseconds. `expires`: the groups whose offsets may expire."""

    expiry: ExpiryTimes = field(default_factory=ExpiryTimes)
    expire_every_ms: int = 600_000
    expires: Callable[[str], bool] = _is_foreign


class GroupShard:
    """State: the groups of the partition, as the fold of its records and of later requests.

    Requests are answered from the newest state, because an answer is sent only once that state is committed. Committed
    offsets are answered only by a node that is certain to coordinate.
    """

    def __init__(self, log: LedLog, settings: GroupSettings | None = None) -> None:
        self._log = log
        self._settings = settings or GroupSettings()
        ids = ImageTopicIds(lambda: log.image)
        self._topic = GroupTopic(ids, lambda: log.wall_ms)
        self._groups = AllGroups()
        self._offsets = CommittedOffsets(ids)
        self._share = ShareShard(log, self._groups, self._write_groups)
        self._entries: dict[bytes, bytes] = {}  # until `begin`
        self._due_ms = _NEVER  # no deadline of a group is earlier
        self._expires_at_ms = _NEVER
        self._time_of_day = TimeOfDay(log.now_ms, log.wall_ms)
        self._topic_ids: Mapping[str, str] = {}  # the topics that the groups' state refers to
        self._counted: object = None
        self._counts: dict[str, int] = {}

    # Begin and ticks

    def fold(self, records: Sequence[KeyValue]) -> None:
        for key, value in records:
            if value is None:
                self._entries.pop(key, None)
            else:
                self._entries[key] = value

    def begin(self) -> None:
        for key, value in self._entries.items():
            try:
                self._offsets.apply([KeyValue(key, value)])
            except ValueError as error:
                _log.error("a committed offset cannot be read", error=str(error))
        for record in self._topic.decode(self._entries):
            self._groups.apply(record)
        self._topic_ids = dict(self._log.image.topic_ids)  # a copy: the first tick also finds topics deleted before
        self._share.begin(self._entries)
        self._entries = {}
        self._groups.begin(self._log.now_ms)
        self._renew_deadline()
        self._expires_at_ms = self._log.now_ms + self._settings.expire_every_ms

    def tick(self) -> None:
        now_ms = self._log.now_ms
        if now_ms >= self._due_ms:
            self._groups.tick(now_ms)
            self._write_groups()
            self._share.release_gone()
            self._renew_deadline()
            self._answer()
        self._share.tick()
        self._forget_deleted()
        if now_ms >= self._expires_at_ms:
            self._expires_at_ms = now_ms + self._settings.expire_every_ms
            self._expire()

    def _forget_deleted(self) -> None:
        """Forgets everything about deleted topics, even if new topics have their names now."""
        before, now = self._topic_ids, self._log.image.topic_ids
        if now is before:
            return
        self._topic_ids = now
        if gone := {name for name, id in before.items() if now.get(name) != id}:
            self._groups.forget_topics(gone)
        self._write_offsets(self._offsets.forget_deleted())
        self._share.forget_deleted()

    def _renew_deadline(self) -> None:
        deadline_ms = self._groups.next_deadline_ms()
        self._due_ms = _NEVER if deadline_ms is None else deadline_ms

    # Requests

    def ask(self, request: RequestId, key: str, body: ShardRequest) -> None:
        match body:
            case JoinGroup() | Sync() | LeaveGroup() | Heartbeat():
                self._step(request, body)
            case ConsumerHeartbeat():
                self._beat(request, body)
            case ShareHeartbeat():
                self._share_beat(request, body)
            case LookForRecords() | AcquireRecords() | AcknowledgeRecords() | ReleaseRecords():
                self._share.ask(request, key, body)
            case AskShareOffsets() | ResetShareOffsets() | DeleteShareOffsets():
                self._share.ask(request, key, body)
            case CheckCommit():
                answer = self._log.reply_now if self._log.only_here else self._log.reply
                answer(request, GroupAnswer(self._groups.check_commit(body, self._log.now_ms)))
            case CommitOffsets(check, offsets):
                fault = self._groups.check_commit(check, self._log.now_ms)
                if fault is GroupFault.NONE:
                    self._write_offsets(self._offsets.commit(key, offsets, self._log.wall_ms))
                self._log.reply(request, GroupAnswer(fault))
            case AskCommitted() if (behind := self._why_behind(key)) is not None:
                self._log.reply_now(request, behind)
            case AskCommitted():
                self._log.prove()
                self._log.reply(request, GroupCommits(self._offsets.of(key), self._offsets.unsettled(key)))
            case DescribeGroup() if not self._log.leads_for_certain:
                self._log.reply(request, Refused(Problem.NOT_COORDINATOR, OUT_OF_TOUCH))
            case DescribeGroup():
                self._log.reply(request, self._described(key))
            case DeleteGroup():
                self._log.reply(request, GroupAnswer(self._delete(key)))
            case DeleteOffsets(partitions):
                self._log.reply(request, self._delete_offsets(key, partitions))
            case _:
                foreign: TransactionRequest = body
                raise AssertionError(f"not a request to groups: {foreign!r}")

    def _step(self, request: RequestId, message: JoinGroup | Sync | LeaveGroup | Heartbeat) -> None:
        self._forget_deleted()
        self._groups.step(message, request, self._partition_counts(), self._log.now_ms)
        self._write_groups()
        if not isinstance(message, Heartbeat):  # it only postpones deadlines, or sets one after the session's
            self._renew_deadline()
        self._answer()

    def _beat(self, request: RequestId, beat: ConsumerHeartbeat) -> None:
        self._forget_deleted()
        answer = self._groups.beat(beat, self._partition_counts(), self._log.now_ms)
        self._write_groups()
        self._due_ms = min(self._due_ms, self._log.now_ms + beat.session_ms)
        self._answer()
        self._log.reply(request, answer)

    def _share_beat(self, request: RequestId, beat: ShareHeartbeat) -> None:
        if self._offsets.of(beat.group):
            self._log.reply(request, ConsumerBeat(GroupFault.NOT_FOUND, beat.member_id))
            return
        self._forget_deleted()
        answer = self._groups.share_beat(beat, self._partition_counts(), self._log.now_ms)
        self._write_groups()
        self._share.release_gone()
        self._due_ms = min(self._due_ms, self._log.now_ms + beat.session_ms)
        self._log.reply(request, answer)

    def _partition_counts(self) -> dict[str, int]:
        """The partition counts of all topics; computed again when the metadata change."""
        topics = self._log.image.topics
        if topics is not self._counted:
            self._counted = topics
            self._counts = {topic.name: len(topic.partitions) for topic in topics.values()}
        return self._counts

    def _answer(self) -> None:
        for answered in self._groups.take_answers():
            self._log.reply(RequestId(answered.ticket), answered.reply)

    def _write_groups(self) -> None:
        self._log.write(self._topic.encode(self._groups.take_records()))

    def _write_offsets(self, changes: Sequence[KeyValue]) -> None:
        self._log.write(changes)
        self._offsets.apply(changes)

    def _why_behind(self, group: str) -> Refused | None:
        """Why offsets of committed transactions are missing here. A node that is alone answers a commit before they are
        durable; a crash may lose them, and then there may be no space to write them again. In a cluster the group's log
        holds them until the transaction is over: `GroupCommits.unsettled`."""
        if not self._log.only_here:
            return None
        found = self._log.look(TRANSACTIONS_TOPIC, AskUnapplied(group))
        return (
            found if isinstance(found, Refused) else next((each for each in found if isinstance(each, Refused)), None)
        )

    # Descriptions

    def look(self, body: ShardQuestion) -> tuple[GroupDescription, ...]:
        assert isinstance(body, ListGroups), f"unknown question {body!r}"
        return tuple(found for name in self._names() if (found := self._described(name)).state is not GroupState.DEAD)

    def _names(self) -> list[str]:
        return list(dict.fromkeys([*self._groups.names(), *self._offsets.groups()]))

    def _described(self, group: str) -> GroupDescription:
        """A group that only has offsets is empty."""
        description = self._groups.describe(group)
        if description.state is GroupState.DEAD and self._offsets.of(group):
            return GroupDescription(group, GroupState.EMPTY, generation=0)
        return description

    # Administration

    def _delete(self, group: str) -> GroupFault:
        if self._groups.is_in_use(group):
            return GroupFault.NOT_EMPTY
        committed = self._offsets.of(group)
        known = self._groups.has(group)
        self._groups.forget(group)
        self._write_groups()
        self._share.forget(group)
        self._write_offsets(self._offsets.forget(group, committed))
        return GroupFault.NONE if known or committed else GroupFault.NOT_FOUND

    def _delete_offsets(self, group: str, partitions: Sequence[TopicPartition]) -> OffsetsDeleted:
        description = self._described(group)
        if description.state is GroupState.DEAD:
            return OffsetsDeleted(GroupFault.NOT_FOUND, {})
        topics = subscribed(description)
        refused = {partition for partition in partitions if partition.topic in topics}
        self._write_offsets(self._offsets.forget(group, [each for each in partitions if each not in refused]))
        outcome = {each: GroupFault.SUBSCRIBED if each in refused else GroupFault.NONE for each in partitions}
        return OffsetsDeleted(GroupFault.NONE, outcome)

    def _expire(self) -> None:
        expiry, wall_ms = self._settings.expiry, self._log.wall_ms
        if self._time_of_day.was_set(self._log.now_ms, wall_ms):
            self._expires_at_ms = self._log.now_ms + max(expiry.offsets_ms, expiry.transactional_ids_ms)
            return  # the ages of offsets are unknown now
        for group in filter(self._settings.expires, self._names()):
            self._expire_group(group, wall_ms - expiry.offsets_ms)
        self._write_offsets(self._offsets.forget_settled(wall_ms - expiry.transactional_ids_ms))
        if self._log.alone:  # otherwise messages of other nodes about earlier transactions may still be under way
            self._write_offsets(self._offsets.forget_settled_of_none(wall_ms - _COMPLETE_MS))

    def _expire_group(self, group: str, before_ms: int) -> None:
        """Expires offsets, and a group that has nothing left. The state of share groups does not expire."""
        committed, described = self._offsets.of(group), self._groups.describe(group)
        if described.kind == SHARE:
            return
        gone = expired(described, committed, self._topic.empty_since_ms.get(group), before_ms)
        self._write_offsets(self._offsets.forget(group, gone))
        if len(gone) == len(committed) and not self._groups.is_in_use(group):
            self._groups.forget(group)
            self._write_groups()

    # Transactions that commit offsets

    def answer_now(self, key: str, asked: AskedNow) -> GroupAnswer:
        """See `Shard`."""
        assert isinstance(asked, CheckCommit), "transactions are asked for of their own coordinators"
        return GroupAnswer(self._groups.check_commit(asked, self._log.now_ms))

    def receive(self, sender: NodeId, message: ShardMessage) -> None:
        match message:
            case HoldOffsets():
                self._log.say(Send(sender, self._hold(message)))
            case ApplyOffsets():
                self._apply(message)
                who = message.transactional_id, message.producer_id, message.number, message.group
                applied = OffsetsApplied(message.sender, *who)
                if self._log.only_here:  # a request for these offsets now waits until they are durable
                    self._log.send(sender, applied._replace(durable=False))
                self._log.say(Send(sender, applied))
            case _:
                foreign: TransactionMessage = message
                raise AssertionError(f"not for groups: {foreign!r}")

    def _hold(self, asked: HoldOffsets) -> OffsetsHeld:
        group, producer_id, number = asked.group, asked.producer_id, asked.number
        problem = 0
        if self._offsets.is_settled(group, producer_id, number):
            problem = Problem.INVALID_TXN_STATE.value  # the request came too late
        else:
            check = CheckCommit(group, asked.generation, asked.member_id, asked.instance_id, transactional=True)
            fault = self._groups.check_commit(check, self._log.now_ms)
            problem = ErrorCode[fault.value].value
            if fault is GroupFault.NONE:
                places = [TopicPartition(*place) for place in asked.partitions]
                self._write_offsets(self._offsets.hold(group, producer_id, number, places))
        return OffsetsHeld(asked.sender, asked.transactional_id, producer_id, number, group, problem)

    def _apply(self, asked: ApplyOffsets) -> None:
        offsets = {
            TopicPartition(row.topic, row.partition): CommittedOffset(row.offset, row.metadata, row.leader_epoch)
            for row in asked.offsets
        }
        at_ms = self._log.wall_ms
        self._write_offsets(self._offsets.settle(asked.group, asked.producer_id, asked.number, offsets, at_ms))
