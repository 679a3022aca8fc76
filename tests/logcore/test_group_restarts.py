"""Groups outlive the process: their records in `__consumer_offsets`, and what follows from them at the next start."""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.logcore import failpoints
from millstream.logcore.client import TopicPartition
from millstream.logcore.coordination.group_record_bytes import decode_key, decode_value, encode_key, encode_value
from millstream.logcore.cores.consumer_groups import ConsumerGroups
from millstream.logcore.cores.expiry import ExpiryTimes
from millstream.logcore.cores.group_messages import (
    CheckCommit,
    CommitNote,
    ConsumerBeat,
    ConsumerHeartbeat,
    GroupFault,
    GroupState,
    Heartbeat,
    Joined,
    JoinGroup,
    LeaveGroup,
    Leaving,
    Protocol,
    Sync,
    Synced,
)
from millstream.logcore.cores.group_records import (
    ClassicGroup,
    ClassicMember,
    Current,
    Epoch,
    GroupKey,
    GroupRecord,
    GroupValue,
    Kind,
    MemberRecord,
    ReadTopics,
    Target,
)
from millstream.logcore.cores.groups import Groups
from millstream.logcore.cores.subscriptions import Subscription, encode_subscription
from millstream.logcore.log import Log, open_log

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
DAY_MS = 24 * 60 * 60 * 1000
TEXTS = st.text(max_size=8)
PLACES = st.frozensets(st.builds(TopicPartition, st.sampled_from(["t", "other"]), st.integers(0, 9)), max_size=5)


class Clock:
    """Time that tests move."""

    def __init__(self) -> None:
        self.now_s = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def aging(folder: Path, clock: Clock) -> Iterator[Log]:
    """A log on which groups' offsets expire after a day."""
    with open_log(folder, clock=clock, expiry=ExpiryTimes(offsets_ms=DAY_MS)) as log:
        log.create_topic("t", 2)
        log.create_topic("other", 1)
        log.groups.expires = lambda group: group != "kept"
        yield log


def subscription(*topics: str) -> bytes:
    return encode_subscription(Subscription(topics))


def join(log: Log, group: str, name: str, *, instance: str | None = None, session_ms: int = 10_000) -> int:
    """Joins and syncs, alone in the group; gives the generation."""
    asked = JoinGroup(
        group, "", instance, "client", "host", session_ms, 5_000, "consumer",
        (Protocol("range", subscription("t")),), name,
    )  # fmt: skip
    joined = cast(Joined, log.groups.ask(asked).result(60))
    assert joined.fault is GroupFault.NONE
    synced = log.groups.ask(Sync(group, joined.generation, name, instance, assignments={name: b"all"})).result(60)
    assert synced.fault is GroupFault.NONE
    return joined.generation


def beat(
    log: Log, name: str, epoch: int, *topics: str, owned: tuple[TopicPartition, ...] | None = None
) -> ConsumerBeat:
    """Of a member of the group "new"."""
    return log.groups.beat(
        ConsumerHeartbeat(
            "new", name, epoch, None, "client", "host", 30_000, topics or None, None,
            None if owned is None else frozenset(owned),
        ),
        {"t": 2},
    )  # fmt: skip


def test_members_go_on_after_a_restart_as_if_nothing_had_been(log: Log, folder: Path) -> None:
    generation = join(log, "g", "a", instance="i-a")
    before = log.groups.describe("g")
    log.close()
    with open_log(folder) as later:
        assert later.groups.describe("g") == before
        assert later.groups.ask(Heartbeat("g", generation, "a", "i-a")).result(1).fault is GroupFault.NONE
        assert later.groups.commit(CheckCommit("g", generation, "a", "i-a"), {T0: 5}, {}) is GroupFault.NONE
        assert later.groups.commit(CheckCommit("g", generation - 1, "a", "i-a"), {T0: 9}, {}).value.startswith(
            "illegal"
        )
        again = later.groups.ask(Sync("g", generation, "a", "i-a")).result(1)
        assert getattr(again, "assignment", None) == b"all"


def test_members_that_the_coordinator_assigns_to_go_on_after_a_restart(log: Log, folder: Path) -> None:
    joined = beat(log, "a", 0, "t", owned=())
    assert joined.assignment == (T0, T1)
    before = log.groups.describe("new")
    log.close()
    with open_log(folder) as later:
        assert later.groups.describe("new") == before
        told = beat(later, "a", joined.epoch)
        assert (told.fault, told.epoch) == (GroupFault.NONE, joined.epoch)
        assert told.assignment == (T0, T1), "its last answer may have been lost"
        assert beat(later, "a", joined.epoch).assignment is None
        assert later.groups.commit(CheckCommit("new", joined.epoch, "a"), {T0: 5}, {}) is GroupFault.NONE


