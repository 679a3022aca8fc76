"""Groups outlive the process: their records in `__consumer_offsets`, and what follows from them at the next start."""

from __future__ import annotations

import random
import struct
from dataclasses import replace
from pathlib import Path
from typing import cast

from hypothesis import given
from hypothesis import strategies as st
from waiting import eventually

from millstream.logcore import failpoints
from millstream.logcore.client import TopicPartition
from millstream.logcore.coordination.group_record_bytes import decode_key, decode_value, encode_key, encode_value
from millstream.logcore.cores.consumer_groups import ConsumerGroups
from millstream.logcore.cores.group_expiry import expired
from millstream.logcore.cores.group_messages import (
    CheckCommit,
    CommitNote,
    CommittedOffset,
    ConsumerBeat,
    ConsumerHeartbeat,
    GroupDescription,
    GroupFault,
    GroupState,
    Heartbeat,
    Joined,
    JoinGroup,
    LeaveGroup,
    Leaving,
    MemberDescription,
    Protocol,
    Sync,
    Synced,
)
from millstream.logcore.cores.group_records import (
    ClassicGroup,
    ClassicMember,
    ClassicMetadata,
    Current,
    Epoch,
    GroupKey,
    GroupRecord,
    GroupValue,
    Kind,
    MemberRecord,
    ReadTopics,
    ShareMemberRecord,
    Target,
)
from millstream.logcore.cores.groups import Groups
from millstream.logcore.cores.subscriptions import Subscription, encode_subscription
from millstream.logcore.cores.transaction_records import Identity
from millstream.logcore.log import Log, open_log
from millstream.logcore.protocol.served_log import ServedGroups

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
TEXTS = st.text(max_size=8)
PLACES = st.frozensets(st.builds(TopicPartition, st.sampled_from(["t", "other"]), st.integers(0, 9)), max_size=5)


def groups_of(log: Log) -> ServedGroups:
    """What serves members, once it does."""
    log.committed_offsets("somebody asks")
    return log.served.groups


def subscription(*topics: str) -> bytes:
    return encode_subscription(Subscription(topics))


def join(log: Log, group: str, name: str, *, instance: str | None = None, session_ms: int = 10_000) -> int:
    """Joins and syncs, alone in the group; gives the generation."""
    asked = JoinGroup(
        group, "", instance, "client", "host", session_ms, 5_000, "consumer",
        (Protocol("range", subscription("t")),), name,
    )  # fmt: skip
    groups = groups_of(log)
    joined = cast(Joined, groups.ask(asked).result(60))
    assert joined.fault is GroupFault.NONE
    synced = groups.ask(Sync(group, joined.generation, name, instance, assignments={name: b"all"})).result(60)
    assert synced.fault is GroupFault.NONE
    return joined.generation


def beat(
    log: Log, name: str, epoch: int, *topics: str, owned: tuple[TopicPartition, ...] | None = None
) -> ConsumerBeat:
    """Of a member of the group "new"."""
    return groups_of(log).beat(
        ConsumerHeartbeat(
            "new", name, epoch, None, "client", "host", 30_000, topics or None, None,
            None if owned is None else frozenset(owned),
        ),
        {"t": 2},
    )  # fmt: skip


def test_members_go_on_after_a_restart_as_if_nothing_had_been(log: Log, folder: Path) -> None:
    generation = join(log, "g", "a", instance="i-a")
    before = groups_of(log).describe("g")
    log.close()
    with open_log(folder) as later:
        assert groups_of(later).describe("g") == before
        assert groups_of(later).ask(Heartbeat("g", generation, "a", "i-a")).result(1).fault is GroupFault.NONE
        assert groups_of(later).commit(CheckCommit("g", generation, "a", "i-a"), {T0: 5}, {}) is GroupFault.NONE
        assert (
            groups_of(later)
            .commit(CheckCommit("g", generation - 1, "a", "i-a"), {T0: 9}, {})
            .value.startswith("illegal")
        )
        again = groups_of(later).ask(Sync("g", generation, "a", "i-a")).result(1)
        assert getattr(again, "assignment", None) == b"all"


