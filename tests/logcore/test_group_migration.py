"""A group goes from one protocol to the other while its members read: one after the other is replaced, and back."""

from __future__ import annotations

import random
import struct
from dataclasses import replace

import pytest

from millstream.logcore.cores.group_messages import (
    CheckCommit,
    ConsumerHeartbeat,
    GroupFault,
    GroupState,
    Heartbeat,
    Joined,
    JoinGroup,
    LeaveGroup,
    Leaving,
    Left,
    Protocol,
    Reply,
    Sync,
)
from millstream.logcore.cores.subscriptions import Subscription, encode_assignment, encode_subscription

from .migrating_members import GROUP, REBALANCE_MS, SESSION_MS, AssignedClient, ClassicClient, Client, World

BOTH_WAYS = pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])


def kind_of(world: World) -> str:
    return world.describe().kind


@BOTH_WAYS
def test_members_are_replaced_one_after_the_other_and_back(assignor: str) -> None:
    world = World()
    old = [ClassicClient(world, name, assignor=assignor) for name in "abc"]
    world.run()
    assert kind_of(world) == "classic"
    new: list[AssignedClient] = []
    for member in old:
        member.leave()
        new.append(AssignedClient(world, f"new-{member.name}"))
        world.run()
        assert kind_of(world) == "consumer"
        assert sorted(len(each.reads) for each in world.members) == [2, 2, 2]
    for member in new:
        member.leave()
        ClassicClient(world, f"again-{member.name}", assignor=assignor)
        world.run()
        assert sorted(len(each.reads) for each in world.members) == [2, 2, 2]
    assert kind_of(world) == "classic"


def test_a_cooperative_member_goes_on_reading_what_it_keeps() -> None:
    world = World(4)
    kept = ClassicClient(world, "a", assignor="cooperative-sticky")
    world.run()
    other = AssignedClient(world, "b")
    for _ in range(20):
        assert len(kept.reads) >= 2
        kept.act()
        other.act()
        world.check()
        world.pass_time(500)
    assert world.is_at_rest()
    other.leave()
    for _ in range(20):
        assert len(kept.reads) >= 2
        kept.act()
        world.pass_time(500)
    assert world.is_at_rest() and kind_of(world) == "classic"


def test_what_a_cooperative_member_has_to_give_up_is_its_own_until_it_has_synced_and_joined_again() -> None:
    world = World(6)
    first = AssignedClient(world, "a")
    world.run()
    kept = ClassicClient(world, "b", assignor="cooperative-sticky")
    world.run()
    assert len(kept.reads) == 3
    third = AssignedClient(world, "c")
    for member in (third, first, kept, third, kept, third, kept, third, kept, third):
        member.act()
        world.check()
    world.run()
    assert [len(kept.reads), len(third.reads)] == [2, 2]


