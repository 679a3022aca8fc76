"""The pure groups whose coordinator assigns: epochs, what moves and when, time."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import pytest

from millstream.logcore.client import TopicPartition
from millstream.logcore.cores.consumer_groups import LEAVES, ConsumerGroups
from millstream.logcore.cores.coordinated_group import LEAVES_FOR_A_WHILE
from millstream.logcore.cores.group_messages import (
    HEARTBEAT_MS,
    SESSION_MS,
    CheckCommit,
    ConsumerBeat,
    ConsumerHeartbeat,
    GroupFault,
    GroupState,
)
from millstream.logcore.cores.subscriptions import decode_assignment

REBALANCE_MS = 30_000


@dataclass
class Reader:
    """A member as clients are: it gives up what it is told to, before the next heartbeat or, if `slow`, never."""

    groups: ConsumerGroups
    name: str
    topics: tuple[str, ...] | None = ("t",)
    pattern: str | None = None
    instance: str | None = None
    slow: bool = False
    epoch: int = 0
    reads: set[TopicPartition] = field(default_factory=set)

    def beat_of(self, epoch: int | None = None) -> ConsumerHeartbeat:
        joins = self.epoch == 0
        return ConsumerHeartbeat(
            "g", self.name, self.epoch if epoch is None else epoch, self.instance, "client", "host", REBALANCE_MS,
            self.topics if joins else None, self.pattern if joins else None, frozenset(self.reads),
        )  # fmt: skip

    def beat(self, counts: dict[str, int], now_ms: int = 0, epoch: int | None = None) -> ConsumerBeat:
        answer = self.groups.beat(self.beat_of(epoch), counts, now_ms)
        if answer.fault is GroupFault.NONE and answer.epoch >= 0:
            self.epoch = answer.epoch
            if answer.assignment is not None:
                told = set(answer.assignment)
                self.reads = self.reads | told if self.slow else told
        return answer


def settle(members: list[Reader], counts: dict[str, int], now_ms: int = 0) -> None:
    """Beats in turn; at no time do two members read the same partition."""
    for _ in range(4):
        for member in members:
            assert member.beat(counts, now_ms).fault is GroupFault.NONE
            held = [place for other in members for place in other.reads]
            assert len(held) == len(set(held))


def test_a_full_group_takes_nobody_new_but_its_members_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.logcore.cores.consumer_groups.MEMBERS_MAX", 2)
    groups = ConsumerGroups()
    members = [Reader(groups, "a"), Reader(groups, "b", instance="i-b")]
    settle(members, {"t": 2})
    assert Reader(groups, "c").beat({"t": 2}).fault is GroupFault.GROUP_FULL
    assert Reader(groups, "c", instance="i-c").beat({"t": 2}).fault is GroupFault.GROUP_FULL
    assert Reader(groups, "a").beat({"t": 2}).fault is GroupFault.NONE  # its first answer was lost
    assert members[1].beat({"t": 2}, epoch=LEAVES_FOR_A_WHILE).fault is GroupFault.NONE
    assert Reader(groups, "c").beat({"t": 2}).fault is GroupFault.GROUP_FULL
    assert Reader(groups, "b-2", instance="i-b").beat({"t": 2}).fault is GroupFault.NONE
    assert members[0].beat({"t": 2}, epoch=LEAVES).fault is GroupFault.NONE
    assert Reader(groups, "c").beat({"t": 2}).fault is GroupFault.NONE


def test_partitions_are_shared_evenly_and_each_is_one_members() -> None:
    groups = ConsumerGroups()
    members = [Reader(groups, name) for name in "abc"]
    settle(members, {"t": 7, "other": 5})
    assert sorted(len(member.reads) for member in members) == [2, 2, 3]
    assert {place.topic for member in members for place in member.reads} == {"t"}
    assert groups.describe("g").state is GroupState.STABLE


def test_a_partition_moves_only_when_its_reader_has_given_it_up() -> None:
    groups = ConsumerGroups()
    first, second = Reader(groups, "a", slow=True), Reader(groups, "b")
    first.beat({"t": 2})
    second.beat({"t": 2})
    first.beat({"t": 2})  # is told to give one up, and goes on reading it
    for _ in range(3):
        first.beat({"t": 2})
        second.beat({"t": 2})
    assert (len(first.reads), second.reads, groups.describe("g").state) == (2, set(), GroupState.RECONCILING)
    first.reads, first.slow = set(decode_assignment(groups.describe("g").members[0].assignment)), False
    settle([first, second], {"t": 2})
    assert (len(first.reads), len(second.reads)) == (1, 1)


def test_who_leaves_or_dies_or_does_not_give_up_is_replaced() -> None:
    groups = ConsumerGroups()
    members = [Reader(groups, name) for name in "abc"]
    settle(members, {"t": 6})
    assert members[2].beat({"t": 6}, epoch=LEAVES).epoch == LEAVES
    settle(members[:2], {"t": 6})
    assert [len(member.reads) for member in members[:2]] == [3, 3]
    members[0].beat({"t": 6}, SESSION_MS - 1)
    groups.tick(SESSION_MS)
    settle(members[:1], {"t": 6}, SESSION_MS)
    assert len(members[0].reads) == 6
    assert members[1].beat({"t": 6}, SESSION_MS).fault is GroupFault.UNKNOWN_MEMBER
    members[0].slow = True
    newcomer = Reader(groups, "d")
    for now_ms in range(SESSION_MS, SESSION_MS + 2 * REBALANCE_MS, HEARTBEAT_MS):
        newcomer.beat({"t": 6}, now_ms)
        members[0].beat({"t": 6}, now_ms)
        groups.tick(now_ms)
    assert len(newcomer.reads) == 6, "who does not give up what it must is out after its rebalance timeout"


def test_a_static_member_that_comes_back_has_what_it_had() -> None:
    groups = ConsumerGroups()
    first, second = Reader(groups, "a", instance="i"), Reader(groups, "b")
    settle([first, second], {"t": 4})
    had, epoch = set(first.reads), groups.describe("g").generation
    twin = Reader(groups, "a2", instance="i")
    assert twin.beat({"t": 4}).fault is GroupFault.UNRELEASED_INSTANCE
    first.beat({"t": 4}, epoch=LEAVES_FOR_A_WHILE)
    settle([twin, second], {"t": 4})
    assert twin.reads == had and groups.describe("g").generation == epoch + 1
    assert first.beat({"t": 4}).fault is GroupFault.UNKNOWN_MEMBER


def test_topics_that_come_or_grow_are_shared_too() -> None:
    groups = ConsumerGroups()
    members = [Reader(groups, "a"), Reader(groups, "b", topics=None, pattern="t.*")]
    settle(members, {"t": 1})
    settle(members, {"t": 4, "t2": 2, "u": 9})
    assert {place.topic for place in members[0].reads} <= {"t"}
    assert {place for member in members for place in member.reads if place.topic == "t2"} == {
        TopicPartition("t2", 0), TopicPartition("t2", 1),
    }  # fmt: skip
    assert sum(len(member.reads) for member in members) == 6


def taken_over(groups: ConsumerGroups, now_ms: int = 0) -> ConsumerGroups:
    """The groups of the next coordinator: the fold of the records so far, and nothing else."""
    after = ConsumerGroups()
    for record in groups.take_records():
        after.apply(record)
    after.begin(now_ms)
    return after


def test_after_a_take_over_each_member_has_a_whole_session_to_be_heard() -> None:
    groups = ConsumerGroups()
    Reader(groups, "a").beat({"t": 1})
    after = taken_over(groups, now_ms=1000)
    after.tick(1000 + SESSION_MS - 1)
    assert after.is_in_use("g")
    after.tick(1000 + SESSION_MS)
    assert not after.is_in_use("g")


def test_after_a_take_over_who_must_give_up_partitions_has_its_whole_time_again() -> None:
    """And who has nothing to give up has no such deadline."""
    first, second = (Reader(ConsumerGroups(), name, slow=True) for name in "ab")
    second.groups = first.groups
    for member in (first, second, first):  # the first is told to give one up, and goes on reading it
        member.beat({"t": 2})
    first.groups = second.groups = after = taken_over(first.groups, now_ms=1000)
    out_ms = 1000 + max(SESSION_MS, REBALANCE_MS)
    for now_ms in (*range(1000, out_ms, HEARTBEAT_MS), out_ms - 1):
        after.tick(now_ms)
        assert [member.beat({"t": 2}, now_ms).fault for member in (first, second)] == 2 * [GroupFault.NONE]
    after.tick(out_ms)
    assert [member.member_id for member in after.describe("g").members] == ["b"]


def test_a_take_over_knows_who_left_and_who_is_away() -> None:
    groups = ConsumerGroups()
    away, here = (Reader(groups, name, instance=f"i{name}") for name in "ab")
    leaves = Reader(groups, "c")
    settle([away, here, leaves], {"t": 6})
    leaves.beat({"t": 6}, epoch=LEAVES)
    settle([away, here], {"t": 6})
    away.beat({"t": 6}, epoch=LEAVES_FOR_A_WHILE)
    after = taken_over(groups)
    assert {member.member_id for member in after.describe("g").members} == {"a", "b"}
    assert Reader(after, "b2", instance="ib").beat({"t": 6}).fault is GroupFault.UNRELEASED_INSTANCE
    twin = Reader(after, "a2", instance="ia")
    assert twin.beat({"t": 6}).fault is GroupFault.NONE
    assert twin.reads == away.reads and len(twin.reads) == 3


def test_records_that_were_lost_are_written_again() -> None:
    groups = ConsumerGroups()
    members = [Reader(groups, "a"), Reader(groups, "b", topics=None, pattern="t.*", instance="i")]
    settle(members, {"t": 3})
    groups.take_records()
    groups.rewrite()
    assert taken_over(groups).describe("g") == groups.describe("g")
    assert groups.take_records() == []


def test_a_heartbeat_names_the_instance_of_its_member_or_none() -> None:
    groups = ConsumerGroups()
    member = Reader(groups, "a", instance="i")
    settle([member, Reader(groups, "b")], {"t": 2})
    beat = member.beat_of()
    assert groups.beat(beat, {"t": 2}, 0).fault is GroupFault.NONE
    assert groups.beat(replace(beat, instance_id=None), {"t": 2}, 0).fault is GroupFault.NONE
    assert groups.beat(replace(beat, instance_id="j"), {"t": 2}, 0).fault is GroupFault.FENCED_INSTANCE


def test_who_did_not_get_the_answer_repeats_its_epoch_with_what_it_has_at_most() -> None:
    groups = ConsumerGroups()
    member = Reader(groups, "a")
    settle([member, Reader(groups, "b")], {"t": 2})
    repeated = member.beat_of(member.epoch - 1)
    others = frozenset(TopicPartition("t", partition) for partition in range(2)) - member.reads
    for owned, fault in (
        (None, GroupFault.NONE), (frozenset(), GroupFault.NONE), (frozenset(member.reads), GroupFault.NONE),
        (others, GroupFault.FENCED_EPOCH),
    ):  # fmt: skip
        assert groups.beat(replace(repeated, owned=owned), {"t": 2}, 0).fault is fault


def test_a_member_is_told_its_partitions_once_and_once_more_by_the_next_coordinator() -> None:
    counts = {"t": 2}
    member = Reader(ConsumerGroups(), "a")
    assert member.beat(counts).assignment is not None
    assert member.beat(counts).assignment is None
    member.groups = taken_over(member.groups)
    assert member.beat(counts).assignment is not None
    assert member.beat(counts).assignment is None


def test_what_is_written_of_a_member_that_left_is_taken_back_once() -> None:
    groups = ConsumerGroups()
    members = [Reader(groups, name) for name in "ab"]
    settle(members, {"t": 2})
    groups.take_records()
    members[1].beat({"t": 2}, epoch=LEAVES)
    gone = [record.key for record in groups.take_records() if record.value is None]
    assert {key.member for key in gone} == {"b"} and len(gone) == len(set(gone)) == 3  # member, target, current
    settle(members[:1], {"t": 3})
    written = groups.take_records()
    assert written and all(record.value is not None for record in written)


@pytest.mark.parametrize("again", [("t",), ("u",)])
def test_topics_that_are_named_again_leave_the_pattern_and_begin_an_epoch_only_if_they_changed(
    again: tuple[str, ...],
) -> None:
    groups, counts = ConsumerGroups(), {"t": 1, "u": 1, "p": 1}
    member = Reader(groups, "a", pattern="p")
    settle([member], counts)
    epoch = member.epoch
    names = ConsumerHeartbeat("g", "a", epoch, None, "", "", REBALANCE_MS, again, None, frozenset(member.reads))
    member.reads = set(groups.beat(names, counts, 0).assignment or ())
    settle([member], counts)
    assert {place.topic for place in member.reads} == {"p", *again}
    assert member.epoch == epoch + (again != ("t",))


def test_a_static_member_keeps_the_larger_share_that_it_had() -> None:
    groups = ConsumerGroups()
    first, second = Reader(groups, "a", instance="i"), Reader(groups, "b")
    settle([first, second], {"t": 5})
    assert len(first.reads) == 3
    first.beat({"t": 5}, epoch=LEAVES_FOR_A_WHILE)
    twin = Reader(groups, "z", instance="i")
    settle([twin, second], {"t": 5})
    assert twin.reads == first.reads


def test_a_static_member_that_comes_back_leaves_to_others_what_they_were_to_get_meanwhile() -> None:
    groups, counts = ConsumerGroups(), {"t": 4}
    first = Reader(groups, "a", instance="i")
    settle([first], counts)
    first.beat(counts, epoch=LEAVES_FOR_A_WHILE)
    newcomer = Reader(groups, "b")
    newcomer.beat(counts)
    assert not newcomer.reads, "who is away still holds all of them"
    twin = Reader(groups, "c", instance="i")
    twin.beat(counts)
    newcomer.beat(counts)
    assert (len(twin.reads), len(newcomer.reads)) == (2, 2), "it need not give up what it never read"


@pytest.mark.parametrize(
    ("pattern", "read"),
    [
        (".*(?:(?:orders)|(?:bills)).*", {"orders", "my-bills"}),  # what franz-go makes of two patterns
        ("[a-z]+-(bills|[0-9]{2})", {"my-bills"}),
        ("(?i)ORDERS", {"orders"}),
        ("(a+)+b|my.*", {"my-bills"}),
        ("bills", set[str]()),
    ],
)
def test_a_pattern_is_any_of_re2_that_fits_whole_names(pattern: str, read: set[str]) -> None:
    member = Reader(ConsumerGroups(), "a", topics=None, pattern=pattern)
    settle([member], {"orders": 1, "my-bills": 1, "other": 1})
    assert {place.topic for place in member.reads} == read


def test_a_member_whose_pattern_is_narrower_now_leaves_topics_to_those_that_still_read_them() -> None:
    groups = ConsumerGroups()
    narrows, stays = Reader(groups, "a", topics=None, pattern="t|u"), Reader(groups, "b", topics=("t", "u"))
    settle([narrows, stays], counts := {"t": 2, "u": 2})
    before = groups.describe("g").generation
    answer = groups.beat(replace(narrows.beat_of(), pattern="u"), counts, 0)
    assert groups.describe("g").generation == before + 1
    assert answer.assignment is not None
    narrows.reads = set(answer.assignment)
    settle([narrows, stays], counts)
    assert {place.topic for place in narrows.reads} == {"u"} and len(narrows.reads | stays.reads) == 4


def test_a_coordinator_that_takes_over_knows_the_patterns() -> None:
    groups = ConsumerGroups()
    member = Reader(groups, "a", topics=None, pattern="a|(b|c)+")
    settle([member], {"a": 1, "bc": 1, "d": 1})
    member.groups = taken_over(groups)
    settle([member], {"a": 1, "bc": 1, "cb": 1, "d": 1})
    assert {place.topic for place in member.reads} == {"a", "bc", "cb"}


def test_a_pattern_fits_only_what_the_member_may_read() -> None:
    groups = ConsumerGroups()
    counts = {"a": 1, "b": 1, "other": 1}
    Reader(groups, "reads b, too", ("b",)).beat(counts)

    def beat(epoch: int, readable: frozenset[str] | None) -> ConsumerBeat:
        pattern, owned = ("a|b", frozenset[TopicPartition]()) if epoch == 0 else (None, None)
        asked = ConsumerHeartbeat("g", "m", epoch, None, "c", "h", REBALANCE_MS, None, pattern, owned)
        return groups.beat(replace(asked, readable=readable), counts, 0)

    joined = beat(0, frozenset({"a", "b", "other"}))
    assert joined.assignment == (TopicPartition("a", 0),)
    again = beat(joined.epoch, frozenset({"a", "b"}))
    assert again.epoch == joined.epoch, "what it may not read is nothing that it reads"
    later = beat(joined.epoch, frozenset({"a"}))
    assert later.epoch == joined.epoch + 1, "another one reads b, but not for this one"
    assert beat(later.epoch, frozenset({"a"})).epoch == later.epoch


def test_a_topic_that_nobody_reads_is_no_news() -> None:
    groups = ConsumerGroups()
    member = Reader(groups, "a", topics=None, pattern="a|b")
    settle([member], {"a": 1})
    epoch = member.epoch
    settle([member], {"a": 1, "other": 1})
    assert member.epoch == epoch
    settle([member], {"a": 1, "other": 1, "b": 1})
    assert member.epoch == epoch + 1


def test_a_static_member_that_goes_on_after_all_is_not_away() -> None:
    groups = ConsumerGroups()
    member = Reader(groups, "a", instance="i")
    settle([member], {"t": 1})
    groups.beat(replace(member.beat_of(), epoch=LEAVES_FOR_A_WHILE), {"t": 1}, 0)
    assert member.beat({"t": 1}).fault is GroupFault.NONE
    assert Reader(groups, "b", instance="i").beat({"t": 1}).fault is GroupFault.UNRELEASED_INSTANCE


def test_commits_and_heartbeats_must_have_the_members_epoch() -> None:
    groups = ConsumerGroups()
    member = Reader(groups, "a")
    settle([member, Reader(groups, "c")], {"t": 1})
    assert groups.check_commit(CheckCommit("g", member.epoch, "a"), 0) is GroupFault.NONE
    assert groups.check_commit(CheckCommit("g", member.epoch - 1, "a"), 0) is GroupFault.STALE_EPOCH
    assert groups.check_commit(CheckCommit("g", member.epoch, "b"), 0) is GroupFault.UNKNOWN_MEMBER
    assert member.beat({"t": 1}, epoch=member.epoch + 5).fault is GroupFault.FENCED_EPOCH
    assert member.beat({"t": 1}, epoch=member.epoch - 1).fault is GroupFault.NONE, "the answer before was lost"


def test_what_cannot_be_is_refused() -> None:
    groups = ConsumerGroups()

    def fault(**changed: object) -> GroupFault:
        given = {
            "group": "g", "member_id": "a", "epoch": 0, "instance_id": None, "client_id": "", "client_host": "",
            "rebalance_timeout_ms": 1, "topics": ("t",), "pattern": None, "owned": frozenset(), **changed,
        }  # fmt: skip
        return groups.beat(ConsumerHeartbeat(**given), {"t": 1}, 0).fault  # pyrefly: ignore[bad-argument-type]

    assert fault(group="") is GroupFault.INVALID_GROUP
    assert fault(member_id="") is GroupFault.INVALID_REQUEST
    assert fault(topics=None) is GroupFault.INVALID_REQUEST
    assert fault(assignor="mine") is GroupFault.UNSUPPORTED_ASSIGNOR
    for pattern in ("(a", "[a", "(?=a)b", "(a{500}){500}", "x" * 100_000, "*", "|*"):
        assert fault(pattern=pattern) is GroupFault.INVALID_PATTERN, pattern
    assert fault(epoch=1) is fault(epoch=-1) is GroupFault.UNKNOWN_MEMBER
    assert groups.names() == []


def test_whatever_happens_no_partition_has_two_readers_and_all_are_read_in_the_end() -> None:
    for seed in range(100):
        wander(random.Random(seed))


def wander(chance: random.Random) -> None:
    groups, members, now_ms, counts = ConsumerGroups(), [], 0, {"t": 3, "u": 2}
    for step in range(80):
        now_ms += chance.choice([10, 500, 3000])
        choice = chance.random()
        if choice < 0.15 and len(members) < 5:
            topics = chance.choice([("t",), ("u",), ("t", "u")])
            members.append(Reader(groups, f"m{step}", topics, slow=chance.random() < 0.2))
        elif choice < 0.2 and members:
            members.pop(chance.randrange(len(members))).beat(counts, now_ms, epoch=LEAVES)
        elif choice < 0.25 and members:
            members.pop(chance.randrange(len(members)))  # dies
        elif choice < 0.3:
            counts = {**counts, "t": counts["t"] + 1}
        elif choice < 0.4 and members:
            chance.choice(members).slow = False
        for member in chance.sample(members, len(members)):
            if member.beat(counts, now_ms).fault is not GroupFault.NONE:
                member.epoch, member.reads = 0, set()  # fenced: it drops all and joins anew
        groups.tick(now_ms)
        if groups.has("g"):
            described = groups.describe("g")
            held = [member.assignment for member in described.members]
            assert len(held) == len(described.members)
    for member in members:
        member.slow = False
    for _ in range(SESSION_MS // HEARTBEAT_MS + 5):
        now_ms += HEARTBEAT_MS
        groups.tick(now_ms)
        for member in members:
            member.reads = set(member.reads)
            if member.beat(counts, now_ms).fault is not GroupFault.NONE:
                member.epoch, member.reads = 0, set()
    read = [place for member in members for place in member.reads]
    assert len(read) == len(set(read))
    wanted = {topic for member in members for topic in member.topics or ()}
    assert {place.topic for place in read} == wanted
    assert len(read) == sum(counts[topic] for topic in wanted)


def test_a_member_has_the_session_that_was_set_when_it_was_heard_last() -> None:
    groups = ConsumerGroups()
    first = ConsumerHeartbeat("g", "a", 0, "i", "", "", REBALANCE_MS, ("t",), None, frozenset())
    epoch = groups.beat(first, {"t": 1}, 0).epoch
    groups.beat(replace(first, epoch=epoch, session_ms=2_000), {"t": 1}, 100)
    groups.tick(2_099)
    assert groups.is_in_use("g") and groups.next_deadline_ms() == 2_100
    groups.beat(replace(first, epoch=LEAVES_FOR_A_WHILE), {"t": 1}, 200)
    assert groups.next_deadline_ms() == 2_200
    groups.tick(2_200)
    assert not groups.is_in_use("g")


def test_a_group_is_forgotten_once_it_has_no_members_and_nothing_is_left_of_its_records() -> None:
    groups = ConsumerGroups()
    member = Reader(groups, "a")
    settle([member], {"t": 2})
    assert groups.forget("another") and not groups.forget("g")
    member.beat({"t": 2}, epoch=LEAVES)
    written = {record.key: record.value for record in groups.take_records()}
    assert groups.forget("g") and not groups.has("g")
    gone = [record.key for record in groups.take_records()]
    assert gone and set(gone) == {key for key, value in written.items() if value is not None}


def test_a_topic_made_anew_with_as_many_partitions_is_read_in_a_new_epoch() -> None:
    """By those who have given up the old one: `reads` goes by names, as many clients do."""
    groups = ConsumerGroups()
    members = [Reader(groups, name, topics=("t", "other")) for name in "ab"]
    settle(members, counts := {"t": 2, "other": 2})
    epochs = [member.epoch for member in members]
    groups.forget_topics({"t"})
    for member in members:
        member.beat(counts)
    assert {place for member in members for place in member.reads} == {TopicPartition("other", n) for n in range(2)}
    settle(members, counts)
    assert all(member.epoch > epoch for member, epoch in zip(members, epochs, strict=True))
    assert sorted(place for member in members for place in member.reads) == [
        TopicPartition(topic, partition) for topic in ("other", "t") for partition in range(2)
    ]
    assert [member.beat(counts).assignment for member in members] == [None, None]


@pytest.mark.parametrize("revoking", [False, True])
def test_who_does_not_give_up_a_topic_that_is_gone_is_out(revoking: bool) -> None:
    """Others read the new one meanwhile."""
    groups = ConsumerGroups()
    first, second = (Reader(groups, name, slow=True) for name in "ab")
    first.beat({"t": 2})
    if revoking:
        second.beat({"t": 2})
        first.beat({"t": 2})  # is told to give one up, and goes on reading it
    groups.forget_topics({"t"})
    for now_ms in (0, REBALANCE_MS - 1):
        silent = replace(first.beat_of(), owned=None)
        assert groups.beat(silent, {"t": 2}, now_ms).fault is GroupFault.NONE
        second.beat({"t": 2}, now_ms)
    assert len(second.reads) == 1
    groups.tick(REBALANCE_MS)
    assert [member.member_id for member in groups.describe("g").members] == ["b"]
