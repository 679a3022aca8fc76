"""Consumer groups of a log over the network: sends the messages of `group_messages.py`."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from datetime import timedelta
from typing import Any, Final

from ..client import TopicPartition
from ..cores.group_messages import (
    CheckCommit,
    CommitNote,
    CommittedOffset,
    GroupAnswer,
    GroupDescription,
    GroupFault,
    GroupState,
    Heartbeat,
    Joined,
    JoinedMember,
    JoinGroup,
    LeaveGroup,
    Leaving,
    Left,
    MemberDescription,
    Message,
    Reply,
    Sync,
    Synced,
)
from ..error_codes import ErrorCode
from ..protocol.routing import CoordinatorKey, Router
from ..protocol.wire.apis import Api
from ..protocol.wire.faults import error_of
from ..protocol.wire.messages import Fields
from .remote_producer import offset_topics

_UNDECIDED: Final = int(ErrorCode.unstable_offset_commit)
_UNDECIDED_S: Final = 2.0
_LOOK_S: Final = 0.05
_FAULTS: Final = {ErrorCode[fault.value]: fault for fault in GroupFault}


class RemoteGroups:
    """Any thread may call any method."""

    def __init__(self, router: Router) -> None:
        self._router = router

    def ask(self, message: Message) -> Future[Reply]:
        """Messages whose answers depend on other members wait on their own thread."""
        future: Future[Reply] = Future()

        def answer() -> None:
            try:
                future.set_result(self._answer(message))
            except BaseException as error:
                future.set_exception(error)

        if isinstance(message, JoinGroup | Sync):
            threading.Thread(target=answer, name="millstream-group", daemon=True).start()
        else:
            answer()
        return future

    def _answer(self, message: Message) -> Reply:
        match message:
            case JoinGroup():
                return self._join(message)
            case Sync():
                return self._sync(message)
            case Heartbeat():
                fields = {**_member(message), "generation_id": message.generation}
                answer = self._router.ask(Api.HEARTBEAT, fields, to=_coordinator(message.group))
                return GroupAnswer(_fault(answer.error_code, message.group))
            case LeaveGroup():
                return self._leave(message)
            case CheckCommit():
                return GroupAnswer(self.commit(message, {}, {}))

    def _join(self, join: JoinGroup) -> Joined:
        fields = {
            **_member(join),
            "session_timeout": timedelta(milliseconds=join.session_timeout_ms),
            "rebalance_timeout": timedelta(milliseconds=join.rebalance_timeout_ms),
            "protocol_type": join.protocol_type,
            "protocols": [{"name": offered.name, "metadata": offered.metadata} for offered in join.protocols],
        }
        answer = self._ask_and_wait(Api.JOIN_GROUP, fields, join.rebalance_timeout_ms / 1000)
        return Joined(
            _fault(answer.error_code, join.group),
            answer.member_id,
            answer.generation_id,
            getattr(answer, "protocol_type", None) or join.protocol_type,
            answer.protocol_name,
            answer.leader,
            tuple(
                JoinedMember(member.member_id, getattr(member, "group_instance_id", None), member.metadata)
                for member in answer.members
            ),
            getattr(answer, "skip_assignment", False),
        )

    def _sync(self, sync: Sync) -> Synced:
        fields = {
            **_member(sync),
            "generation_id": sync.generation,
            "protocol_type": sync.protocol_type,
            "protocol_name": sync.protocol,
            "assignments": [
                {"member_id": member_id, "assignment": assignment} for member_id, assignment in sync.assignments.items()
            ],
        }
        answer = self._ask_and_wait(Api.SYNC_GROUP, fields, 300.0)
        return Synced(_fault(answer.error_code, sync.group), sync.protocol_type, sync.protocol, answer.assignment)

    def _leave(self, leave: LeaveGroup) -> Left:
        members = [{"member_id": member.member_id, "group_instance_id": member.instance_id} for member in leave.members]
        first = members[0] if members else {"member_id": ""}
        fields = {"group_id": leave.group, "members": members, "member_id": first["member_id"]}
        answer = self._router.ask(Api.LEAVE_GROUP, fields, to=_coordinator(leave.group))
        told = tuple(
            (Leaving(member.member_id, member.group_instance_id), _fault(member.error_code, leave.group))
            for member in getattr(answer, "members", ())
        )
        return Left(_fault(answer.error_code, leave.group), told)

    def _ask_and_wait(self, api: Api, fields: Fields, wait_s: float) -> Any:
        """Does not retry when the connection breaks: the member asks again itself, with its state at that time."""
        return self._router.ask(api, fields, to=_coordinator(fields["group_id"]), wait_s=wait_s, repeat=False)

    def commit(
        self, check: CheckCommit, offsets: Mapping[TopicPartition, int], notes: Mapping[TopicPartition, CommitNote]
    ) -> GroupFault:
        """See `GroupClient.commit`."""
        fields = {
            **_member(check),
            "generation_id_or_member_epoch": check.generation,
            "topics": offset_topics(offsets, notes),
        }
        answer = self._router.ask(Api.OFFSET_COMMIT, fields, to=_coordinator(check.group))
        faults = [
            _fault(partition.error_code, check.group) for topic in answer.topics for partition in topic.partitions
        ]
        return next((fault for fault in faults if fault is not GroupFault.NONE), GroupFault.NONE)

    def committed(self, group: str) -> dict[TopicPartition, CommittedOffset]:
        """In a cluster it waits briefly for offsets that an open transaction may still commit. Raises `LogUnavailable`
        if the transaction stays open: the next producer of its id will decide it."""
        one = {"group_id": group, "topics": None}
        fields = {**one, "groups": [one], "require_stable": self._router.clustered}
        deadline = time.monotonic() + _UNDECIDED_S
        while True:
            answer = self._router.ask(Api.OFFSET_FETCH, fields, to=_coordinator(group))
            found = answer.groups[0] if hasattr(answer, "groups") else answer
            _fault(found.error_code, group)
            partitions = [(topic.name, partition) for topic in found.topics for partition in topic.partitions]
            problems = {int(partition.error_code) for _, partition in partitions} - {0}
            if problems != {_UNDECIDED} or time.monotonic() > deadline:
                break
            time.sleep(_LOOK_S)
        for problem in problems:
            raise error_of(problem, None, f'read the offsets of group "{group}"')
        return {
            TopicPartition(topic, partition.partition_index): CommittedOffset(
                partition.committed_offset,
                partition.metadata or "",
                getattr(partition, "committed_leader_epoch", -1),
            )
            for topic, partition in partitions
            if partition.committed_offset >= 0
        }

    def describe(self, group: str) -> GroupDescription:
        [found] = self._router.ask(Api.DESCRIBE_GROUPS, {"groups": [group]}, to=_coordinator(group)).groups
        _fault(found.error_code, group)
        return GroupDescription(
            group,
            GroupState(found.group_state),
            found.protocol_type,
            found.protocol_data,
            members=tuple(
                MemberDescription(
                    member.member_id,
                    getattr(member, "group_instance_id", None),
                    member.client_id,
                    member.client_host.lstrip("/"),
                    member.member_metadata,
                    member.member_assignment,
                )
                for member in found.members
            ),
        )

    def names(self) -> list[str]:
        """All groups, except share groups, which have neither generations nor committed offsets."""
        answers = self._router.ask_all(Api.LIST_GROUPS, {})
        for answer in answers:
            _fault(answer.error_code, "")
        return [found.group_id for answer in answers for found in answer.groups if not _is_share_group(found)]

    def delete(self, group: str) -> GroupFault:
        fields = {"groups_names": [group]}
        [result] = self._router.ask(Api.DELETE_GROUPS, fields, to=_coordinator(group), repeat=False).results
        return _fault(result.error_code, group)

    def delete_offsets(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, GroupFault] | GroupFault:
        """See `GroupClient.delete_offsets`."""
        topics: dict[str, list[Fields]] = {}
        for topic, partition in partitions:
            topics.setdefault(topic, []).append({"partition_index": partition})
        asked = [{"name": topic, "partitions": entries} for topic, entries in topics.items()]
        fields = {"group_id": group, "topics": asked}
        answer = self._router.ask(Api.OFFSET_DELETE, fields, to=_coordinator(group))
        if answer.error_code:
            return _fault(answer.error_code, group)
        return {
            TopicPartition(topic.name, entry.partition_index): _fault(entry.error_code, group)
            for topic in answer.topics
            for entry in topic.partitions
        }


def _coordinator(group: str) -> CoordinatorKey:
    return CoordinatorKey("group", group)


def _member(message: JoinGroup | Sync | Heartbeat | CheckCommit) -> Fields:
    return {
        "group_id": message.group,
        "member_id": message.member_id,
        "group_instance_id": message.instance_id,
    }


def _fault(code: int, group: str) -> GroupFault:
    """The fault of this error code. Raises `LogError` for a code that is no fault of a member."""
    try:
        return _FAULTS[ErrorCode(code)]
    except (KeyError, ValueError):
        raise error_of(code, None, f'ask about group "{group}"') from None


def _is_share_group(listed: object) -> bool:
    """In: `listed`: an entry of an answer to ListGroups; older versions have no types and no share groups."""
    return str(getattr(listed, "group_type", "")).lower() == "share"
