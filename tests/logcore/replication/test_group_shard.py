"""Consumer groups on a replicated log: what survives the loss of their coordinator, and who is told what when."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.logcore.client import TopicPartition
from millstream.logcore.cores.expiry import ExpiryTimes
from millstream.logcore.cores.group_messages import (
    CheckCommit,
    CommittedOffset,
    ConsumerBeat,
    ConsumerHeartbeat,
    GroupAnswer,
    GroupDescription,
    GroupFault,
    GroupState,
    Heartbeat,
    Joined,
    JoinGroup,
    LeaveGroup,
    Leaving,
    Left,
    Protocol,
    Sync,
    Synced,
)
from millstream.logcore.replication.machine import NodeId
from millstream.logcore.replication.replica.replica_messages import (
    FetchedBatches,
    FetchRequest,
    PartitionId,
    Problem,
    Refused,
)
from millstream.logcore.replication.shards.coordination_messages import ForEveryShard, ForGroup, partition_of
from millstream.logcore.replication.shards.coordinators import default_makers
from millstream.logcore.replication.shards.group_shard import GroupSettings
from millstream.logcore.replication.shards.shard_group_requests import (
    AskCommitted,
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    GroupCommits,
    ListGroups,
    OffsetsDeleted,
)
from millstream.logcore.replication.shards.transaction_messages import (
    ApplyOffsets,
    HoldOffsets,
    OffsetRow,
    OffsetsApplied,
    OffsetsHeld,
)
from millstream.logcore.topic_rules import GROUPS_TOPIC

from .brokers import Brokers

GROUP = "readers"
SHARD = PartitionId("groups-id", 0)
OF_TRANSACTIONS = PartitionId("transactions-id", 3)
O0, O1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
NONE = GroupFault.NONE


def join(name: str, *, member_id: str = "", instance: str | None = None) -> JoinGroup:
    offered = (Protocol("range", b"topics"),)
    return JoinGroup(GROUP, member_id, instance, "client", "host", 10_000, 5_000, "consumer", offered, name)


def joined(cluster: Brokers, node: int, *members: JoinGroup) -> list[Joined]:
    """Members who join together, and their answers."""
    requests = [cluster.ask(node, _for(member)) for member in members]
    while not all(request in cluster.replies for request in requests):
        cluster.pass_time(50)
        assert cluster.now_ms < 100_000, "not all have an answer"
    return [cluster.replies[request] for request in requests]


def settled(cluster: Brokers, node: int, *members: JoinGroup) -> list[Joined]:
    """The same, and each has its assignment: its own id."""
    answers = joined(cluster, node, *members)
    for answer in sorted(answers, key=lambda each: not each.members):  # who leads comes first
        assignments = {member.member_id: member.member_id.encode() for member in answer.members}
        synced = cluster.group(node, GROUP, sync(answer, assignments))
        assert synced.fault is NONE and synced.assignment == answer.member_id.encode()
    return answers


def sync(answer: Joined, assignments: dict[str, bytes] | None = None) -> Sync:
    return Sync(GROUP, answer.generation, answer.member_id, assignments=assignments or {})


def _for(body: Any) -> ForGroup:
    return ForGroup(GROUP, body)


def commit(offset: int, *, check: CheckCommit | None = None, place: TopicPartition = O0) -> CommitOffsets:
    return CommitOffsets(check or CheckCommit(GROUP), {place: CommittedOffset(offset, "a note", 3)})


def committed(cluster: Brokers, node: int) -> dict[TopicPartition, int]:
    found = cluster.group(node, GROUP, AskCommitted())
    assert isinstance(found, GroupCommits), found
    return {place: each.offset for place, each in found.offsets.items()}


def beat(member: str, epoch: int, topics: tuple[str, ...] | None = None, owned: Any = None) -> ConsumerHeartbeat:
    return ConsumerHeartbeat(GROUP, member, epoch, None, "client", "host", 5_000, topics, None, owned)


def fail_over(cluster: Brokers, dead: int, heir: int) -> None:
    cluster.kill(dead)
    cluster.elect(heir)
    cluster.pass_time(200)


@pytest.fixture
def cluster() -> Brokers:
    return Brokers()


# Who coordinates


def test_a_group_belongs_to_the_partition_that_kafka_would_choose() -> None:
    assert partition_of("hello", 50) == 99162322 % 50
    assert partition_of("polygenelubricants", 50) == 0  # its hash is the one number without an absolute value
    assert partition_of("😀", 50) == (31 * 0xD83D + 0xDE00) % 50


def test_only_the_leader_of_the_partition_coordinates(cluster: Brokers) -> None:
    assert cluster.group(1, GROUP, commit(5)) == GroupAnswer()
    refused = cluster.group(2, GROUP, commit(6))
    assert isinstance(refused, Refused) and refused.problem is Problem.NOT_COORDINATOR
    assert committed(cluster, 1) == {O0: 5}


def test_without_the_topic_of_coordinators_there_are_none() -> None:
    cluster = Brokers()
    cluster.delete_topic(GROUPS_TOPIC)
    refused = cluster.group(1, GROUP, AskCommitted())
    assert isinstance(refused, Refused) and refused.problem is Problem.COORDINATOR_NOT_AVAILABLE


# What is committed


def test_a_commit_is_answered_when_another_replica_has_it(cluster: Brokers) -> None:
    cluster.held = lambda sender, message: isinstance(message, FetchRequest)
    request = cluster.ask(1, _for(commit(5)))
    cluster.pass_time(1_000)
    assert request not in cluster.replies
    cluster.held = lambda sender, message: False
    cluster.pass_time(3_000)
    assert cluster.replies[request] == GroupAnswer()


def test_nobody_reads_a_commit_that_may_be_lost(cluster: Brokers) -> None:
    cluster.held = lambda sender, message: isinstance(message, FetchRequest)
    cluster.ask(1, _for(commit(5)))
    request = cluster.ask(1, _for(AskCommitted()))
    cluster.pass_time(1_000)
    assert request not in cluster.replies


def test_a_coordinator_that_was_replaced_without_noticing_reads_out_nothing_old(cluster: Brokers) -> None:
    assert cluster.group(1, GROUP, commit(5)) == GroupAnswer()
    cluster.cut = {1}
    cluster.elect(2)
    cluster.pass_time(200)
    assert committed(cluster, 2) == {O0: 5}
    assert cluster.group(2, GROUP, commit(6)) == GroupAnswer()
    request = cluster.ask(1, _for(AskCommitted()))
    cluster.pass_time(2_000)
    assert request not in cluster.replies


def test_who_waits_is_refused_when_another_node_leads(cluster: Brokers) -> None:
    cluster.cut = {1}
    request = cluster.ask(1, _for(commit(5)))
    cluster.cut = set()
    cluster.elect(2)
    assert cluster.replies[request].problem is Problem.NOT_COORDINATOR


def test_a_new_coordinator_begins_when_what_it_found_is_committed(cluster: Brokers) -> None:
    """R16: node 2 has a commit that nobody knows to be committed; it must not say so before it is."""
    cluster.held = lambda sender, message: isinstance(message, FetchedBatches) and not message.batches
    assert cluster.group(1, GROUP, commit(5)) == GroupAnswer()
    cluster.kill(1)
    cluster.held = lambda sender, message: isinstance(message, FetchRequest)
    cluster.elect(2)
    cluster.pass_time(500)
    refused = cluster.group(2, GROUP, AskCommitted())
    assert isinstance(refused, Refused) and refused.problem is Problem.COORDINATOR_LOADING
    listed = cluster.replies[cluster.ask(2, ForEveryShard(GROUPS_TOPIC, ListGroups()))]
    assert listed.problem is Problem.COORDINATOR_LOADING
    cluster.held = lambda sender, message: False
    cluster.pass_time(3_000)
    assert committed(cluster, 2) == {O0: 5}


def test_a_coordinator_whose_disk_is_full_reads_its_log_again(cluster: Brokers) -> None:
    assert cluster.group(1, GROUP, commit(5)) == GroupAnswer()
    cluster.disks[NodeId(1)].full = True
    refused = cluster.group(1, GROUP, commit(6))
    assert isinstance(refused, Refused) and refused.problem is Problem.NOT_COORDINATOR
    again = cluster.group(1, GROUP, AskCommitted())
    assert isinstance(again, Refused) and again.problem is Problem.COORDINATOR_NOT_AVAILABLE
    cluster.disks[NodeId(1)].full = False
    cluster.pass_time(2_000)
    assert committed(cluster, 1) == {O0: 5}


def test_with_too_few_in_sync_nobody_coordinates_and_later_members_have_a_whole_session(cluster: Brokers) -> None:
    [member] = settled(cluster, 1, join("a"))
    cluster.cut = {2, 3}
    cluster.pass_time(8_000)
    assert cluster.group(1, GROUP, Heartbeat(GROUP, member.generation, "a")) == GroupAnswer()
    cluster.pass_time(12_000)
    refused = cluster.group(1, GROUP, commit(5))
    assert isinstance(refused, Refused) and refused.problem is Problem.COORDINATOR_NOT_AVAILABLE
    cluster.cut = set()
    cluster.pass_time(5_000)
    assert cluster.group(1, GROUP, Heartbeat(GROUP, member.generation, "a")) == GroupAnswer()


# Fail-over


def test_members_do_not_notice_that_their_coordinator_died(cluster: Brokers) -> None:
    one, other = settled(cluster, 1, join("a"), join("b"))
    fail_over(cluster, 1, 2)
    for member in (one, other):
        assert cluster.group(2, GROUP, Heartbeat(GROUP, member.generation, member.member_id)) == GroupAnswer()
        assert cluster.group(2, GROUP, sync(member)) == Synced(NONE, "consumer", "range", member.member_id.encode())


def test_a_fail_over_in_the_middle_of_a_rebalance_keeps_the_members(cluster: Brokers) -> None:
    [first] = settled(cluster, 1, join("a"))
    newcomer = cluster.ask(1, _for(join("b")))
    fail_over(cluster, 1, 2)
    assert newcomer not in cluster.replies  # its connection is gone
    assert cluster.group(2, GROUP, Heartbeat(GROUP, first.generation, "a")) == GroupAnswer()
    again = cluster.ask(2, _for(join("b")))
    assert cluster.group(2, GROUP, Heartbeat(GROUP, first.generation, "a")) == GroupAnswer(GroupFault.REBALANCING)
    both = joined(cluster, 2, join("a", member_id="a"))
    assert both[0].generation == cluster.replies[again].generation == first.generation + 1


def test_a_generation_that_was_not_settled_is_unknown_after_a_fail_over(cluster: Brokers) -> None:
    settled(cluster, 1, join("a"))
    other, again = joined(cluster, 1, join("b"), join("a", member_id="a"))
    fail_over(cluster, 1, 2)
    assert cluster.group(2, GROUP, sync(again, {"a": b"x"})).fault is GroupFault.ILLEGAL_GENERATION
    check = CheckCommit(GROUP, other.generation, "b")
    assert cluster.group(2, GROUP, commit(7, check=check)) == GroupAnswer(GroupFault.UNKNOWN_MEMBER)


def test_a_member_of_an_old_generation_commits_nothing(cluster: Brokers) -> None:
    [old] = settled(cluster, 1, join("a"))
    settled(cluster, 1, join("b"), join("a", member_id="a"))
    fail_over(cluster, 1, 2)
    check = CheckCommit(GROUP, old.generation, "a")
    assert cluster.group(2, GROUP, commit(7, check=check)) == GroupAnswer(GroupFault.ILLEGAL_GENERATION)
    assert cluster.group(2, GROUP, check) == GroupAnswer(GroupFault.ILLEGAL_GENERATION)
    assert committed(cluster, 2) == {}


def test_a_static_member_that_comes_back_to_another_coordinator_keeps_its_place(cluster: Brokers) -> None:
    [old] = settled(cluster, 1, join("a", instance="i"))
    fail_over(cluster, 1, 2)
    back = cluster.group(2, GROUP, join("a2", instance="i"))
    assert (back.fault, back.generation, back.member_id) == (NONE, old.generation, "a2")
    fenced = cluster.group(2, GROUP, Heartbeat(GROUP, old.generation, "a", "i"))
    assert fenced == GroupAnswer(GroupFault.FENCED_INSTANCE)


def test_a_member_that_nobody_hears_after_a_fail_over_is_out_after_its_session(cluster: Brokers) -> None:
    settled(cluster, 1, join("a"))
    fail_over(cluster, 1, 2)
    cluster.pass_time(9_000)
    assert cluster.group(2, GROUP, DescribeGroup()).state is GroupState.STABLE
    cluster.pass_time(2_000)
    assert cluster.group(2, GROUP, DescribeGroup()).state is GroupState.EMPTY


def test_members_whose_coordinator_assigns_keep_what_they_read(cluster: Brokers) -> None:
    first = cluster.group(1, GROUP, beat("a", 0, ("orders",), frozenset()))
    assert isinstance(first, ConsumerBeat) and len(first.assignment or ()) == 4
    fail_over(cluster, 1, 2)
    again = cluster.group(2, GROUP, beat("a", first.epoch))
    assert (again.fault, again.epoch) == (NONE, first.epoch)
    stale = CheckCommit(GROUP, first.epoch - 1, "a")
    assert cluster.group(2, GROUP, commit(3, check=stale)) == GroupAnswer(GroupFault.STALE_EPOCH)


def test_a_partition_that_is_given_up_goes_on_after_a_fail_over_only_when_it_is_free(cluster: Brokers) -> None:
    first = cluster.group(1, GROUP, beat("a", 0, ("orders",), frozenset()))
    second = cluster.group(1, GROUP, beat("b", 0, ("orders",), frozenset()))
    assert not second.assignment
    kept = cluster.group(1, GROUP, beat("a", first.epoch)).assignment
    fail_over(cluster, 1, 2)
    assert not cluster.group(2, GROUP, beat("b", second.epoch)).assignment
    given_up = cluster.group(2, GROUP, beat("a", first.epoch, None, frozenset(kept)))
    taken = cluster.group(2, GROUP, beat("b", second.epoch)).assignment
    assert given_up.fault is NONE and len(taken) == 2 and not set(taken) & set(kept)


# What administrators see and do


def test_groups_are_described_listed_and_deleted(cluster: Brokers) -> None:
    [member] = settled(cluster, 1, join("a"))
    assert cluster.group(1, GROUP, DeleteGroup()) == GroupAnswer(GroupFault.NOT_EMPTY)
    described = cluster.group(1, GROUP, DescribeGroup())
    assert isinstance(described, GroupDescription) and [each.member_id for each in described.members] == ["a"]
    cluster.group(1, "other", CommitOffsets(CheckCommit("other"), {O1: CommittedOffset(1)}))
    [listed] = cluster.replies[cluster.ask(1, ForEveryShard(GROUPS_TOPIC, ListGroups()))]
    assert {each.group: each.state for each in listed} == {GROUP: GroupState.STABLE, "other": GroupState.EMPTY}
    left = cluster.group(1, GROUP, LeaveGroup(GROUP, (Leaving(member.member_id),)))
    assert isinstance(left, Left) and left.fault is NONE
    assert cluster.group(1, GROUP, DeleteGroup()) == GroupAnswer()
    assert cluster.group(1, GROUP, DeleteGroup()) == GroupAnswer(GroupFault.NOT_FOUND)
    fail_over(cluster, 1, 2)
    assert cluster.group(2, GROUP, DescribeGroup()).state is GroupState.DEAD


def test_deleted_offsets_are_gone_after_a_fail_over(cluster: Brokers) -> None:
    cluster.group(1, GROUP, commit(3))
    cluster.group(1, GROUP, commit(4, place=O1))
    assert cluster.group(1, GROUP, DeleteOffsets((O1,))) == OffsetsDeleted(NONE, {O1: NONE})
    fail_over(cluster, 1, 2)
    assert committed(cluster, 2) == {O0: 3}
    found = cluster.group(2, GROUP, AskCommitted())
    assert found.offsets[O0][1:3] == ("a note", 3)
    assert cluster.group(2, "nobody", DeleteOffsets((O0,))) == OffsetsDeleted(GroupFault.NOT_FOUND, {})


def test_offsets_of_a_topic_that_was_deleted_are_not_those_of_a_new_one(cluster: Brokers) -> None:
    cluster.group(1, GROUP, commit(3))
    cluster.delete_topic("orders")
    assert committed(cluster, 1) == {}
    fail_over(cluster, 1, 2)
    cluster.create_topic("orders", 4)
    assert committed(cluster, 2) == {}
    assert cluster.group(2, GROUP, commit(1)) == GroupAnswer()
    cluster.pass_time(100)
    assert committed(cluster, 2) == {O0: 1}


@pytest.mark.parametrize("fails_over", [False, True])
def test_a_topic_made_anew_is_read_anew(cluster: Brokers, fails_over: bool) -> None:
    """Also where another node coordinates since: it knows the old topic by its records alone."""
    joined = cluster.group(1, GROUP, beat("m", 0, ("orders",), frozenset()))
    assert len(joined.assignment) == 4
    cluster.delete_topic("orders")
    cluster.create_topic("orders", 4)
    if fails_over:
        fail_over(cluster, 1, 2)
    node = 2 if fails_over else 1
    told = cluster.group(node, GROUP, beat("m", joined.epoch))
    if not fails_over:
        assert (told.epoch, told.assignment) == (joined.epoch, ())
        told = cluster.group(node, GROUP, beat("m", told.epoch, owned=frozenset()))
    assert (told.epoch > joined.epoch, told.assignment) == (True, joined.assignment)
    assert cluster.group(node, GROUP, beat("m", told.epoch)).assignment is None


def test_offsets_that_nobody_uses_expire_and_those_of_own_groups_do_not() -> None:
    settings = GroupSettings(ExpiryTimes(offsets_ms=60_000), expire_every_ms=10_000)
    cluster = Brokers(default_makers(settings))
    own = "_millstream-query"
    cluster.group(1, GROUP, commit(3))
    cluster.group(1, own, CommitOffsets(CheckCommit(own), {O0: CommittedOffset(1)}))
    cluster.pass_time(50_000, step_ms=500)
    assert committed(cluster, 1) == {O0: 3}
    cluster.pass_time(30_000, step_ms=500)
    assert committed(cluster, 1) == {}
    assert cluster.group(1, own, AskCommitted()).offsets[O0].offset == 1


def test_offsets_do_not_expire_because_somebody_set_the_clock() -> None:
    settings = GroupSettings(ExpiryTimes(offsets_ms=60_000, transactional_ids_ms=60_000), expire_every_ms=10_000)
    cluster = Brokers(default_makers(settings))
    cluster.group(1, GROUP, commit(3))
    cluster.wall_ms += 30 * 24 * 60 * 60 * 1_000
    cluster.pass_time(40_000, step_ms=500)
    assert committed(cluster, 1) == {O0: 3}
    cluster.pass_time(60_000, step_ms=500)
    assert committed(cluster, 1) == {}, "later they do"


# Offsets that are part of a transaction


def hold(number: int, check: CheckCommit | None = None) -> HoldOffsets:
    who = check or CheckCommit(GROUP)
    of_group = who.generation, who.member_id, who.instance_id
    return HoldOffsets(SHARD, OF_TRANSACTIONS, GROUP, "id", 7, number, *of_group, (("orders", 0),))


def apply(number: int, *offsets: int) -> ApplyOffsets:
    rows = tuple(OffsetRow("orders", 0, offset) for offset in offsets)
    return ApplyOffsets(SHARD, OF_TRANSACTIONS, GROUP, "id", 7, number, rows)


def answers_of(cluster: Brokers) -> list[Any]:
    """What the shard of transactions, on node 3, is told from now on."""
    heard: list[Any] = []

    def note(sender: Any, message: Any) -> bool:
        if isinstance(message, OffsetsHeld | OffsetsApplied):
            heard.append(message)
            return True
        return False

    cluster.held = note
    return heard


def test_held_offsets_are_not_settled_until_the_transaction_is_also_after_a_fail_over(cluster: Brokers) -> None:
    heard = answers_of(cluster)
    cluster.group(1, GROUP, commit(3))
    cluster.send(3, 1, hold(1))
    assert heard.pop() == OffsetsHeld(OF_TRANSACTIONS, "id", 7, 1, GROUP, 0)
    assert cluster.group(1, GROUP, AskCommitted()).unsettled == {O0}
    fail_over(cluster, 1, 2)
    assert cluster.group(2, GROUP, AskCommitted()).unsettled == {O0}
    cluster.send(3, 2, apply(1, 9))
    assert heard.pop() == OffsetsApplied(OF_TRANSACTIONS, "id", 7, 1, GROUP)
    found = cluster.group(2, GROUP, AskCommitted())
    assert found.unsettled == frozenset() and found.offsets[O0].offset == 9


def test_offsets_of_a_transaction_are_applied_once(cluster: Brokers) -> None:
    heard = answers_of(cluster)
    cluster.send(3, 1, apply(1, 9))
    cluster.group(1, GROUP, commit(12))
    fail_over(cluster, 1, 2)
    cluster.send(3, 2, apply(1, 9))
    assert len(heard) == 2 and heard[0] == heard[1]
    assert committed(cluster, 2) == {O0: 12}


def test_an_aborted_transaction_commits_nothing_and_holds_nothing(cluster: Brokers) -> None:
    answers_of(cluster)
    cluster.send(3, 1, hold(1))
    cluster.send(3, 1, apply(1))
    found = cluster.group(1, GROUP, AskCommitted())
    assert (found.offsets, found.unsettled) == ({}, frozenset())


def test_what_a_transaction_says_after_its_end_holds_nothing(cluster: Brokers) -> None:
    heard = answers_of(cluster)
    cluster.send(3, 1, apply(1))
    cluster.send(3, 1, hold(1))
    assert heard.pop().problem == Problem.INVALID_TXN_STATE.value
    assert cluster.group(1, GROUP, AskCommitted()).unsettled == frozenset()


def test_a_transaction_of_who_is_no_member_any_more_is_refused(cluster: Brokers) -> None:
    heard = answers_of(cluster)
    [old] = settled(cluster, 1, join("a"))
    settled(cluster, 1, join("b"), join("a", member_id="a"))
    cluster.send(3, 1, hold(1, CheckCommit(GROUP, old.generation, "a")))
    assert heard.pop().problem == 22  # ILLEGAL_GENERATION
    cluster.send(3, 1, hold(1, CheckCommit(GROUP, old.generation + 1, "a")))
    assert heard.pop().problem == 0
