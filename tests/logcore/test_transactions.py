"""Transactions of a log in this process: what readers see, fencing, failures on the way."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from millstream.errors import LogError
from millstream.logcore import failpoints
from millstream.logcore.client import Offsets, TopicPartition, TransactionalProducer
from millstream.logcore.errors import InvalidTransactionState, LogFull, LogWriteFailed, ProducerFenced, UnknownTopic
from millstream.logcore.failpoints import FailpointHit
from millstream.logcore.log import Log, open_log

from .log_records import columnar, rows, values_of

SOURCE = TopicPartition("src", 0)


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


def test_the_last_stable_offset_waits_for_undecided_transactions(log: Log) -> None:
    producer = log.transactional_producer("q")
    log.append("t", 0, rows(b"before"))
    producer.begin()
    producer.append("t", 0, rows(b"open"))
    log.append("t", 0, rows(b"after"))
    offsets = log.offsets("t", 0)
    assert (offsets.last_stable_offset, offsets.high_watermark) == (1, 3)
    assert values_of(log, "t") == [b"before"]
    assert not log.wait({TopicPartition("t", 0): 1}, 0)
    assert values_of(log, "t", isolation="read_uncommitted") == [b"before", b"open", b"after"]
    producer.commit()
    assert log.wait({TopicPartition("t", 0): 1}, 0)
    assert values_of(log, "t") == [b"before", b"open", b"after"]


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


def test_a_new_producer_fences_the_old_one_and_aborts_what_it_left_open(log: Log) -> None:
    old = log.transactional_producer("q")
    old.begin()
    old.append("t", 0, rows(b"zombie"))
    new = log.transactional_producer("q")
    assert (new.producer_id, new.epoch) == (old.producer_id, old.epoch + 1)
    for call in (old.begin, old.commit, old.abort, lambda: old.append("t", 1, rows(b"x"))):
        with pytest.raises(ProducerFenced):
            call()
    with pytest.raises(ProducerFenced):
        old.send_offsets("g", {SOURCE: 1})
    new.begin()
    new.append("t", 0, rows(b"fresh"))
    new.commit()
    assert values_of(log, "t") == [b"fresh"]


def test_calls_that_do_not_fit_are_refused(log: Log) -> None:
    producer = log.transactional_producer("q")
    for call in (producer.commit, lambda: producer.append("t", 0, rows(b"x"))):
        with pytest.raises(InvalidTransactionState):
            call()
    producer.abort()  # there is nothing to drop
    producer.begin()
    with pytest.raises(InvalidTransactionState):
        producer.begin()
    with pytest.raises(UnknownTopic):
        producer.append("nothing", 0, rows(b"x"))
    producer.commit()


def test_an_open_transaction_is_aborted_when_the_log_is_opened_again(log: Log, folder: Path) -> None:
    producer = log.transactional_producer("q")
    producer.begin()
    producer.append("t", 0, rows(b"lost"))
    log.append("t", 0, rows(b"kept"))
    log.close()
    for _ in range(2):
        with open_log(folder) as reopened:
            assert values_of(reopened, "t") == [b"kept"]
            offsets = reopened.offsets("t", 0)
            assert offsets.last_stable_offset == offsets.log_end_offset == 3
            again = reopened.transactional_producer("q")
            assert again.producer_id == producer.producer_id


def test_a_topic_that_is_deleted_during_a_transaction_aborts_it(log: Log) -> None:
    producer = log.transactional_producer("q")
    log.create_topic("u", 1)
    producer.begin()
    producer.append("t", 0, rows(b"a"))
    producer.append("u", 0, rows(b"b"))
    log.delete_topic("u")
    with pytest.raises(UnknownTopic):
        producer.commit()
    assert values_of(log, "t") == []
    producer.begin()
    producer.append("t", 0, rows(b"c"))
    producer.commit()
    assert values_of(log, "t") == [b"c"]


@pytest.mark.parametrize("failure", ["append.before_sync:{nth}:eio", "append.before_sync:{nth}:enospc"])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_commit_whose_sync_fails_is_an_abort(log: Log, folder: Path, failure: str, nth: int) -> None:
    producer = log.transactional_producer("q")
    producer.begin()
    producer.append("t", 0, rows(b"a"))
    producer.append("t", 1, rows(b"b"))
    producer.send_offsets("g", {SOURCE: 1})
    failpoints.arm(failure.format(nth=nth))
    with pytest.raises((LogWriteFailed, LogFull)):
        producer.commit()
    failpoints.arm("")
    producer.abort()
    assert values_of(log, "t", 0) + values_of(log, "t", 1) == []
    producer.begin()
    producer.append("t", 0, rows(b"again"))
    producer.send_offsets("g", {SOURCE: 2})
    producer.commit()
    crashed = folder.with_name("crashed")
    shutil.copytree(folder, crashed)
    for opened in (log, open_log(crashed)):
        assert values_of(opened, "t", 0) + values_of(opened, "t", 1) == [b"again"]
        assert opened.committed_offsets("g") == {SOURCE: 2}
    opened.close()


@pytest.mark.parametrize("point", ["txn.after_prepare:1:raise", "txn.marker:2:eio"])
def test_a_decided_commit_that_failed_on_the_way_is_completed_by_the_next_producer(log: Log, point: str) -> None:
    producer = log.transactional_producer("q")
    producer.begin()
    producer.append("t", 0, rows(b"a"))
    producer.append("t", 1, rows(b"b"))
    producer.send_offsets("g", {SOURCE: 1})
    failpoints.arm(point)
    with pytest.raises((FailpointHit, OSError)):
        producer.commit()
    failpoints.arm("")
    with pytest.raises(InvalidTransactionState):
        producer.begin()
    log.transactional_producer("q")
    assert values_of(log, "t", 0) + values_of(log, "t", 1) == [b"a", b"b"]
    assert log.committed_offsets("g") == {SOURCE: 1}


def test_markers_that_a_failed_sync_took_away_are_written_again(log: Log) -> None:
    producer = log.transactional_producer("q")
    producer.begin()
    producer.append("t", 0, rows(b"a"))
    producer.commit()  # the marker is visible, but not synced
    assert log.offsets("t", 0).high_watermark == 2
    failpoints.arm("append.before_sync:1:eio")
    with pytest.raises(LogError):
        log.append("t", 0, rows(b"refused"))
    assert log.offsets("t", 0) == Offsets(0, 2, 2, 2)
    assert values_of(log, "t") == [b"a"]
    assert log.append("t", 0, rows(b"b")) == 2


def test_offsets_of_a_completed_transaction_are_not_applied_twice(log: Log, folder: Path) -> None:
    producer = log.transactional_producer("q")
    producer.begin()
    producer.send_offsets("g", {SOURCE: 100})
    producer.commit()
    log.commit_offsets("g", {SOURCE: 200})
    crashed = folder.with_name("crashed")
    shutil.copytree(folder, crashed)  # the transaction log still says: prepared
    with open_log(crashed) as reopened:
        assert reopened.committed_offsets("g") == {SOURCE: 200}


def test_a_later_open_transaction_is_not_committed_in_place_of_the_prepared_one(log: Log, folder: Path) -> None:
    producer = log.transactional_producer("q")
    producer.begin()
    producer.append("t", 0, rows(b"first"))
    producer.commit()
    producer.begin()
    producer.append("t", 0, rows(b"second"))
    crashed = folder.with_name("crashed")
    shutil.copytree(folder, crashed)
    with open_log(crashed) as reopened:
        assert values_of(reopened, "t") == [b"first"]


def test_the_epoch_starts_afresh_under_a_new_producer_id_when_it_is_used_up(log: Log) -> None:
    first = log.transactional_producer("q")
    log._coordinator._core._known["q"].record = log._coordinator._core._known["q"].record.__class__(
        "q", first.producer_id, 32766, log._coordinator._core._known["q"].record.state
    )
    second = log.transactional_producer("q")
    assert second.producer_id != first.producer_id
    assert second.epoch == 0


def test_the_logs_own_topics_are_compacted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.logcore.coordination.state_log._COMPACT_BYTES", 2000)
    with open_log(folder, sync="never") as log:
        log.create_topic("t", 1)
        producer = log.transactional_producer("q")
        for i in range(100):
            producer.begin()
            producer.append("t", 0, rows(b"%d" % i))
            producer.send_offsets("g", {SOURCE: i})
            producer.commit()
        for topic in ("__transaction_state", "__consumer_offsets"):
            assert log.offsets(topic, 0).log_start_offset > 50
            assert sum(path.stat().st_size for path in (folder / f"{topic}-0").glob("*.log")) < 8000
    with open_log(folder) as reopened:
        assert reopened.committed_offsets("g") == {SOURCE: 99}
        assert reopened.transactional_producer("q").epoch == 1
        assert values_of(reopened, "t") == [b"%d" % i for i in range(100)]
