"""Transactions of a log in this process: what readers see, fencing, failures on the way."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from waiting import eventually, without_error

from millstream.logcore import failpoints
from millstream.logcore.client import Offsets, TopicPartition, TransactionalProducer
from millstream.logcore.cluster.cluster_layout import COORDINATOR_CONFIG
from millstream.logcore.errors import InvalidTransactionState, LogClosed, LogFull
from millstream.logcore.log import Log, open_log

from .log_records import NO_ROOM_YET, columnar, crashed_copy, rows, segment_files, values_of

SOURCE = TopicPartition("t", 1)
Seen = tuple[list[bytes | int | None], list[bytes | int | None], Mapping[TopicPartition, int]]
NOTHING: Seen = ([], [], {})


def write_everywhere(producer: TransactionalProducer) -> None:
    """To both partitions and a group."""
    producer.begin()
    producer.append("t", 0, rows(b"a"))
    producer.append("t", 1, rows(b"b"))
    producer.send_offsets("g", {SOURCE: 1})


def seen(log: Log) -> Seen:
    return values_of(log, "t", 0), values_of(log, "t", 1), log.committed_offsets("g")


def test_records_are_seen_after_commit_and_not_before(log: Log) -> None:
    producer: TransactionalProducer = log.transactional_producer("q")
    producer.begin()
    producer.append("t", 0, rows(b"a", b"b"))
    producer.append("t", 1, columnar(1, 2))
    producer.append("t", 0, rows(b"c"))
    producer.send_offsets("g", {SOURCE: 5})
    assert values_of(log, "t") == []
    assert log.committed_offsets("g") == {}
    producer.commit()
    assert values_of(log, "t", 0) == [b"a", b"b", b"c"]
    assert values_of(log, "t", 1) == [1, 2]
    assert log.committed_offsets("g") == {SOURCE: 5}
    assert log.fetch("t", 0, 0).next_offset == 4  # behind the marker
    assert log.offsets("t", 0) == Offsets(0, 4, 4, 4)


def test_interleaved_transactions_are_decided_one_by_one(log: Log) -> None:
    one, two = log.transactional_producer("one"), log.transactional_producer("two")
    one.begin()
    two.begin()
    for i in range(3):
        one.append("t", 0, rows(b"one%d" % i))
        two.append("t", 0, rows(b"two%d" % i))
    two.commit()
    assert values_of(log, "t") == []
    one.abort()
    assert values_of(log, "t") == [b"two0", b"two1", b"two2"]


def test_nobody_sees_a_transaction_that_was_open_when_the_log_ended(log: Log, folder: Path) -> None:
    """It is aborted when its partition is opened again: its producer was in the process that has ended."""
    producer = log.transactional_producer("q")
    producer.begin()
    producer.append("t", 0, rows(b"lost"))
    log.append("t", 0, rows(b"kept"))
    log.close()
    for _ in range(2):
        with open_log(folder) as reopened:
            assert values_of(reopened, "t") == [b"kept"]
    for _ in range(2):
        with open_log(folder) as reopened:
            again = reopened.transactional_producer("q")
            assert again.producer_id == producer.producer_id
            assert reopened.wait({TopicPartition("t", 0): 1}, 60)
            assert values_of(reopened, "t") == [b"kept"]
            offsets = reopened.offsets("t", 0)
            assert offsets.last_stable_offset == offsets.log_end_offset == 3


def test_a_topic_that_is_deleted_during_a_transaction_does_not_keep_it_open(log: Log) -> None:
    producer = log.transactional_producer("q")
    log.create_topic("u", 1)
    producer.begin()
    producer.append("t", 0, rows(b"a"))
    producer.append("u", 0, rows(b"b"))
    log.delete_topic("u")
    producer.commit()
    assert values_of(log, "t") == [b"a"]
    producer.begin()
    producer.append("t", 0, rows(b"c"))
    producer.commit()
    assert values_of(log, "t") == [b"a", b"c"]


@pytest.mark.parametrize("nth", [1, 2, 3, 4])
def test_a_commit_whose_sync_fails_is_whole_when_the_log_is_opened_again(log: Log, folder: Path, nth: int) -> None:
    """Whether what was written fails, the decision, or what follows it in the background: a marker, the offsets."""
    producer = log.transactional_producer("q")
    write_everywhere(producer)
    failpoints.arm(f"replica.before_sync:{nth}:eio")
    committed = False
    with suppress(LogClosed):
        producer.commit()
        committed = True
    eventually(lambda: log.node.failure is not None)
    failpoints.arm("")
    log.close()
    with open_log(folder) as reopened:
        again = reopened.transactional_producer("q")
        before = seen(reopened)
        assert before in (([b"a"], [b"b"], {SOURCE: 1}), NOTHING)
        assert before != NOTHING or not committed
        again.begin()
        again.append("t", 0, rows(b"again"))
        again.send_offsets("g", {SOURCE: 2})
        again.commit()
        assert seen(reopened) == ([*before[0], b"again"], before[1], {SOURCE: 2})


def test_a_commit_for_whose_decision_there_is_no_room_can_be_aborted(log: Log) -> None:
    producer = log.transactional_producer("q")
    write_everywhere(producer)
    failpoints.arm("append.write:1:enospc")
    with pytest.raises(LogFull, match="__transaction_state"):
        producer.commit()
    failpoints.arm("")
    with pytest.raises(InvalidTransactionState):
        producer.begin()
    producer.abort()
    assert seen(log) == NOTHING
    write_everywhere(producer)
    producer.commit()
    assert seen(log) == ([b"a"], [b"b"], {SOURCE: 1})


@pytest.mark.parametrize("write", [2, 3, 4, 5])
def test_a_decided_commit_goes_on_when_there_is_room_again(log: Log, write: int) -> None:
    producer = log.transactional_producer("q")
    write_everywhere(producer)
    failpoints.arm(f"append.write:{write}:enospc")
    with suppress(LogFull):  # it is decided, but not to be seen everywhere yet
        producer.commit()
    eventually(lambda: failpoints.hits("append.write") >= write)
    without_error(lambda: seen(log), NO_ROOM_YET)
    eventually(lambda: seen(log) == ([b"a"], [b"b"], {SOURCE: 1}))


@pytest.mark.parametrize("point", ["txn.after_prepare:1:raise", "txn.marker:1:eio", "txn.marker:2:eio"])
def test_a_decided_commit_that_failed_on_the_way_is_completed_when_the_log_is_opened_again(
    log: Log, folder: Path, point: str
) -> None:
    producer = log.transactional_producer("q")
    write_everywhere(producer)
    failpoints.arm(point)
    with pytest.raises(LogClosed):
        producer.commit()
    failpoints.arm("")
    log.close()
    with open_log(folder) as reopened:
        assert reopened.wait({TopicPartition("t", 0): 0}, 60) and reopened.wait({TopicPartition("t", 1): 0}, 60)
        reopened.transactional_producer("q")  # waits until it is
        assert seen(reopened) == ([b"a"], [b"b"], {SOURCE: 1})


def test_offsets_of_a_completed_transaction_are_not_applied_twice(log: Log, folder: Path) -> None:
    producer = log.transactional_producer("q")
    producer.begin()
    producer.send_offsets("g", {SOURCE: 100})
    producer.commit()
    log.commit_offsets("g", {SOURCE: 200})
    with open_log(crashed_copy(log, folder, folder.with_name("crashed"))) as reopened:
        assert reopened.committed_offsets("g") == {SOURCE: 200}


def test_a_later_open_transaction_is_not_committed_in_place_of_the_prepared_one(log: Log, folder: Path) -> None:
    producer = log.transactional_producer("q")
    producer.begin()
    producer.append("t", 0, rows(b"first"))
    producer.commit()
    producer.begin()
    producer.append("t", 0, rows(b"second"))
    with open_log(crashed_copy(log, folder, folder.with_name("crashed"))) as reopened:
        assert values_of(reopened, "t") == [b"first"]


def test_the_logs_own_topics_are_compacted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = {**COORDINATOR_CONFIG, "segment.bytes": "2000"}
    monkeypatch.setattr("millstream.logcore.cluster.cluster_layout.COORDINATOR_CONFIG", small)
    topics = ("__transaction_state", "__consumer_offsets")
    with open_log(folder, sync="never") as log:
        log.create_topic("t", 1)
        producer = log.transactional_producer("q")
        for i in range(100):
            producer.begin()
            producer.append("t", 0, rows(b"%d" % i))
            producer.send_offsets("g", {TopicPartition("t", 0): i})
            producer.commit()
        before = [sum(path.stat().st_size for path in segment_files(folder, topic)) for topic in topics]
        log.keep_house()
        after = [sum(path.stat().st_size for path in segment_files(folder, topic)) for topic in topics]
        assert all(left * 3 < was for left, was in zip(after, before, strict=True)), (before, after)
    with open_log(folder) as reopened:
        assert reopened.committed_offsets("g") == {TopicPartition("t", 0): 99}
        again = reopened.transactional_producer("q")
        assert (again.producer_id, again.epoch) == (producer.producer_id, producer.epoch + 1)
        assert values_of(reopened, "t") == [b"%d" % i for i in range(100)]