def test_to_join_again_and_again_gives_no_more_time_to_give_up() -> None:
    world = World(2)
    stuck = ClassicClient(world, "a", assignor="cooperative-sticky")
    world.run()
    waits = AssignedClient(world, "b")
    waits.act()
    metadata = encode_subscription(Subscription(("t",), tuple(world.everywhere())))
    protocols = (Protocol("cooperative-sticky", metadata),)
    join = JoinGroup(GROUP, stuck.member_id, None, "c", "h", SESSION_MS, REBALANCE_MS, "consumer", protocols, "x")
    replies: list[Reply] = []
    for _ in range(REBALANCE_MS // 500):
        world.ask(join, replies.append)
        world.pass_time(500)
        waits.act()
    assert {reply.fault for reply in replies} == {GroupFault.NONE}
    waits.act()
    assert len(waits.reads) == 2


@pytest.mark.parametrize(
    ("member_id", "instance", "fault"),
    [
        ("its own", "i", GroupFault.NONE),
        ("", "i", GroupFault.NONE),
        ("older", "i", GroupFault.FENCED_INSTANCE),
        ("its own", "j", GroupFault.UNKNOWN_MEMBER),
        ("", "j", GroupFault.NONE),
    ],
)
def test_a_static_member_joins_as_itself(member_id: str, instance: str, fault: GroupFault) -> None:
    world = World()
    old, _ = ClassicClient(world, "a", "i"), AssignedClient(world, "b")
    world.run()
    joins = old.member_id if member_id == "its own" else member_id
    protocols = (Protocol("range", encode_subscription(Subscription(("t",)))),)
    join = JoinGroup(GROUP, joins, instance, "c", "h", SESSION_MS, REBALANCE_MS, "consumer", protocols, "x")
    replies: list[Reply] = []
    world.ask(join, replies.append)
    assert [reply.fault for reply in replies] == [fault]


def test_an_eager_member_that_joins_has_given_up_at_once() -> None:
    world = World(2)
    first = ClassicClient(world, "a")
    world.run()
    second = AssignedClient(world, "b")
    second.act()
    first.act()  # is told that there is something
    first.act()  # joins
    first.act()  # syncs
    second.act()
    assert (len(first.reads), len(second.reads)) == (1, 1)


def test_members_that_wait_for_the_others_are_told_to_join_again() -> None:
    world = World()
    for name in "ab":
        ClassicClient(world, name)
    world.run()
    third = ClassicClient(world, "c")
    third.act()  # waits until the others have joined
    assert world.describe().state is GroupState.PREPARING
    AssignedClient(world, "d").act()
    assert third._joins and not third._waits
    world.run()
    assert sorted(len(each.reads) for each in world.members) == [1, 1, 2, 2]


def test_the_first_of_the_new_kind_may_come_while_the_first_members_gather() -> None:
    world = World()
    ClassicClient(world, "a").act()
    AssignedClient(world, "b").act()
    world.run()
    assert (kind_of(world), sorted(len(each.reads) for each in world.members)) == ("consumer", [3, 3])


def test_a_join_with_an_id_that_was_given_before_is_taken() -> None:
    world = World()
    replies: list[Reply] = []
    join = JoinGroup(
        GROUP, "", None, "c", "h", SESSION_MS, REBALANCE_MS, "consumer",
        (Protocol("range", encode_subscription(Subscription(("t",)))),), "given", asks_twice=True,
    )  # fmt: skip
    world.ask(join, replies.append)
    AssignedClient(world, "b").act()
    world.ask(replace(join, member_id="given"), replies.append)
    assert [reply.fault for reply in replies] == [GroupFault.MEMBER_ID_REQUIRED, GroupFault.NONE]


@BOTH_WAYS
def test_a_coordinator_that_takes_over_goes_on_where_the_other_was(assignor: str) -> None:
    world = World()
    old, new = ClassicClient(world, "a", assignor=assignor), AssignedClient(world, "b")
    world.run()
    before, reads = world.describe(), [set(old.reads), set(new.reads)]
    world.restart()
    assert world.describe() == before
    old.act()
    new.act()
    assert [old.reads, new.reads] == reads
    world.run()
    assert world.describe() == before, "nothing was assigned anew"


def test_a_coordinator_that_takes_over_has_members_assign_anew_whose_partner_left_before() -> None:
    """What it read would be read by nobody."""
    world = World(4)
    kept, gone = ClassicClient(world, "a", assignor="cooperative-sticky"), AssignedClient(world, "b")
    world.run()
    gone.leave()
    world.restart()
    assert kind_of(world) == "classic"
    world.run()
    assert len(kept.reads) == 4


@BOTH_WAYS
@pytest.mark.parametrize("vanishes", ["the old one", "the new one"])
def test_a_member_that_vanishes_is_out_after_its_session(assignor: str, vanishes: str) -> None:
    world = World()
    old, new = ClassicClient(world, "a", assignor=assignor), AssignedClient(world, "b")
    world.run()
    (old if vanishes == "the old one" else new).vanish()
    world.run(rounds=SESSION_MS // 500 + 20)
    assert kind_of(world) == ("consumer" if vanishes == "the old one" else "classic")


def test_a_member_that_does_not_join_again_is_out_after_its_time() -> None:
    """It says that it lives, and holds what another one should read."""
    world = World(2)
    stuck, waits = ClassicClient(world, "a", assignor="cooperative-sticky"), AssignedClient(world, "b")
    stuck.act()
    world.pass_time(500)
    stuck.act()
    waits.act()
    replies: list[Reply] = []
    for _ in range(REBALANCE_MS // 500 + 2):
        beat = Heartbeat(GROUP, stuck._generation, stuck.member_id)
        world.ask(beat, replies.append)
        waits.act()
        world.pass_time(500)
    waits.act()
    assert [reply.fault for reply in (replies[0], replies[-1])] == [GroupFault.REBALANCING, GroupFault.UNKNOWN_MEMBER]
    assert len(waits.reads) == 2


def test_commits_of_both_kinds_are_checked_by_their_own_rules() -> None:
    world = World()
    old, new = ClassicClient(world, "a"), AssignedClient(world, "b")
    world.run()
    checks = {
        CheckCommit(GROUP, old._generation, old.member_id): GroupFault.NONE,
        CheckCommit(GROUP, old._generation - 1, old.member_id): GroupFault.ILLEGAL_GENERATION,
        CheckCommit(GROUP, new.epoch, new.member_id): GroupFault.NONE,
        CheckCommit(GROUP, new.epoch - 1, new.member_id): GroupFault.STALE_EPOCH,
        CheckCommit(GROUP, new.epoch, "nobody"): GroupFault.UNKNOWN_MEMBER,
        CheckCommit(GROUP): GroupFault.UNKNOWN_MEMBER,
        CheckCommit(GROUP, transactional=True): GroupFault.NONE,
        CheckCommit(GROUP, 0, transactional=True): GroupFault.UNKNOWN_MEMBER,
    }
    assert {check: world.groups.check_commit(check, world.now_ms) for check in checks} == checks


def test_who_does_what_is_asked_stays_a_member() -> None:
    world = World()
    old, new = ClassicClient(world, "a"), AssignedClient(world, "b")
    world.run()
    reads = [set(old.reads), set(new.reads)]
    for _ in range(3 * max(SESSION_MS, REBALANCE_MS) // 500):
        old.act()
        new.act()
        world.pass_time(500)
    assert [old.reads, new.reads] == reads and world.is_at_rest()


@pytest.mark.parametrize(("session_ms", "rebalance_ms"), [(10_000, 20_000), (10_000, 5_000)])
def test_who_has_joined_has_to_sync_in_time(session_ms: int, rebalance_ms: int) -> None:
    """The time of a rebalance, or of a session where that is longer; to say that it lives is not enough."""
    world = World(1)
    AssignedClient(world, "b").act()
    metadata = encode_subscription(Subscription(("t",)))
    protocols = (Protocol("range", metadata),)
    join = JoinGroup(GROUP, "", "i", "c", "h", session_ms, rebalance_ms, "consumer", protocols, "a")
    replies: list[Reply] = []
    world.ask(join, replies.append)
    [joined] = replies
    assert isinstance(joined, Joined)
    limit_ms = max(session_ms, rebalance_ms)
    while world.now_ms < limit_ms - 500:
        world.pass_time(500)
        world.ask(Heartbeat(GROUP, joined.generation, "a", "i"), replies.append)
        world.members[0].act()
    assert all(reply.fault is not GroupFault.UNKNOWN_MEMBER for reply in replies)
    world.pass_time(500)
    world.ask(Heartbeat(GROUP, joined.generation, "a", "i"), replies.append)
    assert replies[-1].fault is GroupFault.UNKNOWN_MEMBER


def test_to_sync_is_a_sign_of_life_and_refused_where_the_group_has_gone_on() -> None:
    world = World(2)
    old, _ = ClassicClient(world, "a"), AssignedClient(world, "b")
    world.run()
    replies: list[Reply] = []
    sync = Sync(GROUP, old._generation, old.member_id)
    for _ in range(2 * SESSION_MS // 500):
        world.ask(sync, replies.append)
        world.members[1].act()
        world.pass_time(500)
    assert {reply.fault for reply in replies} == {GroupFault.NONE}
    world.counts = {"t": 3}
    world.members[1].act()
    world.ask(sync, replies.append)
    assert replies[-1].fault is GroupFault.REBALANCING


def test_a_commit_is_a_sign_of_life_of_a_member_that_joins_and_syncs() -> None:
    world = World()
    old, new = ClassicClient(world, "a"), AssignedClient(world, "b")
    world.run()
    for _ in range(2 * SESSION_MS // 500):
        check = CheckCommit(GROUP, old._generation, old.member_id)
        assert world.groups.check_commit(check, world.now_ms) is GroupFault.NONE
        new.act()
        world.pass_time(500)


def test_after_a_restart_a_member_has_its_own_session_to_be_heard_of() -> None:
    world = World()
    old, new = ClassicClient(world, "a"), AssignedClient(world, "b")
    world.run()
    world.restart()
    old.vanish()
    for _ in range(SESSION_MS // 500 - 1):
        new.act()
        world.pass_time(500)
    assert len(world.describe().members) == 2
    world.pass_time(500)
    assert [member.client_id for member in world.describe().members] == ["b"]


@pytest.mark.parametrize(
    ("type_", "protocol", "fault"),
    [
        (None, None, GroupFault.NONE),  # a client too old to say
        ("consumer", "range", GroupFault.NONE),
        ("connect", "range", GroupFault.INCONSISTENT_PROTOCOL),
        ("consumer", "sticky", GroupFault.INCONSISTENT_PROTOCOL),
    ],
)
def test_who_syncs_has_to_mean_what_it_joined(type_: str | None, protocol: str | None, fault: GroupFault) -> None:
    world = World()
    old, _ = ClassicClient(world, "a"), AssignedClient(world, "b")
    world.run()
    replies: list[Reply] = []
    world.ask(Sync(GROUP, old._generation, old.member_id, None, type_, protocol), replies.append)
    assert [reply.fault for reply in replies] == [fault]


def test_a_group_that_is_deleted_leaves_nothing_behind() -> None:
    world = World()
    ClassicClient(world, "a")
    AssignedClient(world, "b")
    world.run()
    for member in list(world.members):
        member.leave()
    assert world.groups.names() == [GROUP] and world.groups.forget(GROUP)
    world.settle()
    assert world.entries == {}
    world.restart()
    assert world.groups.names() == []


def test_a_static_member_is_replaced_in_its_place() -> None:
    world = World()
    old, other = ClassicClient(world, "a", "i-a"), ClassicClient(world, "b", "i-b")
    world.run()
    reads = set(old.reads)
    old.vanish()  # as static members do
    new = AssignedClient(world, "new-a", "i-a")
    world.run()
    assert new.reads == reads and kind_of(world) == "consumer"
    new.leave(-2)
    back = ClassicClient(world, "again-a", "i-a")
    world.run()
    assert back.reads and other.reads and kind_of(world) == "classic"


def test_an_older_self_of_a_static_member_is_fenced() -> None:
    world = World()
    old, _ = ClassicClient(world, "a", "i-a"), AssignedClient(world, "b")
    world.run()
    old.vanish()
    ClassicClient(world, "a2", "i-a")
    world.run()
    replies: list[Reply] = []
    world.ask(Heartbeat(GROUP, old._generation, old.member_id, "i-a"), replies.append)
    world.ask(Sync(GROUP, old._generation, old.member_id, "i-a"), replies.append)
    assert [reply.fault for reply in replies] == [GroupFault.FENCED_INSTANCE] * 2


def test_an_administrator_removes_static_members_by_their_instances() -> None:
    world = World()
    ClassicClient(world, "a", "i-a")
    AssignedClient(world, "b", "i-b")
    AssignedClient(world, "c")
    world.run()
    replies: list[Reply] = []
    named = tuple(Leaving("", instance) for instance in ("i-a", "i-b", "i-b", "i-x"))
    by_id = (Leaving(world.members[2].member_id), Leaving("nobody"))
    world.ask(LeaveGroup(GROUP, (*named, *by_id)), replies.append)
    [left] = replies
    assert isinstance(left, Left)
    unknown = GroupFault.UNKNOWN_MEMBER
    assert [fault for _, fault in left.members] == [GroupFault.NONE] * 2 + [unknown] * 4
    assert [member.client_id for member in world.describe().members] == ["c"]


@pytest.mark.parametrize(
    ("member_id", "instance", "fault"),
    [
        ("its own", "i", GroupFault.NONE),
        ("its own", None, GroupFault.NONE),
        ("", "i", GroupFault.NONE),
        ("older", "i", GroupFault.FENCED_INSTANCE),
        ("its own", "j", GroupFault.UNKNOWN_MEMBER),
        ("", "j", GroupFault.UNKNOWN_MEMBER),
    ],
)
def test_a_static_member_leaves_as_itself_or_by_its_instance(
    member_id: str, instance: str | None, fault: GroupFault
) -> None:
    world = World()
    static, _ = ClassicClient(world, "a", "i"), AssignedClient(world, "b")
    world.run()
    replies: list[Reply] = []
    named = Leaving(static.member_id if member_id == "its own" else member_id, instance)
    world.ask(LeaveGroup(GROUP, (named,)), replies.append)
    assert replies == [Left(GroupFault.NONE, ((named, fault),))]
    remaining = {member.client_id for member in world.describe().members}
    assert remaining == ({"b"} if fault is GroupFault.NONE else {"a", "b"})


def test_a_new_topic_is_read_by_members_of_both_kinds() -> None:
    world = World(1)
    ClassicClient(world, "a")
    AssignedClient(world, "b")
    world.run()
    world.counts = {"t": 5}
    world.run()
    assert sorted(len(each.reads) for each in world.members) == [2, 3]


@BOTH_WAYS
def test_partitions_of_a_topic_that_was_made_anew_are_let_go_first(assignor: str) -> None:
    world = World(2)
    ClassicClient(world, "a", assignor=assignor)
    AssignedClient(world, "b")
    world.run()
    world.groups.forget_topics({"t"})
    for _ in range(10):
        for member in world.members:
            member.act()
        world.pass_time(500)
    assert world.is_at_rest()


@pytest.mark.parametrize(
    ("type_", "metadata"), [("connect", b"x"), ("consumer", b"x")], ids=["of another kind", "not a subscription"]
)
def test_who_is_no_consumer_is_neither_taken_over_nor_let_in(type_: str, metadata: bytes) -> None:
    join = JoinGroup(
        GROUP, "", None, "c", "h", SESSION_MS, REBALANCE_MS, type_, (Protocol("range", metadata),), "stranger"
    )
    world = World()
    replies: list[Reply] = []
    world.ask(join, replies.append)
    beat = ConsumerHeartbeat(GROUP, "m", 0, None, "c", "h", REBALANCE_MS, ("t",), None, frozenset())
    assert world.groups.beat(beat, world.counts, 0).fault is GroupFault.NOT_FOUND
    other = World()
    AssignedClient(other, "b").act()
    other.ask(join, replies.append)
    assert replies == [Joined(GroupFault.INCONSISTENT_PROTOCOL, "")]


@pytest.mark.parametrize("protocols", [("stream",), ("sticky",), ("sticky", "stream")])
def test_a_group_that_assigns_in_a_way_of_its_own_stays_as_it_is(protocols: tuple[str, ...]) -> None:
    """Kafka Streams tells its members which tasks are theirs; what `sticky` notes is of no use to others."""
    joins = JoinGroup(
        GROUP, "", "i", "c", "h", SESSION_MS, REBALANCE_MS, "consumer",
        tuple(Protocol(name, encode_subscription(Subscription(("t",), (), b"tasks"))) for name in protocols), "a",
    )  # fmt: skip
    world = World(1)
    replies: list[Reply] = []
    world.ask(joins, replies.append)
    world.pass_time(1_000)
    assigned = encode_assignment(world.everywhere())[:-4] + struct.pack(">i", 5) + b"tasks"
    world.ask(Sync(GROUP, 1, "a", "i", assignments={"a": assigned}), replies.append)
    beat = ConsumerHeartbeat(GROUP, "m", 0, None, "c", "h", REBALANCE_MS, ("t",), None, frozenset())
    taken = "sticky" in protocols
    fault = world.groups.beat(beat, world.counts, 0).fault
    assert fault is (GroupFault.NONE if taken else GroupFault.NOT_FOUND)
    other = World(1)
    AssignedClient(other, "b").act()
    other.ask(joins, replies.append)
    expected = GroupFault.NONE if taken else GroupFault.INCONSISTENT_PROTOCOL
    assert [reply.fault for reply in replies] == [GroupFault.NONE, GroupFault.NONE, expected]


def test_a_beat_that_would_be_refused_leaves_the_group_as_it_is() -> None:
    world = World()
    ClassicClient(world, "a")
    world.run()
    before = world.describe()
    fine = ConsumerHeartbeat(GROUP, "m", 0, None, "c", "h", REBALANCE_MS, ("t",), None, frozenset())
    wrong = replace(fine, assignor="mine"), replace(fine, pattern="("), replace(fine, topics=None)
    for beat in (*wrong, replace(fine, epoch=3), replace(fine, epoch=-1)):
        assert world.groups.beat(beat, world.counts, 0).fault is not GroupFault.NONE
        assert world.describe() == before


def test_a_way_of_assigning_that_the_other_classic_members_do_not_know_is_refused() -> None:
    world = World()
    ClassicClient(world, "a")
    AssignedClient(world, "b")
    world.run()
    replies: list[Reply] = []
    metadata = encode_subscription(Subscription(("t",)))
    for name in ("sticky", "range"):
        protocols = (Protocol(name, metadata),)
        join = JoinGroup(GROUP, "", "i", "c", "h", SESSION_MS, REBALANCE_MS, "consumer", protocols, f"new-{name}")
        world.ask(join, replies.append)
    assert [reply.fault for reply in replies] == [GroupFault.INCONSISTENT_PROTOCOL, GroupFault.NONE]


@pytest.mark.parametrize("session_ms", [999, 30 * 60 * 1000 + 1])
def test_session_times_have_the_bounds_that_they_have_in_other_groups(session_ms: int) -> None:
    world = World()
    AssignedClient(world, "b").act()
    replies: list[Reply] = []
    metadata = encode_subscription(Subscription(("t",)))
    join = JoinGroup(GROUP, "", "i", "c", "h", session_ms, 0, "consumer", (Protocol("range", metadata),), "new")
    world.ask(join, replies.append)
    assert replies[0].fault is GroupFault.INVALID_SESSION_TIMEOUT


@pytest.mark.parametrize("seed", range(60))
def test_whatever_comes_and_goes_partitions_have_one_reader_and_all_are_read_in_the_end(seed: int) -> None:
    chosen = random.Random(seed)
    world = World(chosen.choice([1, 2, 6]))
    assignor = chosen.choice(["range", "cooperative-sticky"])

    def newcomer(number: int) -> Client:
        if chosen.random() < 0.5:
            return AssignedClient(world, f"m{number}")
        return ClassicClient(world, f"m{number}", assignor=assignor)

    for number in range(60):
        roll = chosen.random()
        if roll < 0.15 and len(world.members) < 5:
            newcomer(number)
        elif roll < 0.2 and world.members:
            chosen.choice(world.members).leave()
        elif roll < 0.23 and world.members:
            chosen.choice(world.members).vanish()
        elif roll < 0.26:
            world.restart()
        elif roll < 0.29:
            world.counts = {"t": world.counts["t"] + 1}
        elif world.members:
            chosen.choice(world.members).act()
        world.check()
        world.pass_time(chosen.choice([10, 100, 1_000]))
    if not world.members:
        newcomer(60)
    world.run(rounds=(SESSION_MS + REBALANCE_MS) // 500 + 40)
