"""Members of share groups: who is one, and which partitions they read."""

from __future__ import annotations

from millstream.logcore.client import TopicPartition
from millstream.logcore.cores.all_groups import AllGroups
from millstream.logcore.cores.group_messages import (
    CheckCommit,
    ConsumerBeat,
    ConsumerHeartbeat,
    GroupFault,
    GroupState,
    Joined,
    JoinGroup,
    Protocol,
)
from millstream.logcore.cores.share_groups import GoneMember, ShareGroups, ShareHeartbeat
from millstream.logcore.cores.subscriptions import decode_assignment

COUNTS = {"orders": 4, "clicks": 2}
SESSION_MS = 1_000


def beat(
    groups: ShareGroups, member: str, epoch: int, topics: tuple[str, ...] | None = None, now_ms: int = 0
) -> ConsumerBeat:
    heartbeat = ShareHeartbeat("g", member, epoch, "client", "host", topics, SESSION_MS, 100)
    return groups.beat(heartbeat, COUNTS, now_ms)


def joined(groups: ShareGroups, member: str, *topics: str, now_ms: int = 0) -> ConsumerBeat:
    answer = beat(groups, member, 0, topics or ("orders",), now_ms)
    assert answer.fault is GroupFault.NONE
    return answer


def reads(groups: ShareGroups, *members: str) -> list[list[int]]:
    """Of each member, the partitions of orders, as its next heartbeat or the description says."""
    found = {member.member_id: member for member in groups.describe("g").members}
    groups_of = {id: member.assignment for id, member in found.items()}
    return [[place.partition for place in decode_assignment(groups_of[member])] for member in members]


def test_members_divide_the_partitions() -> None:
    groups = ShareGroups()
    first = joined(groups, "a")
    assert first.assignment == tuple(TopicPartition("orders", number) for number in range(4))
    joined(groups, "b")
    assert reads(groups, "a", "b") == [[0, 2], [1, 3]]


def test_several_read_a_partition_where_there_are_more_members() -> None:
    groups = ShareGroups()
    for member in "abcdef":
        joined(groups, member)
    assert reads(groups, *"abcdef") == [[0], [1], [2], [3], [0], [1]]


def test_members_read_what_they_subscribe_to() -> None:
    groups = ShareGroups()
    joined(groups, "a", "orders", "clicks", "unknown")
    answer = joined(groups, "b", "clicks")
    assert answer.assignment == (TopicPartition("clicks", 1),)


def test_a_new_assignment_comes_with_the_next_heartbeat_and_once() -> None:
    groups = ShareGroups()
    joined(groups, "a")
    joined(groups, "b")
    told = beat(groups, "a", 1)
    assert told.epoch == 2 and told.assignment == (TopicPartition("orders", 0), TopicPartition("orders", 2))
    assert beat(groups, "a", 2).assignment is None
    assert beat(groups, "a", 1).fault is GroupFault.NONE  # the answer was lost


def test_epochs_that_nobody_gave_are_fenced() -> None:
    groups = ShareGroups()
    joined(groups, "a")
    assert beat(groups, "a", 7).fault is GroupFault.FENCED_EPOCH
    assert beat(groups, "b", 1).fault is GroupFault.UNKNOWN_MEMBER
    assert beat(groups, "a", -2).fault is GroupFault.INVALID_REQUEST
    assert beat(groups, "", 0, ("orders",)).fault is GroupFault.INVALID_REQUEST
    assert beat(groups, "c", 0).fault is GroupFault.INVALID_REQUEST


def test_a_member_that_leaves_is_gone() -> None:
    groups = ShareGroups()
    joined(groups, "a")
    joined(groups, "b")
    assert beat(groups, "a", -1) == ConsumerBeat(GroupFault.NONE, "a", -1)
    assert groups.take_gone() == [GoneMember("g", "a")]
    assert groups.take_gone() == []
    assert reads(groups, "b") == [[0, 1, 2, 3]]


def test_a_silent_member_is_out_at_the_end_of_its_session() -> None:
    groups = ShareGroups()
    joined(groups, "a")
    groups.tick(SESSION_MS - 1)
    assert groups.is_in_use("g") and groups.next_deadline_ms() == SESSION_MS
    groups.tick(SESSION_MS)
    assert not groups.is_in_use("g")
    assert groups.describe("g").state is GroupState.EMPTY
    assert groups.take_gone() == [GoneMember("g", "a")]


def test_a_group_is_the_fold_of_its_records() -> None:
    groups, heir = ShareGroups(), ShareGroups()
    joined(groups, "a")
    joined(groups, "b")
    beat(groups, "a", 1)
    joined(groups, "c")
    beat(groups, "b", -1)
    for record in groups.take_records():
        heir.apply(record)
    heir.begin(5_000)
    assert heir.next_deadline_ms() == 50_000  # a whole session: it is not written for how long that is
    answer = beat(heir, "a", 2, now_ms=5_000)
    assert answer.fault is GroupFault.NONE and answer.assignment is not None
    groups.forget("g")
    assert groups.has("g")  # it has members


def test_everything_is_written_again_where_it_was_lost() -> None:
    groups, heir = ShareGroups(), ShareGroups()
    joined(groups, "a")
    groups.take_records()
    groups.rewrite()
    for record in groups.take_records():
        heir.apply(record)
    assert heir.describe("g").members[0].member_id == "a"


def test_a_forgotten_group_leaves_nothing_behind() -> None:
    groups, heir = ShareGroups(), ShareGroups()
    joined(groups, "a")
    beat(groups, "a", -1)
    assert groups.forget("g")
    for record in groups.take_records():
        heir.apply(record)
    assert heir.names() == []


def test_a_share_group_is_of_no_other_kind() -> None:
    groups = AllGroups()
    heartbeat = ShareHeartbeat("g", "a", 0, "client", "host", ("orders",))
    assert groups.share_beat(heartbeat, COUNTS, 0).fault is GroupFault.NONE
    consumer = ConsumerHeartbeat("g", "b", 0, None, "client", "host", 1_000, ("orders",), None, None)
    assert groups.beat(consumer, COUNTS, 0).fault is GroupFault.NOT_FOUND
    offered = (Protocol("range", b""),)
    join = JoinGroup("g", "", None, "client", "host", 10_000, 5_000, "consumer", offered, "c")
    groups.step(join, 1, COUNTS, 0)
    [answered] = groups.take_answers()
    assert isinstance(answered.reply, Joined) and answered.reply.fault is GroupFault.INCONSISTENT_PROTOCOL
    assert groups.check_commit(CheckCommit("g"), 0) is GroupFault.NOT_FOUND
    assert groups.beat(ConsumerHeartbeat("h", "b", 0, None, "c", "h", 1_000, ("orders",), None, None), COUNTS, 0)
    other = ShareHeartbeat("h", "a", 0, "client", "host", ("orders",))
    assert groups.share_beat(other, COUNTS, 0).fault is GroupFault.NOT_FOUND
    assert groups.names() == ["h", "g"]
    assert groups.describe("g").kind == "share"


def test_a_topic_made_anew_with_as_many_partitions_is_read_in_a_new_epoch() -> None:
    groups = ShareGroups()
    first = joined(groups, "a", "orders", "clicks")
    groups.forget_topics({"orders"})
    told = beat(groups, "a", first.epoch)
    assert (told.epoch, told.assignment) == (first.epoch + 1, first.assignment)
    assert beat(groups, "a", told.epoch).assignment is None
