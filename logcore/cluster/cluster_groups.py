"""The consumer groups that this node coordinates: what handlers ask, passed on to the broker machine."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Future, TimeoutError
from typing import Any, Final

from kio.schema.errors import ErrorCode

from ..client import TopicPartition
from ..cores.group_messages import (
    NO_NOTE,
    CheckCommit,
    CommitNote,
    CommittedOffset,
    ConsumerBeat,
    ConsumerHeartbeat,
    GroupAnswer,
    GroupDescription,
    GroupFault,
    Heartbeat,
    Joined,
    JoinGroup,
    LeaveGroup,
    Left,
    Message,
    Reply,
    Sync,
    Synced,
)
from ..errors import LogClosed, NotNow
from ..replication.machine import BROKER
from ..replication.node.node_runtime import NoAnswer, NodeStopped
from ..replication.replica.replica_messages import Refused
from ..replication.shards.coordination_messages import ForEveryShard, ForGroup
from ..replication.shards.shard_group_requests import (
    AskCommitted,
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    GroupCommits,
    ListGroups,
    OffsetsDeleted,
)
from ..topic_rules import GROUPS_TOPIC
from .cluster_node import ClusterNode
from .refusals import refused

_ANSWER_S: Final = 5.0  # clients have one such request under way, and ask again when it is answered
_REPLIES: Final[Mapping[type, type[Reply]]] = {
    JoinGroup: Joined,
    Sync: Synced,
    Heartbeat: GroupAnswer,
    LeaveGroup: Left,
    CheckCommit: GroupAnswer,
}
_FAULTS: Final = {
    ErrorCode.coordinator_load_in_progress: GroupFault.LOADING,
    ErrorCode.not_coordinator: GroupFault.NOT_COORDINATOR,
}


class ClusterGroups:
    """`ServedGroups`."""

    def __init__(self, node: ClusterNode) -> None:
        self._node = node

    def ask(self, message: Message) -> Future[Reply]:
        """The answer may never come: what a coordinator that is cut off has written is neither committed nor refused.
        Raises `LogClosed`."""
        answer: Future[Reply] = Future()
        answer.set_running_or_notify_cancel()
        kind = _REPLIES[message.__class__]

        def settle(asked: Future[Any]) -> None:
            if asked.exception() is not None:
                answer.set_result(kind(GroupFault.SHUTTING_DOWN))
            elif isinstance(found := asked.result(), Refused):
                answer.set_result(kind(_fault(found)))
            else:
                answer.set_result(found)

        self._node.ask(BROKER, ForGroup(message.group, message)).add_done_callback(settle)
        return answer

    def beat(self, beat: ConsumerHeartbeat, partition_counts: Mapping[str, int]) -> ConsumerBeat:
        try:
            return self._ask(beat.group, beat)
        except NotNow as error:
            return ConsumerBeat(_FAULTS.get(ErrorCode(error.problem), GroupFault.SHUTTING_DOWN), beat.member_id)

    def commit(
        self, check: CheckCommit, offsets: Mapping[TopicPartition, int], notes: Mapping[TopicPartition, CommitNote]
    ) -> GroupFault:
        committed = {where: CommittedOffset(offset, *notes.get(where, NO_NOTE)) for where, offset in offsets.items()}
        return self._ask(check.group, CommitOffsets(check, committed)).fault

    def check(self, check: CheckCommit) -> GroupFault:
        try:
            return self.ask(check).result(_ANSWER_S).fault
        except TimeoutError:
            return GroupFault.SHUTTING_DOWN

    def describe(self, group: str) -> GroupDescription:
        return self._ask(group, DescribeGroup())

    def described(self) -> list[GroupDescription]:
        """All that are coordinated here."""
        return [found for shard in self._asked(ForEveryShard(GROUPS_TOPIC, ListGroups())) for found in shard]

    def names(self) -> list[str]:
        return [description.group for description in self.described()]

    def delete(self, group: str) -> GroupFault:
        return self._ask(group, DeleteGroup()).fault

    def delete_offsets(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, GroupFault] | GroupFault:
        deleted: OffsetsDeleted = self._ask(group, DeleteOffsets(tuple(partitions)))
        return deleted.fault if deleted.fault is not GroupFault.NONE else dict(deleted.partitions)

    def committed(self, group: str) -> dict[TopicPartition, CommittedOffset]:
        return dict(self._commits(group).offsets)

    def unsettled(self, group: str) -> frozenset[TopicPartition]:
        return self._commits(group).unsettled

    def _commits(self, group: str) -> GroupCommits:
        return self._ask(group, AskCommitted())

    def _ask(self, group: str, body: Any) -> Any:
        return self._asked(ForGroup(group, body))

    def _asked(self, body: Any) -> Any:
        """Raises `NotNow`."""
        try:
            answer = self._node.answer(BROKER, body, timeout_s=_ANSWER_S)
        except (LogClosed, NodeStopped, NoAnswer) as error:
            raise NotNow(ErrorCode.coordinator_not_available, "the coordinator does not answer") from error
        if isinstance(answer, Refused):
            raise refused(answer)
        return answer


def _fault(answer: Refused) -> GroupFault:
    return _FAULTS.get(ErrorCode(answer.problem.value), GroupFault.SHUTTING_DOWN)
