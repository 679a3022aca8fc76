"""The pure consumer groups: members, rebalances, generations, time."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from millstream.logcore.cores.group_messages import (
    CheckCommit,
    GroupAnswer,
    GroupFault,
    GroupState,
    Heartbeat,
    Joined,
    JoinGroup,
    LeaveGroup,
    Leaving,
    Left,
    Message,
    Protocol,
    Reply,
    Sync,
    Synced,
)
from millstream.logcore.cores.groups import GATHERING_MS, Groups

RANGE, STICKY = Protocol("range", b"r"), Protocol("sticky", b"s")
SESSION_MS, REBALANCE_MS = 10_000, 30_000


@dataclass
class Desk:
    """The groups, a clock, and what was answered so far."""

    groups: Groups = field(default_factory=Groups)
    now_ms: int = 0
    answers: dict[int, Reply] = field(default_factory=dict)
    tickets: int = 0

    def ask(self, message: Message) -> int:
        self.tickets += 1
        self._take(self.groups.step(message, self.tickets, self.now_ms))
        return self.tickets

    def told(self, message: Message) -> Any:
        return self.answers[self.ask(message)]

    def pass_time(self, duration_ms: int) -> None:
        """As the coordinator does: from one deadline to the next."""
        end_ms = self.now_ms + duration_ms
        while (deadline_ms := self.groups.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self._take(self.groups.tick(self.now_ms))
        self.now_ms = end_ms

    def _take(self, answers: Any) -> None:
        for answered in answers:
            assert answered.ticket not in self.answers
            self.answers[answered.ticket] = answered.reply

    @property
    def state(self) -> GroupState:
        return self.groups.describe("g").state


def join(
    member_id: str = "", new: str = "a", instance: str | None = None, *protocols: Protocol, **more: Any
) -> JoinGroup:
    return JoinGroup(
        "g", member_id, instance, "client", "host", SESSION_MS, REBALANCE_MS, "consumer", protocols or (RANGE,), new,
        **more,
    )  # fmt: skip


def settled(desk: Desk, *names: str, instances: bool = False) -> dict[str, Joined]:
    """A stable group of these members; the first leads."""
    tickets = {name: desk.ask(join(new=name, instance=f"i-{name}" if instances else None)) for name in names}
    desk.pass_time(10 * GATHERING_MS)
    joined = {name: desk.answers[ticket] for name, ticket in tickets.items()}
    assert all(isinstance(answer, Joined) and answer.fault is GroupFault.NONE for answer in joined.values())
    sync_all(desk, joined)
    return joined  # pyrefly: ignore[bad-return]


def sync_all(desk: Desk, joined: Any) -> dict[str, Synced]:
    leader = next(answer for answer in joined.values() if answer.leader_id == answer.member_id)
    plan = {member.member_id: b"for " + member.member_id.encode() for member in leader.members}
    tickets = {
        name: desk.ask(Sync("g", answer.generation, answer.member_id, assignments=plan if answer is leader else {}))
        for name, answer in joined.items()
    }
    return {name: desk.answers[ticket] for name, ticket in tickets.items()}  # pyrefly: ignore[bad-return]


def test_members_that_come_together_are_one_generation_with_one_leader() -> None:
    desk = Desk()
    first, second = desk.ask(join(new="a")), desk.ask(join(new="b"))
    assert first not in desk.answers
    desk.pass_time(10 * GATHERING_MS)
    leader, follower = desk.answers[first], desk.answers[second]
    assert isinstance(leader, Joined) and isinstance(follower, Joined)
    assert (leader.generation, follower.generation) == (1, 1)
    assert [member.member_id for member in leader.members] == ["a", "b"] and follower.members == ()
    assert leader.leader_id == follower.leader_id == "a"


def test_everybody_gets_what_the_leader_decided_for_it() -> None:
    desk = Desk()
    tickets = {name: desk.ask(join(new=name)) for name in "ab"}
    desk.pass_time(10 * GATHERING_MS)
    waiting = desk.ask(Sync("g", 1, "b"))
    assert waiting not in desk.answers
    desk.ask(Sync("g", 1, "a", assignments={"a": b"A", "b": b"B"}))
    assert desk.answers[waiting] == Synced(GroupFault.NONE, "consumer", "range", b"B")
    assert desk.state is GroupState.STABLE and len(tickets) == 2


def test_a_new_member_of_a_newer_client_is_given_its_id_first() -> None:
    desk = Desk()
    told = desk.told(join(new="a-1", asks_twice=True))
    assert told == Joined(GroupFault.MEMBER_ID_REQUIRED, "a-1")
    again = desk.ask(join("a-1", asks_twice=True))
    desk.pass_time(10 * GATHERING_MS)
    assert desk.answers[again].fault is GroupFault.NONE


def test_an_id_that_nobody_came_with_is_forgotten() -> None:
    desk = Desk()
    desk.ask(join(new="a-1", asks_twice=True))
    desk.pass_time(SESSION_MS + 1)
    assert desk.told(join("a-1")).fault is GroupFault.UNKNOWN_MEMBER
    assert not desk.groups.is_in_use("g") and desk.groups.next_deadline_ms() is None


def test_one_more_member_makes_the_others_join_again() -> None:
    desk = Desk()
    settled(desk, "a", "b")
    newcomer = desk.ask(join(new="c"))
    assert desk.told(Heartbeat("g", 1, "a")) == GroupAnswer(GroupFault.REBALANCING)
    first = desk.ask(join("a"))
    assert newcomer not in desk.answers
    second = desk.ask(join("b"))
    assert {desk.answers[ticket].generation for ticket in (newcomer, first, second)} == {2}  # pyrefly: ignore[missing-attribute]


def test_who_does_not_come_in_time_is_out() -> None:
    desk = Desk()
    settled(desk, "a", "b")
    newcomer = desk.ask(join(new="c"))
    desk.ask(join("b"))
    for _ in range(REBALANCE_MS // 5000):
        desk.told(Heartbeat("g", 1, "a"))  # alive, but busy
        desk.pass_time(5000)
    assert desk.answers[newcomer].fault is GroupFault.NONE
    assert desk.told(Heartbeat("g", 1, "a")).fault is GroupFault.UNKNOWN_MEMBER
    assert {member.member_id for member in desk.groups.describe("g").members} == {"b", "c"}


def test_a_member_that_is_not_heard_of_is_out_and_the_others_take_over() -> None:
    desk = Desk()
    settled(desk, "a", "b")
    desk.pass_time(SESSION_MS - 1000)
    assert desk.told(Heartbeat("g", 1, "b")).fault is GroupFault.NONE
    desk.pass_time(1001)
    assert desk.told(Heartbeat("g", 1, "b")).fault is GroupFault.REBALANCING
    again = desk.told(join("b"))
    assert (again.generation, again.leader_id, len(again.members)) == (2, "b", 1)


def test_a_leader_that_dies_before_it_decides_is_replaced() -> None:
    desk = Desk()
    tickets = {name: desk.ask(join(new=name)) for name in "ab"}
    desk.pass_time(10 * GATHERING_MS)
    waiting = desk.ask(Sync("g", 1, "b"))
    desk.pass_time(SESSION_MS + 1)
    assert desk.answers[waiting] == Synced(GroupFault.REBALANCING)
    assert desk.told(join("b")).leader_id == "b" and len(tickets) == 2


def test_who_joins_and_never_asks_for_its_assignment_is_out() -> None:
    desk = Desk()
    tickets = {name: desk.ask(join(new=name)) for name in "ab"}
    desk.pass_time(10 * GATHERING_MS)
    desk.told(Sync("g", 1, "a", assignments={}))
    for _ in range(REBALANCE_MS // 5000):
        desk.told(Heartbeat("g", 1, "a"))
        desk.told(Heartbeat("g", 1, "b"))
        desk.pass_time(5000)
    assert desk.told(Heartbeat("g", 1, "b")).fault is GroupFault.UNKNOWN_MEMBER
    assert desk.told(Heartbeat("g", 1, "a")).fault is GroupFault.REBALANCING and len(tickets) == 2


def test_leaving_says_how_each_member_fared() -> None:
    desk = Desk()
    settled(desk, "a", "b", instances=True)
    gone = (Leaving("a", "i-a"), Leaving("", "i-b"), Leaving("c"), Leaving("a", "i-b"))
    left = desk.told(LeaveGroup("g", gone))
    assert isinstance(left, Left)
    assert [fault for _, fault in left.members] == [
        GroupFault.NONE, GroupFault.NONE, GroupFault.UNKNOWN_MEMBER, GroupFault.UNKNOWN_MEMBER,
    ]  # fmt: skip
    assert not desk.groups.is_in_use("g")


def test_one_who_leaves_among_strangers_is_missed() -> None:
    desk = Desk()
    settled(desk, "a", "b")
    desk.ask(LeaveGroup("g", (Leaving("a"), Leaving("stranger"))))
    assert desk.state is GroupState.PREPARING
    assert desk.told(LeaveGroup("", (Leaving("a"),))).fault is GroupFault.INVALID_GROUP


def test_an_emptied_group_counts_on_and_is_forgotten_only_then() -> None:
    desk = Desk()
    settled(desk, "a")
    assert not desk.groups.forget("g")
    desk.ask(LeaveGroup("g", (Leaving("a"),)))
    assert settled(desk, "b")["b"].generation == 3, "to be empty is a generation, too"
    desk.ask(LeaveGroup("g", (Leaving("b"),)))
    assert desk.groups.forget("g")
    assert settled(desk, "c")["c"].generation == 1


def test_a_static_member_that_starts_again_disturbs_nobody() -> None:
    desk = Desk()
    settled(desk, "a", "b", instances=True)
    told = desk.told(join(new="b-2", instance="i-b"))
    assert (told.fault, told.member_id, told.generation, desk.state) == (GroupFault.NONE, "b-2", 1, GroupState.STABLE)
    assert desk.told(Sync("g", 1, "b-2", "i-b")).assignment == b"for b"
    assert desk.told(Heartbeat("g", 1, "b", "i-b")).fault is GroupFault.FENCED_INSTANCE
    assert desk.told(CheckCommit("g", 1, "b", "i-b")).fault is GroupFault.FENCED_INSTANCE


@pytest.mark.parametrize(
    ("member_id", "instance", "fault"),
    [
        ("", "i-b", GroupFault.NONE),
        ("b-2", "i-b", GroupFault.NONE),
        ("b-2", None, GroupFault.NONE),
        ("b", "i-b", GroupFault.FENCED_INSTANCE),
        ("b-2", "i-c", GroupFault.UNKNOWN_MEMBER),
        ("", "i-c", GroupFault.UNKNOWN_MEMBER),
        ("", None, GroupFault.UNKNOWN_MEMBER),
    ],
)
def test_a_static_member_leaves_by_its_instance_or_as_itself(
    member_id: str, instance: str | None, fault: GroupFault
) -> None:
    """Its older self, which another one has replaced, does not take it out."""
    desk = Desk()
    settled(desk, "a", "b", instances=True)
    desk.told(join(new="b-2", instance="i-b"))
    leaving = Leaving(member_id, instance)
    assert desk.told(LeaveGroup("g", (leaving,))).members == ((leaving, fault),)
    left = ["a"] if fault is GroupFault.NONE else ["a", "b-2"]
    assert [member.member_id for member in desk.groups.describe("g").members] == left


def test_a_full_group_takes_nobody_new_but_its_members_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever joins with the id that it was told is new as well."""
    monkeypatch.setattr("millstream.logcore.cores.groups.MEMBERS_MAX", 2)
    desk = Desk()
    late = desk.told(replace(join(new="late"), asks_twice=True))
    assert (late.fault, late.member_id) == (GroupFault.MEMBER_ID_REQUIRED, "late")
    settled(desk, "a", "b", instances=True)
    assert desk.told(join(new="c")).fault is GroupFault.GROUP_FULL
    assert desk.told(join(new="c", instance="i-c")).fault is GroupFault.GROUP_FULL
    assert desk.told(join("late", new="")).fault is GroupFault.GROUP_FULL
    assert desk.told(join("b", instance="i-b", new="")).fault is GroupFault.NONE
    assert desk.told(join(new="b-2", instance="i-b")).fault is GroupFault.NONE