def test_members_that_the_coordinator_assigns_to_go_on_after_a_restart(log: Log, folder: Path) -> None:
    joined = beat(log, "a", 0, "t", owned=())
    assert joined.assignment == (T0, T1)
    before = groups_of(log).describe("new")
    log.close()
    with open_log(folder) as later:
        assert groups_of(later).describe("new") == before
        told = beat(later, "a", joined.epoch)
        assert (told.fault, told.epoch) == (GroupFault.NONE, joined.epoch)
        assert told.assignment == (T0, T1), "its last answer may have been lost"
        assert beat(later, "a", joined.epoch).assignment is None
        assert groups_of(later).commit(CheckCommit("new", joined.epoch, "a"), {T0: 5}, {}) is GroupFault.NONE


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
        eventually(lambda: not groups_of(later).describe("g").members)
        assert groups_of(later).describe("g").state is GroupState.EMPTY
        assert join(later, "g", "b") > 1, "generations go on where they were"


def test_a_group_that_was_left_is_empty_after_a_restart_and_gone_once_deleted(log: Log, folder: Path) -> None:
    join(log, "g", "a")
    groups_of(log).ask(LeaveGroup("g", (Leaving("a"),))).result(1)
    log.close()
    with open_log(folder) as later:
        assert groups_of(later).describe("g").state is GroupState.EMPTY
        assert groups_of(later).delete("g") is GroupFault.NONE
    with open_log(folder) as last:
        assert groups_of(last).names() == []


def test_a_member_is_told_nothing_that_the_disk_refused(log: Log) -> None:
    groups = groups_of(log)
    asked = JoinGroup("g", "", None, "c", "h", 10_000, 5_000, "consumer", (Protocol("range", b""),), "a")
    joining = cast(Joined, groups.ask(asked).result(60))
    failpoints.arm("append.write:1:enospc")
    refused = groups.ask(Sync("g", joining.generation, "a", assignments={"a": b"all"})).result(60)
    failpoints.arm("")
    assert refused.fault is not GroupFault.NONE
    again = groups.ask(Sync("g", joining.generation, "a")).result(60)
    assert cast(Synced, again).assignment != b"all"


DAY_MS = 24 * 60 * 60 * 1000
OF_READERS = {T0: CommittedOffset(5, at_ms=DAY_MS), TopicPartition("other", 0): CommittedOffset(6, at_ms=DAY_MS)}


def test_offsets_of_a_group_expire_a_while_after_its_last_member_has_left() -> None:
    empty = GroupDescription("g", GroupState.EMPTY, "consumer")
    for empty_since_ms in (None, 2 * DAY_MS):
        last_used_ms = empty_since_ms or DAY_MS
        assert expired(empty, OF_READERS, empty_since_ms, last_used_ms) == []
        assert set(expired(empty, OF_READERS, empty_since_ms, last_used_ms + 1)) == set(OF_READERS)


def test_members_keep_the_offsets_of_what_they_read_only() -> None:
    member = MemberDescription("m", None, "c", "h", subscription("t"), b"")
    stable = GroupDescription("g", GroupState.STABLE, "consumer", members=(member,))
    assert expired(stable, OF_READERS, None, 9 * DAY_MS) == [TopicPartition("other", 0)]
    for other in (replace(stable, state=GroupState.PREPARING), replace(stable, protocol_type="connect")):
        assert expired(other, OF_READERS, None, 9 * DAY_MS) == [], "nobody knows what these read"


def test_the_notes_of_offsets_survive_a_transaction(log: Log, folder: Path) -> None:
    groups, transactions = groups_of(log), log.serving().transactions
    producer = log.transactional_producer("tx")
    who = Identity("tx", producer.producer_id, producer.epoch)
    noted = {T0: CommitNote("a note", 3)}
    assert transactions.commit_offsets(who, CheckCommit("g"), {T0: 5}, noted, announces=True) is GroupFault.NONE
    assert groups.committed("g") == {}
    transactions.end(who, commit=True)
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
            st.none() | st.builds(
                ClassicMetadata, st.integers(0, 99),
                st.lists(st.builds(Protocol, TEXTS, st.binary(max_size=200)), max_size=3).map(tuple),
            ),
        ),
        st.builds(ShareMemberRecord, TEXTS, TEXTS, st.lists(TEXTS, max_size=3).map(tuple)),
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
        ShareMemberRecord: Kind.SHARE_MEMBER, Target: Kind.TARGET, Current: Kind.CURRENT,
    }  # fmt: skip
    kind = kinds[type(value)]
    assert decode_value(kind, encode_value(value, ids.get), names.get) == value
    key = GroupKey(kind, "g", "m" if kind in (Kind.MEMBER, Kind.SHARE_MEMBER, Kind.TARGET, Kind.CURRENT) else "")
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
