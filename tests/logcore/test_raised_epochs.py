"""Transactions whose end raises the producer's epoch (KIP-890): nothing that comes late joins the next one."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from millstream.logcore import failpoints
from millstream.logcore.client import TopicPartition
from millstream.logcore.coordination.transaction_log import decode_entry, encode_entry
from millstream.logcore.cores.group_messages import CommittedOffset
from millstream.logcore.cores.transaction_records import (
    Entry,
    Identity,
    Participant,
    TransactionRecord,
    TransactionState,
)
from millstream.logcore.cores.transaction_steps import (
    Abort,
    Aborted,
    Begin,
    Commit,
    Finished,
    NewProducer,
    OffsetsStep,
    Ready,
    Wrote,
)
from millstream.logcore.cores.transactions import Coordinator
from millstream.logcore.errors import InvalidTransactionState, LogWriteFailed, ProducerFenced
from millstream.logcore.log import Log, open_log
from millstream.logcore.protocol.producers import ClientProducer, Producers
from millstream.logcore.records.batch import BatchProducer
from millstream.logcore.records.codec import encode

from .log_records import rows, values_of

WHERE = TopicPartition("t", 0)
T0 = TopicPartition("t", 0)


def write(producer: ClientProducer, value: bytes, sequence: int = 0, *, epoch: int | None = None) -> None:
    owner = producer.producer
    batches = encode(
        rows(value), BatchProducer(owner.producer_id, owner.epoch if epoch is None else epoch, sequence, True)
    )
    producer.append(WHERE, batches, announces=True)


def end(producers: Producers, producer: ClientProducer, *, commit: bool) -> tuple[int, int]:
    return producers.end_and_raise("tx", producer.producer.producer_id, producer.producer.epoch, commit=commit)


def test_each_transaction_has_an_epoch_of_its_own(log: Log) -> None:
    producers = Producers(log)
    producer = producers.new("tx", 60_000)
    write(producer, b"a")
    assert end(producers, producer, commit=True) == (producer.producer.producer_id, 1)
    write(producer, b"b")
    assert end(producers, producer, commit=False) == (producer.producer.producer_id, 2)
    write(producer, b"c")
    end(producers, producer, commit=True)
    assert values_of(log, "t") == [b"a", b"c"]


def test_a_batch_that_comes_after_the_end_of_its_transaction_is_refused(log: Log) -> None:
    producers = Producers(log)
    producer = producers.new("tx", 60_000)
    write(producer, b"a")
    end(producers, producer, commit=True)
    with pytest.raises(ProducerFenced):
        write(producer, b"late", 1, epoch=0)
    with pytest.raises(ProducerFenced):
        producers.find("tx", producer.producer.producer_id, 0)
    assert log.partition("t", 0).open_transactions() == []


def test_an_abort_of_nothing_keeps_what_is_still_on_its_way_from_opening_a_transaction(log: Log) -> None:
    producers = Producers(log)
    producer = producers.new("tx", 60_000)
    assert end(producers, producer, commit=False)[1] == 1
    with pytest.raises(ProducerFenced):
        write(producer, b"late", epoch=0)


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_that_is_asked_for_twice_is_answered_alike(log: Log, commit: bool) -> None:
    producers = Producers(log)
    producer = producers.new("tx", 60_000)
    write(producer, b"a")
    before = producer.producer.producer_id, producer.producer.epoch
    first = producers.end_and_raise("tx", *before, commit=commit)
    assert producers.end_and_raise("tx", *before, commit=commit) == first
    with pytest.raises((ProducerFenced, InvalidTransactionState)):
        producers.end_and_raise("tx", *before, commit=not commit)
    write(producer, b"b")
    with pytest.raises(ProducerFenced):
        producers.end_and_raise("tx", *before, commit=commit)


def test_a_decided_end_is_known_after_a_crash_of_the_server(log: Log, folder: Path) -> None:
    producers = Producers(log)
    producer = producers.new("tx", 60_000)
    write(producer, b"a")
    before = producer.producer.producer_id, producer.producer.epoch
    after = producers.end_and_raise("tx", *before, commit=True)
    log.close()
    with open_log(folder) as later:
        again = Producers(later)
        again.find("tx", *after)
        assert again.end_and_raise("tx", *before, commit=True) == after
        assert values_of(later, "t") == [b"a"]


def test_producers_without_an_open_transaction_go_on_after_a_proper_restart(log: Log, folder: Path) -> None:
    producers = Producers(log)
    idle, busy, quiet = (producers.new(name, 60_000) for name in ("tx", "busy", "quiet"))
    write(idle, b"a")
    end(producers, idle, commit=True)
    busy.announce({WHERE})
    busy.append(WHERE, encode(rows(b"b"), BatchProducer(busy.producer.producer_id, 0, 0, True)))
    quiet.announce(set())
    quiet.send_offsets("g", {T0: 1}, {})
    log.close()
    with open_log(folder) as later:
        again = Producers(later)
        resumed = again.find("tx", idle.producer.producer_id, idle.producer.epoch)
        write(resumed, b"c")
        end(again, resumed, commit=True)
        assert values_of(later, "t") == [b"a", b"c"]
        for name, fenced in (("busy", busy), ("quiet", quiet)):
            with pytest.raises(ProducerFenced):
                again.find(name, fenced.producer.producer_id, fenced.producer.epoch)


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_that_the_disk_refused_can_be_asked_for_again(log: Log, commit: bool) -> None:
    producers = Producers(log)
    producer = producers.new("tx", 60_000)
    write(producer, b"a")
    before = producer.producer.producer_id, producer.producer.epoch
    failpoints.arm("append.before_sync:1:eio")
    with pytest.raises(LogWriteFailed):
        producers.end_and_raise("tx", *before, commit=commit)
    failpoints.arm("")
    if commit:  # the failed sync took the records: it cannot succeed any more
        with pytest.raises((InvalidTransactionState, ProducerFenced)):
            producers.end_and_raise("tx", *before, commit=True)
    after = producers.end_and_raise("tx", *before, commit=False)
    assert after == (before[0], 1)
    write(producer, b"b")
    end(producers, producer, commit=True)
    assert values_of(log, "t") == [b"b"]


def test_when_epochs_are_used_up_the_producer_gets_another_id() -> None:
    core = Coordinator()
    core.step(NewProducer("other"))
    core.apply(TransactionRecord("tx", 7, 32766, TransactionState.EMPTY))
    identity = Identity("tx", 7, 32766)
    core.step(Begin(identity))
    core.step(Wrote(identity, Participant(WHERE, "id", 0)))
    ready = core.step(Commit(identity, raises_epoch=True))
    assert ready.outcome is not None and ready.identity is not None
    assert (ready.outcome.record.producer_id, ready.outcome.record.epoch) == (7, 32767)
    assert ready.identity.producer_id != 7 and ready.identity.epoch == 0
    assert tuple(map(stored, ready.append)) == ready.append
    core.step(Finished("tx"))
    assert core.step(Commit(identity, raises_epoch=True)).identity == ready.identity
    core.step(Begin(ready.identity))


def test_however_often_ends_are_repeated_and_whenever_the_coordinator_is_replaced_each_outcome_is_one() -> None:
    for seed in range(150):
        Wanderer(seed).run()
        outcomes = Wanderer(seed, remembers_open=True).run()
        assert len(outcomes) == 30, "no transaction is lost with its coordinator"


def test_another_coordinator_goes_on_with_open_transactions_where_they_are_remembered() -> None:
    first, second = Coordinator(remembers_open=True), Coordinator(remembers_open=True)
    ready = first.step(NewProducer("tx"))
    identity = ready.identity
    assert identity is not None
    written = [*ready.append, *first.step(Begin(identity)).append]
    participant = Participant(WHERE, "id", 3)
    written += first.step(Wrote(identity, participant)).append
    assert first.step(Wrote(identity, participant)).append == ()
    written += first.step(OffsetsStep(identity, "g", {T0: CommittedOffset(5)})).append
    for entry in written:
        second.apply(stored(entry))
    assert second.describe() == first.describe()
    assert second.step(Commit(identity, raises_epoch=True)) == first.step(Commit(identity, raises_epoch=True))


def stored(entry: Entry) -> Entry:
    """As it is read again."""
    return decode_entry(*encode_entry(entry, 0))


class Wanderer:
    """A producer whose answers get lost, and a coordinator that is replaced by the fold of its records."""

    def __init__(self, seed: int, *, remembers_open: bool = False) -> None:
        self.random = random.Random(seed)
        self.remembers_open = remembers_open
        self.core = Coordinator(remembers_open=remembers_open)
        self.records: dict[str, Entry] = {}
        self.outcomes: dict[tuple[int, int], bool] = {}
        self.identity = self.new()

    def new(self) -> Identity:
        while True:
            ready = self.core.step(NewProducer("tx"))
            self.carry_out(ready)
            if ready.identity is not None:
                return ready.identity

    def carry_out(self, ready: Ready) -> None:
        for entry in ready.append:
            self.records[getattr(entry, "transactional_id", "")] = entry
        outcome = ready.outcome
        if outcome is None:
            return
        key = (outcome.record.producer_id, outcome.record.participants[0].first_offset)
        assert self.outcomes.setdefault(key, outcome.committed) == outcome.committed
        if self.random.random() < 0.2:
            self.replaced()
        else:
            self.core.step(Finished("tx") if outcome.committed else Aborted("tx"))

    def replaced(self) -> None:
        self.core = Coordinator(remembers_open=self.remembers_open)
        for entry in self.records.values():
            self.core.apply(stored(entry))
        for outcome in (*self.core.unfinished(), *self.core.given_up()):
            key = (outcome.record.producer_id, outcome.record.participants[0].first_offset)
            assert self.outcomes.setdefault(key, outcome.committed) == outcome.committed
            self.core.step(Finished("tx") if outcome.committed else Aborted("tx"))

    def run(self) -> dict[tuple[int, int], bool]:
        for number in range(30):
            try:
                self.transaction(number)
            except (ProducerFenced, InvalidTransactionState):
                assert not self.remembers_open
                self.identity = self.new()
        return self.outcomes

    def transaction(self, number: int) -> None:
        self.core.step(Begin(self.identity))
        self.carry_out(self.core.step(Wrote(self.identity, Participant(WHERE, "id", number))))
        self.carry_out(self.core.step(OffsetsStep(self.identity, "g", {T0: CommittedOffset(number)})))
        if self.remembers_open and self.random.random() < 0.3:
            self.replaced()
        message = self.random.choice([Commit, Commit, Abort])(self.identity, raises_epoch=True)
        answers = {self.ended(message) for _ in range(self.random.choice([1, 1, 2, 3]))}
        (after,) = answers
        assert after is not None and after != self.identity
        self.identity = after

    def ended(self, message: Commit | Abort) -> Identity | None:
        ready = self.core.step(message)
        self.carry_out(ready)
        return ready.identity