def test_a_static_leader_that_starts_again_keeps_the_assignment() -> None:
    old, new = Desk(), Desk()
    settled(old, "a", "b", instances=True)
    told = old.told(join(new="a-2", instance="i-a"))
    assert (told.leader_id, told.members) == ("a", ())  # it takes itself for a follower
    settled(new, "a", "b", instances=True)
    told = new.told(join(new="a-2", instance="i-a", knows_skipping=True))
    assert (told.leader_id, told.skip_assignment, len(told.members)) == ("a-2", True, 2)


def test_a_static_member_with_another_subscription_makes_all_join_again() -> None:
    desk = Desk()
    settled(desk, "a", "b", instances=True)
    ticket = desk.ask(replace(join(new="b-2", instance="i-b"), protocols=(Protocol("range", b"other"),)))
    assert ticket not in desk.answers and desk.state is GroupState.PREPARING


def test_a_static_member_that_is_away_keeps_its_place_until_its_session_ends() -> None:
    desk = Desk()
    settled(desk, "a", "b", instances=True)
    desk.ask(join("a", instance="i-a", new=""))
    assert [member.member_id for member in desk.groups.describe("g").members] == ["a", "b"]
    desk.pass_time(SESSION_MS + 1)
    assert [member.member_id for member in desk.groups.describe("g").members] == ["a"]


