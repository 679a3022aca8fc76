"""Our own producer, consumer and administrator: the same tests in process and over the network."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from millstream.logcore.client import Admin, Consumer, FetchedColumns, FetchedRows, Producer, TopicPartition
from millstream.logcore.clients.admin import GroupChangeRefused
from millstream.logcore.clients.client_groups import GroupLog
from millstream.logcore.clients.consumer import Distance
from millstream.logcore.clients.membership import MembershipRefused
from millstream.logcore.cores.group_messages import GroupState
from millstream.logcore.errors import InvalidRecords, InvalidTransactionState, OffsetOutOfRange, UnknownTopic
from millstream.logcore.log import Log
from millstream.logcore.murmur2 import partition_of
from millstream.logcore.remote import RemoteLog
from millstream.logcore.server import LogServer

from .log_records import columnar, rows, values_of

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture(params=["in process", "over the network"])
def door(request: pytest.FixtureRequest, log: Log) -> Iterator[GroupLog]:
    if request.param == "in process":
        yield log
        return
    with LogServer(log, port=0) as server, RemoteLog(server.address) as remote:
        yield remote


@pytest.fixture
def consumers(door: GroupLog) -> Iterator[Callable[..., Consumer]]:
    made: list[Consumer] = []

    def make(group: str | None = "g", **settings: Any) -> Consumer:
        quick: dict[str, Any] = {"heartbeat_ms": 50, "session_timeout_ms": 6000, **settings}
        made.append(Consumer(door, group, **quick))
        return made[-1]

    yield make
    for consumer in made:
        consumer.close()


def values(found: Sequence[Any]) -> list[bytes]:
    return [value for consumed in found for value in consumed.table["value"].to_pylist()]


def poll_until(consumers: Sequence[Consumer], done: Callable[[], bool]) -> list[bytes]:
    found: list[bytes] = []
    deadline = time.monotonic() + 60
    while not done() if done.__code__.co_argcount == 0 else not done(found):  # pyrefly: ignore[bad-argument-count]
        assert time.monotonic() < deadline, f"not in time; read {found}"
        for consumer in consumers:
            found += values(consumer.poll(0.02))
    return found


def test_records_go_where_every_client_would_put_them(door: GroupLog, log: Log) -> None:
    with Producer(door) as producer:
        for number in range(50):
            producer.send("t", b"%d" % number, b"key %d" % number, headers=[("h", b"x")], timestamp_ms=5)
    for partition in range(2):
        (run,) = log.fetch("t", partition, 0).runs
        assert isinstance(run, FetchedRows) and run.table["timestamp"].unique().to_pylist() == [5]
        assert {partition_of(key, 2) for key in run.table["key"].to_pylist()} == {partition}
        assert run.table["headers"][0].as_py() == [{"key": "h", "value": b"x"}]


def test_without_keys_the_partitions_take_turns(door: GroupLog, log: Log) -> None:
    producer = Producer(door)
    for number in range(4):
        producer.send("t", b"%d" % number)
    assert producer.flush() == {T0: 0, T1: 0}
    assert (values_of(log, "t", 0), values_of(log, "t", 1)) == ([b"0", b"2"], [b"1", b"3"])


def test_arrow_goes_in_and_comes_out(door: GroupLog, consumers: Callable[..., Consumer]) -> None:
    producer = Producer(door)
    table = pa.table({"key": [f"k{n}" for n in range(100)], "value": [f"v{n}" for n in range(100)]})
    producer.send_table("t", table)
    with pytest.raises(InvalidRecords, match="needs a column"):
        producer.send_table("t", table.drop(["value"]))
    batch = pa.record_batch({"x": [1, 2, 3]})
    producer.send_columns("t", batch, 9, partition=0)
    consumer = consumers(None)
    consumer.assign([T0, T1])
    found = consumer.poll(5)
    while sum(consumed.table.num_rows for consumed in found) < 103:
        found += consumer.poll(5)
    columns = [consumed for consumed in found if isinstance(consumed.run, FetchedColumns)]
    assert [consumed.table for consumed in columns] == [pa.Table.from_batches([batch])]
    assert sorted(values([consumed for consumed in found if consumed not in columns])) == sorted(
        value.encode() for value in table["value"].to_pylist()
    )


def fail_after_sending(producer: Producer) -> None:
    producer.send("t", b"b", partition=0)
    producer.flush()
    raise ZeroDivisionError


def test_a_transaction_is_seen_as_a_whole_or_not_at_all(door: GroupLog, log: Log) -> None:
    producer = Producer(door, "tx")
    with producer.transaction():
        producer.send("t", b"a", partition=0)
        producer.send_offsets("g", {T1: 7})
        producer.flush()
        assert values_of(log, "t") == []
    with pytest.raises(ZeroDivisionError), producer.transaction():
        fail_after_sending(producer)
    assert values_of(log, "t") == [b"a"] and log.committed_offsets("g") == {T1: 7}
    with pytest.raises(InvalidTransactionState, match="in transactions only"):
        producer.send("t", b"c")
    with pytest.raises(InvalidTransactionState, match="no transactional id"):
        Producer(door).begin()


def test_a_consumer_starts_where_its_group_committed_or_as_it_is_told(
    door: GroupLog, log: Log, consumers: Callable[..., Consumer]
) -> None:
    log.append("t", 0, rows(b"a", b"b", b"c"))
    log.commit_offsets("g", {T0: 2})
    for settings, given, expected in [
        ({"group": "g"}, None, [b"c"]),
        ({"group": "new"}, None, [b"a", b"b", b"c"]),
        ({"group": "new", "reset": "latest"}, None, []),
        ({"group": "g"}, 1, [b"b", b"c"]),
    ]:
        consumer = consumers(**settings)
        consumer.assign({T0: given})
        assert values(consumer.poll(0)) == expected
    with pytest.raises(OffsetOutOfRange, match="no position"):
        consumers("new", reset="error").assign([T0])


def test_positions_move_by_offset_and_by_time(door: GroupLog, log: Log, consumers: Callable[..., Consumer]) -> None:
    for timestamp in (10, 20, 30):
        log.append("t", 0, rows(b"at %d" % timestamp, timestamp=timestamp))
    consumer = consumers(None)
    consumer.assign([T0])
    consumer.seek_to_time(T0, 11)
    assert (consumer.position(T0), values(consumer.poll(0))) == (1, [b"at 20", b"at 30"])
    consumer.seek_to_time(T0, 31)
    assert consumer.position(T0) == 3
    consumer.seek(T0, 2)
    assert consumer.distance() == {T0: Distance(lag=1, lead=2)}
    consumer.seek_to_beginning()
    assert consumer.position(T0) == 0
    consumer.seek_to_end()
    assert consumer.distance() == {T0: Distance(lag=0, lead=3)}
    with pytest.raises(UnknownTopic, match="not assigned"):
        consumer.seek(T1, 0)


def test_a_paused_partition_is_not_read(door: GroupLog, log: Log, consumers: Callable[..., Consumer]) -> None:
    log.append("t", 0, rows(b"a"))
    log.append("t", 1, rows(b"b"))
    consumer = consumers(None)
    consumer.assign([T0, T1])
    consumer.pause(T0)
    assert values(consumer.poll(0)) == [b"b"]
    consumer.resume(T0)
    assert values(consumer.poll(0)) == [b"a"]


def test_members_share_the_partitions_and_take_over_what_others_leave(
    door: GroupLog, log: Log, consumers: Callable[..., Consumer]
) -> None:
    log.create_topic("shared", 4)
    members = [consumers() for _ in range(3)]
    for member in members:
        member.subscribe("shared")
    poll_until(members, lambda: sorted(len(member.assignment) for member in members) == [1, 1, 2])
    for partition in range(4):
        log.append("shared", partition, rows(b"%d" % partition))
    found = poll_until(members, lambda found: len(found) == 4)  # pyrefly: ignore[bad-argument-type]
    assert sorted(found) == [b"0", b"1", b"2", b"3"]
    members[0].close()
    poll_until(members[1:], lambda: [len(member.assignment) for member in members[1:]] == [2, 2])
    assert len(log.committed_offsets("g")) >= 1  # what the one that left had read
    for partition in range(4):
        log.append("shared", partition, rows(b"later %d" % partition))
    assert len({*poll_until(members[1:], lambda found: len({*found}) >= 4)}) >= 4  # pyrefly: ignore[bad-argument-type]


def test_members_keep_reading_what_they_keep(door: GroupLog, log: Log, consumers: Callable[..., Consumer]) -> None:
    log.create_topic("shared", 4)
    taken: list[TopicPartition] = []
    first = consumers(on_revoked=taken.extend)
    first.subscribe("shared")
    poll_until([first], lambda: len(first.assignment) == 4)
    second = consumers()
    second.subscribe("shared")
    poll_until([first, second], lambda: (len(first.assignment), len(second.assignment)) == (2, 2))
    assert len(taken) == 2 and not first.assignment & set(taken)


def test_a_range_group_gives_all_away_and_shares_it_out_anew(
    door: GroupLog, log: Log, consumers: Callable[..., Consumer]
) -> None:
    log.create_topic("shared", 4)
    members = [consumers(assignor="range") for _ in range(2)]
    for member in members:
        member.subscribe(["shared"])
    poll_until(members, lambda: [len(member.assignment) for member in members] == [2, 2])
    numbers = sorted([sorted(partition.partition for partition in member.assignment) for member in members])
    assert numbers == [[0, 1], [2, 3]]


def test_a_topic_that_comes_or_grows_later_is_shared_too(
    door: GroupLog, log: Log, consumers: Callable[..., Consumer]
) -> None:
    consumer = consumers()
    consumer.subscribe("late")
    assert consumer.poll(0.1) == []
    log.create_topic("late", 1)
    poll_until([consumer], lambda: len(consumer.assignment) == 1)
    log.add_partitions("late", 3)
    poll_until([consumer], lambda: len(consumer.assignment) == 3)


def test_who_was_left_behind_cannot_commit(door: GroupLog, log: Log, consumers: Callable[..., Consumer]) -> None:
    log.append("t", 0, rows(b"a"))
    stale, fresh = consumers("g", commit_every_ms=None), consumers("g", commit_every_ms=None, instance_id="b")
    stale.subscribe("t")
    poll_until([stale], lambda: len(stale.assignment) == 2)
    stale._membership.leave()  # pyrefly: ignore[missing-attribute]
    fresh.subscribe("t")
    poll_until([fresh], lambda: len(fresh.assignment) == 2)
    with pytest.raises(MembershipRefused, match="unknown member id"):
        stale.commit({T0: 1})
    fresh.commit({T0: 1})
    assert log.committed_offsets("g") == {T0: 1}


def test_topics_are_administered(door: GroupLog) -> None:
    admin = Admin(door)
    admin.create_topic("u", 2, {"segment.bytes": "4096"})
    admin.set_config("u", {"retention.ms": "1000", "segment.bytes": None})
    admin.add_partitions("u", 3)
    topic = admin.topic("u")
    assert (topic.partition_count, dict(topic.config)) == (3, {"retention.ms": "1000"})
    Producer(door).send_table("u", pa.table({"value": ["a", "b", "c"]}), partition=0)
    assert admin.delete_records(TopicPartition("u", 0), 2) == 2
    assert values_of(door, "u", 0, 2) == [b"c"]
    admin.delete_topic("u")
    with pytest.raises(UnknownTopic):
        admin.topic("u")


def test_groups_are_seen_moved_and_deleted(door: GroupLog, log: Log, consumers: Callable[..., Consumer]) -> None:
    admin = Admin(door)
    log.append("t", 0, rows(b"a", b"b", b"c", timestamp=10))
    consumer = consumers()
    consumer.subscribe("t")
    poll_until([consumer], lambda found: len(found) == 3)  # pyrefly: ignore[bad-argument-type]
    consumer.commit()
    described = admin.group("g")
    assert (described.state, len(described.members)) == (GroupState.STABLE, 1)
    first, second = admin.positions("g")
    assert (first.committed_offset, first.lag, first.lead) == (3, 0, 3)
    assert first.member_id == second.member_id == described.members[0].member_id
    with pytest.raises(GroupChangeRefused, match="while it has members"):
        admin.reset_offsets("g", "t", "earliest")
    consumer.close()
    assert admin.reset_offsets("g", "t", 1) == {T0: 1, T1: 0}
    assert admin.reset_offsets("g", "t", 11, by_time=True) == {T0: 3, T1: 0}
    assert admin.reset_offsets("g", "t", "earliest") == {T0: 0, T1: 0}
    assert [group.group for group in admin.groups()] == ["g"]
    admin.delete_group("g")
    assert admin.groups() == [] and log.committed_offsets("g") == {}
    with pytest.raises(GroupChangeRefused, match="does not exist"):
        admin.group("g")


def test_columnar_batches_are_cut_where_a_consumer_seeks(
    door: GroupLog, log: Log, consumers: Callable[..., Consumer]
) -> None:
    log.append("t", 0, columnar(*range(10)))
    consumer = consumers(None)
    consumer.assign({T0: 4})
    (consumed,) = consumer.poll(0)
    assert consumed.table["x"].to_pylist() == list(range(4, 10))