def test_what_a_member_gives_up_is_nobody_elses_until_it_has_across_a_restart(log: Log, folder: Path) -> None:
    first = beat(log, "a", 0, "t", owned=())
    newcomer = beat(log, "b", 0, "t", owned=())
    assert newcomer.assignment == ()
    asked_for = beat(log, "a", first.epoch, owned=(T0, T1))
    assert asked_for.assignment is not None and len(asked_for.assignment) == 1
    log.close()
    with open_log(folder) as later:
        assert beat(later, "b", newcomer.epoch, owned=()).assignment == ()
        beat(later, "a", first.epoch, owned=asked_for.assignment)
        moved = beat(later, "b", newcomer.epoch, owned=())
        assert moved.assignment is not None and {*moved.assignment, *asked_for.assignment} == {T0, T1}


def test_a_member_that_does_not_come_back_after_a_restart_is_out(log: Log, folder: Path) -> None:
    join(log, "g", "a", session_ms=1_000)
    log.close()
    with open_log(folder) as later:
        deadline = time.monotonic() + 60
        while later.groups.describe("g").members:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert later.groups.describe("g").state is GroupState.EMPTY
        assert join(later, "g", "b") > 1, "generations go on where they were"


def test_a_group_that_was_left_is_empty_after_a_restart_and_gone_once_deleted(log: Log, folder: Path) -> None:
    join(log, "g", "a")
    log.groups.ask(LeaveGroup("g", (Leaving("a"),))).result(1)
    log.close()
    with open_log(folder) as later:
        assert later.groups.describe("g").state is GroupState.EMPTY
        assert later.groups.delete("g") is GroupFault.NONE
    with open_log(folder) as last:
        assert last.groups.names() == []


def test_a_member_is_told_nothing_that_the_disk_refused(log: Log) -> None:
    asked = JoinGroup("g", "", None, "c", "h", 10_000, 5_000, "consumer", (Protocol("range", b""),), "a")
    joining = cast(Joined, log.groups.ask(asked).result(60))
    failpoints.arm("append.before_sync:1:eio")
    refused = log.groups.ask(Sync("g", joining.generation, "a", assignments={"a": b"all"})).result(60)
    failpoints.arm("")
    assert refused.fault is GroupFault.SHUTTING_DOWN
    again = log.groups.ask(Sync("g", joining.generation, "a")).result(60)
    assert cast(Synced, again).assignment == b"all"


def test_offsets_of_a_group_expire_a_while_after_its_last_member_has_left(aging: Log, clock: Clock) -> None:
    generation = join(aging, "g", "a", session_ms=30 * 60 * 1000)
    aging.groups.commit(CheckCommit("g", generation, "a"), {T0: 5}, {})
    clock.now_s += 3 * DAY_MS / 1000
    aging.keep_house()
    assert aging.committed_offsets("g") == {T0: 5}, "it has members that read the topic"
    aging.groups.ask(LeaveGroup("g", (Leaving("a"),))).result(1)
    aging.keep_house()
    assert aging.committed_offsets("g") == {T0: 5}
    clock.now_s += DAY_MS / 1000 + 1
    aging.keep_house()
    assert aging.committed_offsets("g") == {}
    assert aging.groups.names() == []


def test_members_keep_the_offsets_of_what_they_read_only(aging: Log, clock: Clock) -> None:
    generation = join(aging, "g", "a", session_ms=30 * 60 * 1000)
    aging.groups.commit(CheckCommit("g", generation, "a"), {T0: 5, TopicPartition("other", 0): 6}, {})
    clock.now_s += DAY_MS / 1000 + 1
    aging.keep_house()
    assert aging.committed_offsets("g") == {T0: 5}


def test_offsets_that_somebody_keeps_there_never_expire(aging: Log, clock: Clock, folder: Path) -> None:
    aging.commit_offsets("kept", {T0: 1})
    aging.commit_offsets("simple", {T0: 1})
    clock.now_s += DAY_MS / 1000 + 1
    aging.keep_house()
    assert aging.groups.names() == ["kept"]
    aging.close()
    with open_log(folder, clock=clock, expiry=ExpiryTimes(offsets_ms=1)) as later:
        clock.now_s += DAY_MS
        later.keep_house()
        assert later.groups.names() == ["kept"], "nothing expires where nobody said what may"


def test_the_notes_of_offsets_survive_a_transaction(log: Log, folder: Path) -> None:
    producer = log.transactional_producer("tx")
    producer.begin()
    producer.send_offsets("g", {T0: 5}, {T0: CommitNote("a note", 3)})
    producer.commit()
    log.close()
    with open_log(folder) as later:
        assert later.groups.committed("g")[T0][:3] == (5, "a note", 3)