def test_the_protocol_is_one_that_all_know_and_most_prefer() -> None:
    desk = Desk()
    offers = [(STICKY, RANGE), (RANGE, STICKY), (RANGE, STICKY)]
    tickets = [desk.ask(join("", name, None, *offer)) for name, offer in zip("abc", offers, strict=True)]
    desk.pass_time(10 * GATHERING_MS)
    assert {desk.answers[ticket].protocol for ticket in tickets} == {"range"}  # pyrefly: ignore[missing-attribute]
    assert desk.told(join("", "d", None, Protocol("mine", b""))).fault is GroupFault.INCONSISTENT_PROTOCOL
    assert desk.told(replace(join(new="d"), protocol_type="connect")).fault is GroupFault.INCONSISTENT_PROTOCOL


def test_what_cannot_be_is_refused() -> None:
    desk = Desk()
    assert desk.told(replace(join(), group="")).fault is GroupFault.INVALID_GROUP
    assert desk.told(replace(join(), session_timeout_ms=1)).fault is GroupFault.INVALID_SESSION_TIMEOUT
    assert desk.told(replace(join(), protocols=())).fault is GroupFault.INCONSISTENT_PROTOCOL
    assert desk.told(join("stranger")).fault is GroupFault.UNKNOWN_MEMBER
    assert desk.told(Heartbeat("g", 1, "a")).fault is GroupFault.UNKNOWN_MEMBER
    assert desk.told(Sync("g", 1, "a")).fault is GroupFault.UNKNOWN_MEMBER
    settled(desk, "a")
    assert desk.told(Heartbeat("g", 0, "a")).fault is GroupFault.ILLEGAL_GENERATION
    assert desk.told(Sync("g", 2, "a")).fault is GroupFault.ILLEGAL_GENERATION
    assert desk.told(Sync("g", 1, "a", protocol="sticky")).fault is GroupFault.INCONSISTENT_PROTOCOL


