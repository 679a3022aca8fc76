"""Groups on a real log: what is durable, what ends with the process, and who waits for whom."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest
from waiting import eventually

from millstream.logcore.client import TopicPartition
from millstream.logcore.cores.group_messages import (
    CheckCommit,
    CommitNote,
    GroupFault,
    GroupState,
    Joined,
    JoinGroup,
    LeaveGroup,
    Protocol,
    Reply,
    Sync,
)
from millstream.logcore.errors import LogClosed, NotNow
from millstream.logcore.log import Log, open_log
from millstream.logcore.protocol.served_log import ServedGroups

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def reopened(log: Log, folder: Path) -> Iterator[Log]:
    """The log of another process, later."""
    groups_of(log).commit(CheckCommit("g"), {T0: 3, T1: 4}, {T0: CommitNote("a note", 3)})
    groups_of(log).commit(CheckCommit("gone"), {T0: 1}, {})
    assert log.groups.delete("gone") is GroupFault.NONE
    assert log.groups.delete_offsets("g", [T1]) == {T1: GroupFault.NONE}
    log.close()
    with open_log(folder) as later:
        yield later


def groups_of(log: Log) -> ServedGroups:
    """What serves members, once it does."""
    log.committed_offsets("somebody asks")
    return log.served.groups


def join(log: Log, name: str, member_id: str = "", session_ms: int = 10_000) -> Future[Reply]:
    return groups_of(log).ask(
        JoinGroup("g", member_id, None, "c", "h", session_ms, 5_000, "consumer", (Protocol("range", b""),), name)
    )


def settled(log: Log, name: str, session_ms: int = 10_000) -> Joined:
    joined = join(log, name, session_ms=session_ms).result(60)
    assert isinstance(joined, Joined)
    groups_of(log).ask(Sync("g", joined.generation, joined.member_id, assignments={name: b"all"})).result(60)
    return joined


def test_committed_offsets_and_their_notes_survive_and_deleted_ones_do_not_come_back(reopened: Log) -> None:
    assert reopened.groups.names() == ["g"]
    assert reopened.committed_offsets("g") == {T0: 3}
    assert reopened.groups.committed("g")[T0][:3] == (3, "a note", 3)
    assert reopened.groups.describe("g").state is GroupState.EMPTY
    assert reopened.groups.describe("gone").state is GroupState.DEAD
    assert reopened.groups.delete("gone") is GroupFault.NOT_FOUND


def test_who_waits_is_told_when_the_log_is_closed(log: Log) -> None:
    settled(log, "a")
    waiting = join(log, "b")
    groups = log.served.groups
    log.close()
    assert waiting.result(60).fault is GroupFault.SHUTTING_DOWN
    with pytest.raises(LogClosed):
        log.groups.ask(LeaveGroup("g", ())).result(60)
    with pytest.raises(NotNow):
        groups.describe("g")


def test_a_member_that_falls_silent_is_out_without_anybody_asking(log: Log) -> None:
    settled(log, "a", session_ms=1_000)
    eventually(lambda: not log.groups.describe("g").members)
    assert log.groups.describe("g").state is GroupState.EMPTY


def test_of_commits_at_the_same_time_only_the_members_count(log: Log) -> None:
    """However the threads run: nobody commits for a generation that is over."""
    settled(log, "a")
    refused: list[GroupFault] = []
    groups = log.served.groups

    def commit() -> None:
        for offset in range(200):
            fault = groups.commit(CheckCommit("g", 1, "a"), {T0: offset}, {})
            if fault is not GroupFault.NONE:
                refused.append(fault)

    committing = threading.Thread(target=commit)
    committing.start()
    newcomer = join(log, "b")
    join(log, "", member_id="a").result(60)
    newcomer.result(60)
    committing.join()
    assert set(refused) <= {GroupFault.ILLEGAL_GENERATION, GroupFault.REBALANCING}
    accepted = 200 - len(refused)
    assert log.committed_offsets("g") == ({T0: accepted - 1} if accepted else {})