def test_a_groups_record_is_laid_out_as_kafka_does() -> None:
    member = ClassicMember("m", None, "c", "/h", 2, 3, b"s", b"as")
    group = ClassicGroup("consumer", 7, "range", "m", (member,), 99)
    assert encode_key(GroupKey(Kind.CLASSIC, "g")) == b"\0\2\0\1g"
    assert encode_value(group, lambda name: None) == (
        struct.pack(">h", 3) + b"\0\x08consumer" + struct.pack(">i", 7) + b"\0\5range\0\1m" + struct.pack(">qi", 99, 1)
        + b"\0\1m\xff\xff\0\1c\0\2/h" + struct.pack(">ii", 2, 3) + b"\0\0\0\1s\0\0\0\2as"
    )  # fmt: skip
    assert encode_key(GroupKey(Kind.CURRENT, "g", "m")) == b"\0\x08\0\1g\0\1m"
    id = bytes(range(16))
    assert encode_value(Current(2, 1, frozenset({T1}), frozenset()), lambda name: id) == (
        struct.pack(">hiib", 0, 2, 1, 0) + b"\2" + id + b"\2" + struct.pack(">i", 1) + b"\0" + b"\1" + b"\0"
    )


@given(
    st.one_of(
        st.builds(Epoch, st.integers(0, 99)),
        st.builds(ReadTopics, st.just((("other", 3), ("t", 2)))),
        st.builds(
            MemberRecord, st.none() | TEXTS, TEXTS, TEXTS, st.lists(TEXTS, max_size=3).map(tuple), st.none() | TEXTS,
            st.integers(-1, 99),
        ),
        st.builds(Target, PLACES),
        st.builds(Current, st.integers(-2, 99), st.integers(-1, 99), PLACES, PLACES),
        st.builds(
            ClassicGroup, TEXTS, st.integers(0, 99), st.none() | TEXTS, st.none() | TEXTS,
            st.lists(
                st.builds(
                    ClassicMember, TEXTS, st.none() | TEXTS, TEXTS, TEXTS, st.integers(0, 9), st.integers(0, 9),
                    st.binary(max_size=5), st.binary(max_size=5),
                ),
                max_size=3,
            ).map(tuple),
            st.integers(-1, 99),
        ),
    )
)  # fmt: skip
def test_what_is_written_about_groups_is_read_again(value: GroupValue) -> None:
    ids = {"t": b"t" * 16, "other": b"o" * 16}
    names = {id: name for name, id in ids.items()}
    kinds = {
        ClassicGroup: Kind.CLASSIC, Epoch: Kind.EPOCH, ReadTopics: Kind.TOPICS, MemberRecord: Kind.MEMBER,
        Target: Kind.TARGET, Current: Kind.CURRENT,
    }  # fmt: skip
    kind = kinds[type(value)]
    assert decode_value(kind, encode_value(value, ids.get), names.get) == value
    key = GroupKey(kind, "g", "m" if kind in (Kind.MEMBER, Kind.TARGET, Kind.CURRENT) else "")
    assert decode_key(encode_key(key)) == key


def test_at_any_moment_the_records_give_the_group_that_there_is() -> None:
    for seed in range(60):
        folds_to_itself(seed)


def folds_to_itself(seed: int) -> None:
    """Members come, beat, go; whenever their group rests, the fold of its records is the group."""
    chance = random.Random(seed)
    live, records, epochs, now_ms = ConsumerGroups(), dict[GroupKey, GroupRecord](), dict[str, int](), 0
    for _ in range(60):
        name = chance.choice("abc")
        now_ms += chance.choice([10, 500, 6_000])
        live.tick(now_ms)
        epoch = chance.choice([epochs.get(name, 0)] * 6 + [0, -1])
        owned = frozenset({T0, T1} if chance.random() < 0.2 else ())
        told = live.beat(
            ConsumerHeartbeat("g", name, epoch, None, "c", "h", 30_000, ("t",) if not epoch else None, None, owned),
            {"t": chance.choice([2, 2, 2, 5])},
            now_ms,
        )
        epochs[name] = told.epoch if told.fault is GroupFault.NONE and told.epoch > 0 else 0
        records |= {record.key: record for record in live.take_records()}
        fold = ConsumerGroups()
        for record in sorted(records.values(), key=lambda record: record.key.kind):
            if record.value is not None:
                fold.apply(record)
        assert fold.names() == live.names()
        if live.has("g"):
            assert described(fold) == described(live)


def described(groups: ConsumerGroups) -> object:
    found = groups.describe("g")
    return found.generation, found.state, sorted(found.members, key=lambda member: member.member_id)


def test_the_fold_of_a_classic_group_is_the_group_whenever_it_rests() -> None:
    groups, fold = Groups(gathering_ms=0), Groups()
    groups.step(JoinGroup("g", "", "i", "c", "h", 10_000, 5_000, "consumer", (Protocol("range", b"s"),), "a"), 1, 0)
    groups.tick(1)
    groups.step(Sync("g", 1, "a", "i", assignments={"a": b"all"}), 2, 1)
    for record in groups.take_records():
        fold.apply(record)
    assert fold.describe("g") == groups.describe("g")
    groups.step(LeaveGroup("g", (Leaving("a", "i"),)), 3, 2)
    for record in groups.take_records():
        fold.apply(record)
    assert fold.describe("g") == groups.describe("g") and fold.describe("g").generation == 2
    assert groups.forget("g")
    for record in groups.take_records():
        fold.apply(record)
    assert fold.names() == groups.names() == []