def test_commits_come_from_members_of_this_generation_or_from_outside_an_empty_group() -> None:
    desk = Desk()
    assert desk.told(CheckCommit("g")).fault is GroupFault.NONE
    assert desk.told(CheckCommit("g", 3, "a")).fault is GroupFault.ILLEGAL_GENERATION
    settled(desk, "a", "b")
    assert desk.told(CheckCommit("g", 1, "a")).fault is GroupFault.NONE
    assert desk.told(CheckCommit("g", 0, "a")).fault is GroupFault.ILLEGAL_GENERATION
    assert desk.told(CheckCommit("g")).fault is GroupFault.UNKNOWN_MEMBER
    assert desk.told(CheckCommit("g", transactional=True)).fault is GroupFault.NONE
    assert desk.told(CheckCommit("g", 0, transactional=True)).fault is GroupFault.UNKNOWN_MEMBER
    desk.ask(join(new="c"))
    assert desk.told(CheckCommit("g", 1, "a")).fault is GroupFault.NONE  # before it joins again
    for member in "ab":
        desk.ask(join(member))
    assert desk.told(CheckCommit("g", 2, "a")).fault is GroupFault.REBALANCING  # before it knows what it has


def test_whatever_happens_every_question_is_answered_and_the_group_comes_to_rest() -> None:
    for seed in range(150):
        Wanderers(seed).run()


