"""The consumer groups that this node coordinates: passes requests of the handlers on to the broker machine."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Future
from typing import Final, TypeVar, assert_never

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
from ..error_codes import ErrorCode
from ..errors import LogClosed, NotNow
from ..replication.machine import BROKER
from ..replication.machine_messages import Answer
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
    GroupRequest,
    ListGroups,
    OffsetsDeleted,
)
from ..topic_rules import GROUPS_TOPIC, NOTES
from .cluster_node import ClusterNode
from .refusals import given, listed

_ANSWER_S: Final = 5.0  # clients have only one such request at a time, and retry after its answer
_Wanted = TypeVar("_Wanted")
_FAULTS: Final = {
    ErrorCode.coordinator_load_in_progress: GroupFault.LOADING,
    ErrorCode.not_coordinator: GroupFault.NOT_COORDINATOR,
}


class ClusterGroups:
    """`ServedGroups`."""

    def __init__(self, node: ClusterNode) -> None:
        self._node = node

    def ask(self, message: Message) -> Future[Reply]:
        """The answer may never come: if a coordinator is disconnected, its writes are neither committed nor refused.
        Raises `LogClosed`."""
        answer: Future[Reply] = Future()
        answer.set_running_or_notify_cancel()
        kind = _reply_to(message)

        def settle(asked: Future[Answer]) -> None:
            if asked.exception() is not None:
                answer.set_result(kind(GroupFault.SHUTTING_DOWN))
            elif isinstance(found := asked.result(), Refused):
                answer.set_result(kind(_fault(found)))
            elif isinstance(found, kind):
                answer.set_result(found)
            else:
                answer.set_exception(TypeError(f"a {kind.__name__} is the answer, and not {found!r}"))

        self._node.ask(BROKER, ForGroup(message.group, message)).add_done_callback(settle)
        return answer

    def beat(self, beat: ConsumerHeartbeat, partition_counts: Mapping[str, int]) -> ConsumerBeat:
        try:
            return self._ask(beat.group, beat, ConsumerBeat)
        except NotNow as error:
            return ConsumerBeat(_FAULTS.get(ErrorCode(error.problem), GroupFault.SHUTTING_DOWN), beat.member_id)

    def commit(
        self, check: CheckCommit, offsets: Mapping[TopicPartition, int], notes: Mapping[TopicPartition, CommitNote]
    ) -> GroupFault:
        committed = {where: CommittedOffset(offset, *notes.get(where, NO_NOTE)) for where, offset in offsets.items()}
        return self._ask(check.group, CommitOffsets(check, committed), GroupAnswer).fault

    def check(self, check: CheckCommit) -> GroupFault:
        try:
            answer = self._node.answer_now(ForGroup(check.group, check), _ANSWER_S)
        except (NodeStopped, NoAnswer):
            return GroupFault.SHUTTING_DOWN
        if isinstance(answer, Refused):
            return _fault(answer)
        assert isinstance(answer, GroupAnswer)
        return answer.fault

    def describe(self, group: str) -> GroupDescription:
        return self._ask(group, DescribeGroup(), GroupDescription)

    def described(self) -> list[GroupDescription]:
        """All groups that this node coordinates."""
        return listed(self._asked(ForEveryShard(GROUPS_TOPIC, ListGroups())), GroupDescription)

    def names(self) -> list[str]:
        """The names of all groups, except those that keep notes instead of offsets."""
        return [each.group for each in self.described() if not each.group.startswith(NOTES)]

    def delete(self, group: str) -> GroupFault:
        return self._ask(group, DeleteGroup(), GroupAnswer).fault

    def delete_offsets(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, GroupFault] | GroupFault:
        deleted = self._ask(group, DeleteOffsets(tuple(partitions)), OffsetsDeleted)
        return deleted.fault if deleted.fault is not GroupFault.NONE else dict(deleted.partitions)

    def committed(self, group: str) -> dict[TopicPartition, CommittedOffset]:
        return dict(self.commits(group).offsets)

    def unsettled(self, group: str) -> frozenset[TopicPartition]:
        return self.commits(group).unsettled

    def commits(self, group: str) -> GroupCommits:
        """The group's commits, from one request. Raises `NotNow`."""
        return self._ask(group, AskCommitted(), GroupCommits)

    def _ask(self, group: str, body: GroupRequest, kind: type[_Wanted]) -> _Wanted:
        """Raises `NotNow`."""
        return given(self._asked(ForGroup(group, body)), kind)

    def _asked(self, body: ForGroup | ForEveryShard) -> Answer:
        """Raises `NotNow`."""
        try:
            return self._node.answer(BROKER, body, timeout_s=_ANSWER_S)
        except (LogClosed, NodeStopped, NoAnswer) as error:
            raise NotNow(ErrorCode.coordinator_not_available, "the coordinator does not answer") from error


def _reply_to(message: Message) -> type[Joined] | type[Synced] | type[GroupAnswer] | type[Left]:
    match message:
        case JoinGroup():
            return Joined
        case Sync():
            return Synced
        case Heartbeat() | CheckCommit():
            return GroupAnswer
        case LeaveGroup():
            return Left
        case _:
            assert_never(message)


def _fault(answer: Refused) -> GroupFault:
    return _FAULTS.get(ErrorCode(answer.problem.value), GroupFault.SHUTTING_DOWN)
