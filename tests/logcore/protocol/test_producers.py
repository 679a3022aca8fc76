"""Transactions of clients that go away, or go on when they should not."""

from __future__ import annotations

import pytest

from millstream.logcore.client import TopicPartition
from millstream.logcore.errors import InvalidTransactionState, ProducerFenced
from millstream.logcore.log import Log
from millstream.logcore.protocol.producers import Producers
from millstream.logcore.records.batch import BatchProducer
from millstream.logcore.records.codec import encode

from ..log_records import rows, values_of

WHERE = TopicPartition("t", 0)


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(log: Log) -> None:
    clock = Clock()
    producers = Producers(log, clock)
    slow = producers.new("slow", 1000)
    slow.announce({WHERE})
    slow.append(WHERE, encode(rows(b"a"), BatchProducer(slow.producer.producer_id, slow.producer.epoch, 0, True)))
    log.append("t", 0, rows(b"b"))
    clock.now_s = 0.9
    producers.end_overdue()
    assert values_of(log, "t") == []
    clock.now_s = 1.1
    producers.end_overdue()
    assert values_of(log, "t") == [b"b"]
    with pytest.raises(ProducerFenced):
        slow.end(commit=True)
    with pytest.raises(ProducerFenced):
        producers.find("slow", slow.producer.producer_id, slow.producer.epoch)


def test_a_producer_without_an_open_transaction_is_left_alone(log: Log) -> None:
    clock = Clock()
    producers = Producers(log, clock)
    idle = producers.new("idle", 1000)
    idle.announce({WHERE})
    idle.end(commit=True)
    clock.now_s = 100
    producers.end_overdue()
    assert producers.find("idle", idle.producer.producer_id, idle.producer.epoch) is idle


def test_a_commit_that_is_asked_twice_happens_once(log: Log) -> None:
    producer = Producers(log).new("q", 1000)
    producer.announce({WHERE})
    producer.append(WHERE, encode(rows(b"a"), BatchProducer(producer.producer.producer_id, 0, 0, True)))
    producer.end(commit=True)
    producer.end(commit=True)
    assert log.offsets("t", 0).log_end_offset == 2
    assert values_of(log, "t") == [b"a"]


def test_what_is_committed_cannot_be_aborted_any_more(log: Log) -> None:
    producer = Producers(log).new("q", 1000)
    producer.announce({WHERE})
    producer.append(WHERE, encode(rows(b"a"), BatchProducer(producer.producer.producer_id, 0, 0, True)))
    producer.end(commit=True)
    for _ in range(2):
        with pytest.raises(InvalidTransactionState, match="is committed"):
            producer.end(commit=False)
    producer.end(commit=True)  # it is, still
    producer.announce({WHERE})
    producer.end(commit=False)
    assert values_of(log, "t") == [b"a"]


def test_an_abort_that_is_asked_twice_is_one_and_is_no_commit(log: Log) -> None:
    producer = Producers(log).new("q", 1000)
    producer.announce({WHERE})
    producer.append(WHERE, encode(rows(b"a"), BatchProducer(producer.producer.producer_id, 0, 0, True)))
    for _ in range(2):
        producer.end(commit=False)
    with pytest.raises(InvalidTransactionState):
        producer.end(commit=True)
    assert values_of(log, "t") == []


@pytest.mark.parametrize("epochs_later", [0, 1])
def test_what_is_no_part_of_the_open_transaction_is_refused_and_leaves_it_to_end(log: Log, epochs_later: int) -> None:
    """A newer epoch in the partition would keep the marker out, and readers behind the transaction for ever."""
    producer = Producers(log).new("q", 1000)
    id = producer.producer.producer_id
    producer.announce({WHERE})
    producer.append(WHERE, encode(rows(b"a"), BatchProducer(id, 0, 0, True)))
    (stranger,) = encode(rows(b"b"), BatchProducer(id, epochs_later, 1 - epochs_later))
    with pytest.raises(InvalidTransactionState, match="no part of it"):
        log.append_batches("t", 0, b"".join(stranger.buffers))
    producer.end(commit=True)
    assert values_of(log, "t") == [b"a"]


def test_partitions_that_were_not_announced_and_batches_of_others_are_refused(log: Log) -> None:
    producer = Producers(log).new("q", 1000)
    batches = encode(rows(b"a"), BatchProducer(producer.producer.producer_id, 0, 0, True))
    with pytest.raises(InvalidTransactionState):
        producer.append(WHERE, batches)
    producer.announce({TopicPartition("t", 1)})
    with pytest.raises(InvalidTransactionState):
        producer.append(WHERE, batches)
    with pytest.raises(ProducerFenced):
        producer.append(TopicPartition("t", 1), encode(rows(b"a"), BatchProducer(77, 0, 0, True)))


def test_a_producer_that_asks_twice_for_its_next_epoch_gets_one(log: Log) -> None:
    producers = Producers(log)
    first = producers.new("q", 1000).producer
    second = producers.after("q", 1000, first.producer_id, first.epoch)
    assert producers.after("q", 1000, first.producer_id, first.epoch) is second
    second.announce({WHERE})
    with pytest.raises(ProducerFenced):
        producers.after("q", 1000, first.producer_id, first.epoch)


def test_producers_that_do_nothing_for_long_are_forgotten(log: Log) -> None:
    clock = Clock()
    producers = Producers(log, clock)
    idle, busy = producers.new("idle", 10**9), producers.new("busy", 10**9)
    clock.now_s = log.expiry.transactional_ids_ms / 1000 + 1
    busy.announce({WHERE})
    producers.end_overdue()
    assert len(producers) == 1
    assert producers.find("busy", busy.producer.producer_id, busy.producer.epoch) is busy
    with pytest.raises(ProducerFenced):
        producers.find("idle", idle.producer.producer_id, idle.producer.epoch)