class Wanderers:
    """Members that join, sync, beat, leave and die as chance has it; checks what must hold all the time."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.desk = Desk()
        self.waiting: dict[str, int] = {}
        self.ids: dict[str, str] = {}
        self.generations: dict[str, int] = {}
        self.seen: list[int] = []
        self.starts = 0

    def run(self) -> None:
        names = [f"m{number}" for number in range(4)]
        for _ in range(120):
            self.act(self.random.choice(names))
            self.read()
            self.check()
        self.desk.pass_time(2 * (SESSION_MS + REBALANCE_MS))
        assert not self.desk.groups.is_in_use("g"), "members that nobody hears of do not stay"
        assert self.desk.answers.keys() == set(range(1, self.desk.tickets + 1))

    def act(self, name: str) -> None:
        choice = self.random.random()
        member_id = self.ids.get(name, "")
        generation = self.generations.get(name, -1)
        if choice < 0.15:
            self.desk.pass_time(self.random.choice([10, 500, 4000, SESSION_MS]))
        elif name in self.waiting:
            return
        elif choice < 0.45:
            self.starts += 1
            instance = f"static-{name}" if name == "m0" else None
            message = join(member_id, f"{name}-{self.starts}", instance, asks_twice=self.random.random() < 0.5)
            self.waiting[name] = self.desk.ask(message)
        elif choice < 0.65:
            self.waiting[name] = self.desk.ask(Sync("g", generation, member_id, assignments={member_id: b"x"}))
        elif choice < 0.85:
            self.desk.told(Heartbeat("g", generation, member_id))
        elif choice < 0.9:
            self.desk.told(LeaveGroup("g", (Leaving(member_id),)))
        else:
            self.ids.pop(name, None)  # it dies, and another starts in its place

    def read(self) -> None:
        for name, ticket in list(self.waiting.items()):
            if ticket in self.desk.answers:
                del self.waiting[name]
                reply = self.desk.answers[ticket]
                if isinstance(reply, Joined):
                    self.ids[name] = "" if reply.fault is GroupFault.UNKNOWN_MEMBER else reply.member_id
                    self.generations[name] = reply.generation

    def check(self) -> None:
        described = self.desk.groups.describe("g")
        if described.state in (GroupState.STABLE, GroupState.COMPLETING):
            assert described.members
        deadline_ms = self.desk.groups.next_deadline_ms()
        assert deadline_ms is not None or not described.members


def test_static_members_that_do_not_join_again_keep_their_places_though_nobody_could_lead() -> None:
    desk = Desk()
    joined = settled(desk, "a", "b", instances=True)
    desk.ask(join(new="c"))
    desk.ask(LeaveGroup("g", (Leaving("c"),)))
    for _ in range(2 * REBALANCE_MS // 5_000):
        desk.pass_time(5_000)
        for name, answer in joined.items():
            beat = Heartbeat("g", answer.generation, name, f"i-{name}")
            assert desk.told(beat).fault is GroupFault.REBALANCING
    assert desk.state is GroupState.PREPARING
    assert [member.member_id for member in desk.groups.describe("g").members] == ["a", "b"]
    tickets = [desk.ask(join(name, instance=f"i-{name}", new="")) for name in "ab"]
    assert [desk.answers[ticket].generation for ticket in tickets] == [2, 2]  # pyrefly: ignore[missing-attribute]
