"""Share groups on a replicated log: what their coordinator has decided outlives it, and is told once committed."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.logcore.client import TopicPartition
from millstream.logcore.cores.group_messages import (
    CheckCommit,
    CommittedOffset,
    ConsumerBeat,
    GroupAnswer,
    GroupDescription,
    GroupFault,
    GroupState,
)
from millstream.logcore.cores.share_groups import ShareHeartbeat
from millstream.logcore.error_codes import ErrorCode
from millstream.logcore.log_settings import of_group
from millstream.logcore.replication.controller.metadata_records import ConfigChanged
from millstream.logcore.replication.replica.replica_messages import FetchRequest, PartitionId, Problem, Refused
from millstream.logcore.replication.shards.coordination_messages import ForGroup
from millstream.logcore.replication.shards.shard_group_requests import CommitOffsets, DeleteGroup, DescribeGroup
from millstream.logcore.replication.shards.share_messages import (
    NOTHING_NOW,
    START_UNKNOWN,
    AcknowledgeRecords,
    AcquiredOffsets,
    AcquireRecords,
    AskShareOffsets,
    DeleteShareOffsets,
    LeaderView,
    LookForRecords,
    ReadOffsets,
    RecordsAcknowledged,
    RecordsAcquired,
    RecordsFound,
    ReleaseRecords,
    ResetShareOffsets,
    ShareChanged,
    ShareOffset,
    ShareOffsets,
    Verdicts,
    WhereToRead,
)

from .brokers import Brokers

GROUP = "workers"
ACCEPT, RELEASE = 1, 2


@pytest.fixture
def cluster() -> Brokers:
    brokers = Brokers()
    assert beat(brokers, "a", 0).fault is GroupFault.NONE
    return brokers


def beat(cluster: Brokers, member: str, epoch: int, *, node: int = 1) -> ConsumerBeat:
    topics = ("orders",) if epoch == 0 else None
    return cluster.group(node, GROUP, ShareHeartbeat(GROUP, member, epoch, "client", "host", topics, 10_000))


def place(cluster: Brokers, number: int = 0) -> PartitionId:
    return PartitionId(cluster.image.topic_ids["orders"], number)


def look(cluster: Brokers, *, node: int = 1, log_start: int = 0, start: int = START_UNKNOWN) -> Any:
    found = cluster.group(node, GROUP, LookForRecords((LeaderView(place(cluster), log_start, start),)))
    return found.places[0].first if isinstance(found, RecordsFound) and found.known else found


def acquire(cluster: Brokers, who: str, first: int, last: int, *, node: int = 1, most: int = 100) -> Any:
    read = (ReadOffsets(place(cluster), ((first, last, False),)),)
    found = cluster.group(node, GROUP, AcquireRecords(who, most, False, read))
    return list(found.acquired[0].spans) if isinstance(found, RecordsAcquired) else found


def decide(cluster: Brokers, who: str, first: int, last: int, verdict: int, *, node: int = 1) -> Any:
    verdicts = (Verdicts(place(cluster), ((first, last, (verdict,)),)),)
    found = cluster.group(node, GROUP, AcknowledgeRecords(who, verdicts))
    return found.codes if isinstance(found, RecordsAcknowledged) else found


def offsets(cluster: Brokers, *, node: int = 1) -> Any:
    found = cluster.group(node, GROUP, AskShareOffsets())
    return [tuple(row[1:]) for row in found.offsets] if isinstance(found, ShareOffsets) and found.known else found


def fail_over(cluster: Brokers, dead: int, heir: int) -> None:
    cluster.kill(dead)
    cluster.elect(heir)
    cluster.pass_time(200)


def test_a_group_begins_where_the_leader_says_and_only_once(cluster: Brokers) -> None:
    assert look(cluster) == START_UNKNOWN
    assert look(cluster, start=7) == 7
    assert look(cluster, start=3) == 7
    assert acquire(cluster, "a", 5, 9) == [(7, 9, 1)]
    assert offsets(cluster) == [(7, 10, 3)]


def test_where_there_is_no_share_group_nothing_is_read(cluster: Brokers) -> None:
    found = cluster.group(1, "others", LookForRecords((LeaderView(place(cluster), 0, 0),)))
    assert found == RecordsFound(known=False)
    assert cluster.group(1, "others", AskShareOffsets()) == ShareOffsets(known=False)


def test_nothing_is_read_of_a_partition_that_is_not_there(cluster: Brokers) -> None:
    missing = PartitionId(place(cluster).topic, 99)
    found = cluster.group(1, GROUP, LookForRecords((LeaderView(missing, 0, 0),)))
    assert found == RecordsFound(True, (WhereToRead(missing, START_UNKNOWN),))
    read = (ReadOffsets(missing, ((0, 9, False),)),)
    given = cluster.group(1, GROUP, AcquireRecords("a", 10, False, read))
    assert given == RecordsAcquired((AcquiredOffsets(missing, ()),), 30_000)


def test_nobody_is_given_a_record_before_that_is_committed(cluster: Brokers) -> None:
    look(cluster, start=0)
    cluster.held = lambda sender, message: isinstance(message, FetchRequest)
    assert acquire(cluster, "a", 0, 9) is None
    assert decide(cluster, "a", 0, 9, ACCEPT) is None


def test_what_was_decided_outlives_the_coordinator(cluster: Brokers) -> None:
    look(cluster, start=0)
    assert acquire(cluster, "a", 0, 9) == [(0, 9, 1)]
    assert decide(cluster, "a", 0, 3, ACCEPT) == (0,)
    assert decide(cluster, "a", 5, 5, RELEASE) == (0,)
    fail_over(cluster, 1, 2)
    assert offsets(cluster, node=2) == [(4, 10, 6)]
    assert acquire(cluster, "b", 0, 9, node=2) == [(5, 5, 2)]  # the others are still a's
    assert decide(cluster, "a", 4, 4, ACCEPT, node=2) == (0,)
    assert decide(cluster, "a", 0, 3, ACCEPT, node=2) == (0,)


def test_a_new_coordinator_gives_owners_a_whole_lock(cluster: Brokers) -> None:
    look(cluster, start=0)
    acquire(cluster, "a", 0, 9)
    for _ in range(4):
        cluster.pass_time(5_000)
        beat(cluster, "a", 1)
    fail_over(cluster, 1, 2)
    for _ in range(5):
        cluster.pass_time(5_000)
        beat(cluster, "a", 1, node=2)
    assert acquire(cluster, "b", 0, 9, node=2) == []
    cluster.pass_time(6_000)
    assert acquire(cluster, "b", 0, 9, node=2) == [(0, 9, 2)]


def test_many_changes_are_read_again_from_few_records(cluster: Brokers) -> None:
    """Snapshots come in between, and the records of before count no more."""
    look(cluster, start=0)
    for number in range(150):
        assert acquire(cluster, "a", number, number) == [(number, number, 1)]
        if number % 3:
            assert decide(cluster, "a", number, number, ACCEPT) == (0,)
    fail_over(cluster, 1, 2)
    assert offsets(cluster, node=2) == [(0, 150, 50)]
    assert decide(cluster, "a", 0, 0, ACCEPT, node=2) == (0,)
    assert offsets(cluster, node=2) == [(3, 150, 49)]


def test_what_is_held_for_too_long_is_for_others(cluster: Brokers) -> None:
    cluster.decide(ConfigChanged(of_group(GROUP), "share.record.lock.duration.ms", "1000"))
    look(cluster, start=0)
    acquire(cluster, "a", 0, 9)
    cluster.pass_time(950)
    assert acquire(cluster, "b", 0, 9) == []
    cluster.pass_time(50)
    assert acquire(cluster, "b", 0, 9) == [(0, 9, 2)]
    assert decide(cluster, "a", 0, 9, ACCEPT) == (ErrorCode.invalid_record_state,)


def test_what_a_member_had_that_leaves_is_for_others(cluster: Brokers) -> None:
    look(cluster, start=0)
    acquire(cluster, "a", 0, 9)
    assert beat(cluster, "a", -1).fault is GroupFault.NONE
    assert look(cluster) == 0
    assert acquire(cluster, "b", 0, 9) == [(0, 9, 2)]


def test_what_a_silent_member_had_is_for_others(cluster: Brokers) -> None:
    look(cluster, start=0)
    acquire(cluster, "a", 0, 9)
    cluster.pass_time(10_050)
    assert acquire(cluster, "b", 0, 9) == [(0, 9, 2)]


def test_a_closed_session_frees_what_it_had(cluster: Brokers) -> None:
    look(cluster, start=0)
    acquire(cluster, "a", 0, 9)
    released = cluster.group(1, GROUP, ReleaseRecords("a", (place(cluster), place(cluster, 3))))
    assert released == RecordsAcknowledged((0, 0))
    assert look(cluster) == 0


def test_as_much_is_in_flight_as_is_set(cluster: Brokers) -> None:
    cluster.decide(ConfigChanged(of_group(GROUP), "share.partition.max.record.locks", "100"))
    look(cluster, start=0)
    assert acquire(cluster, "a", 0, 150, most=500) == [(0, 99, 1)]
    assert look(cluster) == NOTHING_NOW


def test_records_that_are_deleted_are_not_waited_for(cluster: Brokers) -> None:
    look(cluster, start=0)
    acquire(cluster, "a", 0, 9)
    assert look(cluster, log_start=15) == 15
    assert offsets(cluster) == [(15, 15, 0)]
    fail_over(cluster, 1, 2)
    assert offsets(cluster, node=2) == [(15, 15, 0)]


def test_the_most_records_are_given_of_all_partitions_together(cluster: Brokers) -> None:
    views = tuple(LeaderView(place(cluster, number), 0, 0) for number in range(3))
    cluster.group(1, GROUP, LookForRecords(views))
    read = tuple(ReadOffsets(place(cluster, number), ((0, 9, False),)) for number in range(3))
    given = cluster.group(1, GROUP, AcquireRecords("a", 15, True, read))
    assert [each.spans for each in given.acquired] == [((0, 9, 1),), ((0, 4, 1),), ()]


def test_a_node_that_was_replaced_gives_nothing_away(cluster: Brokers) -> None:
    look(cluster, start=0)
    cluster.cut = {1}
    cluster.elect(2)
    cluster.pass_time(200)
    assert acquire(cluster, "b", 0, 9, node=2) == [(0, 9, 1)]
    assert acquire(cluster, "a", 0, 9, node=1) is None
    cluster.pass_time(4_000)
    refused = look(cluster, node=1)
    assert isinstance(refused, Refused) and refused.problem is Problem.NOT_COORDINATOR


def test_offsets_are_set_while_nobody_reads(cluster: Brokers) -> None:
    look(cluster, start=0)
    acquire(cluster, "a", 0, 9)
    reset = ResetShareOffsets(((place(cluster), 4), (place(cluster, 1), 2)))
    assert cluster.group(1, GROUP, reset) == ShareChanged(ErrorCode.non_empty_group)
    beat(cluster, "a", -1)
    assert cluster.group(1, GROUP, reset) == ShareChanged(0)
    assert offsets(cluster) == [(4, 4, 0), (2, 2, 0)]
    fail_over(cluster, 1, 2)
    assert offsets(cluster, node=2) == [(4, 4, 0), (2, 2, 0)]
    topic = DeleteShareOffsets((place(cluster).topic,))
    assert cluster.group(2, GROUP, topic) == ShareChanged(0)
    assert offsets(cluster, node=2) == []


def test_offsets_make_a_group_but_none_of_another_kind(cluster: Brokers) -> None:
    reset = ResetShareOffsets(((place(cluster), 4),))
    assert cluster.group(1, "new", reset) == ShareChanged(0)
    described = cluster.group(1, "new", DescribeGroup())
    assert isinstance(described, GroupDescription)
    assert (described.kind, described.state) == ("share", GroupState.EMPTY)
    assert cluster.group(1, "nobody", DeleteShareOffsets(())) == ShareChanged(ErrorCode.group_id_not_found)
    commit = CommitOffsets(CheckCommit("readers"), {TopicPartition("orders", 0): CommittedOffset(1)})
    assert cluster.group(1, "readers", commit) == GroupAnswer()
    joins = ShareHeartbeat("readers", "a", 0, "client", "host", ("orders",))
    assert cluster.group(1, "readers", joins).fault is GroupFault.NOT_FOUND
    assert cluster.group(1, GROUP, CommitOffsets(CheckCommit(GROUP), {})) == GroupAnswer(GroupFault.NOT_FOUND)


def test_a_deleted_group_has_read_nothing(cluster: Brokers) -> None:
    look(cluster, start=0)
    assert cluster.group(1, GROUP, DeleteGroup()) == GroupAnswer(GroupFault.NOT_EMPTY)
    beat(cluster, "a", -1)
    assert cluster.group(1, GROUP, DeleteGroup()) == GroupAnswer()
    fail_over(cluster, 1, 2)
    assert offsets(cluster, node=2) == ShareOffsets(known=False)
    assert beat(cluster, "a", 0, node=2).fault is GroupFault.NONE
    assert offsets(cluster, node=2) == []


def test_a_deleted_topic_has_not_been_read(cluster: Brokers) -> None:
    look(cluster, start=5)
    cluster.delete_topic("orders")
    cluster.create_topic("orders", 4)
    cluster.pass_time(100)
    assert offsets(cluster) == []
    assert look(cluster) == START_UNKNOWN


def test_an_empty_group_stays(cluster: Brokers) -> None:
    look(cluster, start=5)
    beat(cluster, "a", -1)
    cluster.pass_time(700_000, step_ms=5_000)
    assert cluster.replies[cluster.ask(1, ForGroup(GROUP, AskShareOffsets()))] == ShareOffsets(
        True, (ShareOffset(place(cluster), 5, 5, 0),)
    )
