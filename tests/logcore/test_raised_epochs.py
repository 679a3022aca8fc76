"""Transactions whose end raises the producer's epoch (KIP-890): nothing that comes late joins the next one."""

from __future__ import annotations

import random

import pytest

from millstream.logcore import failpoints
from millstream.logcore.client import TopicPartition
from millstream.logcore.coordination.transaction_log import decode_entry, encode_entry
from millstream.logcore.cores.group_messages import CommittedOffset
from millstream.logcore.cores.transaction_records import (
    Entry,
    Identity,
    Participant,
    ProducerIdRange,
    TransactionRecord,
    TransactionState,
)
from millstream.logcore.cores.transaction_steps import (
    Abort,
    Aborted,
    Commit,
    Finished,
    Include,
    NewProducer,
    OffsetsStep,
    Outcome,
    Ready,
)
from millstream.logcore.cores.transactions import Coordinator
from millstream.logcore.error_codes import ErrorCode
from millstream.logcore.errors import NotNow, ProducerFenced
from millstream.logcore.log import Log

from .log_records import values_of
from .transaction_client import TransactionClient

WHERE = TopicPartition("t", 0)
T0 = TopicPartition("t", 0)


@pytest.fixture
def client(log: Log) -> TransactionClient:
    return TransactionClient(log)


def test_each_transaction_has_an_epoch_of_its_own(client: TransactionClient) -> None:
    who = client.who
    for epoch, (value, commit) in enumerate([(b"a", True), (b"b", False), (b"c", True)], who.epoch + 1):
        client.write(value)
        client.end_and_raise(commit=commit)
        assert client.who == who._replace(epoch=epoch)
    assert values_of(client.log, "t") == [b"a", b"c"]


def test_a_batch_that_comes_after_the_end_of_its_transaction_is_refused(client: TransactionClient) -> None:
    client.write(b"a")
    before = client.end_and_raise(commit=True)
    with pytest.raises(ProducerFenced):
        client.write(b"late", by=before)
    with pytest.raises(NotNow, match="was replaced"):
        client.transactions.add_partitions(before, frozenset({WHERE}))
    assert client.log.served.partition("t", 0).open_transactions() == []


def test_an_abort_of_nothing_keeps_what_is_still_on_its_way_from_opening_a_transaction(
    client: TransactionClient,
) -> None:
    before = client.end_and_raise(commit=False)
    assert client.who == before._replace(epoch=before.epoch + 1)
    with pytest.raises(ProducerFenced):
        client.write(b"late", by=before)


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_that_is_asked_for_twice_is_answered_alike(client: TransactionClient, commit: bool) -> None:
    client.write(b"a")
    before = client.end_and_raise(commit=commit)
    again = client.transactions.end_and_raise
    assert again(before, commit=commit) == client.who
    with pytest.raises(NotNow) as refused:
        again(before, commit=not commit)
    assert refused.value.problem in (ErrorCode.invalid_producer_epoch, ErrorCode.invalid_txn_state)
    client.write(b"b")
    with pytest.raises(NotNow):
        again(before, commit=commit)


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_that_the_disk_refused_can_be_asked_for_again(client: TransactionClient, commit: bool) -> None:
    client.write(b"a")
    before = client.who
    failpoints.arm("append.write:1:enospc")
    with pytest.raises(NotNow):
        client.end_and_raise(commit=commit)
    failpoints.arm("")
    client.connect(client.log)  # the coordinator reads its log again
    client.end_and_raise(commit=commit)
    assert client.who == before._replace(epoch=before.epoch + 1)
    client.write(b"b")
    client.end_and_raise(commit=True)
    assert values_of(client.log, "t") == ([b"a", b"b"] if commit else [b"b"])


def coordinator() -> Coordinator:
    core = Coordinator()
    core.take_ids(0, 1000)
    return core


def test_when_epochs_are_used_up_the_producer_gets_another_id() -> None:
    core = coordinator()
    core.apply(TransactionRecord("tx", 7, 32766, TransactionState.EMPTY))
    identity = Identity("tx", 7, 32766)
    core.step(Include(identity, (written(0),)))
    ready = core.step(Commit(identity, raises_epoch=True))
    assert ready.outcome is not None and ready.identity is not None
    assert (ready.outcome.record.producer_id, ready.outcome.record.epoch) == (7, 32767)
    assert ready.identity.producer_id != 7 and ready.identity.epoch == 0
    assert tuple(map(stored, ready.append)) == ready.append
    core.step(Finished("tx"))
    assert core.step(Commit(identity, raises_epoch=True)).identity == ready.identity
    core.step(Include(ready.identity))


def test_however_often_ends_are_repeated_and_whenever_the_coordinator_is_replaced_each_outcome_is_one() -> None:
    for seed in range(150):
        outcomes = Wanderer(seed).run()
        assert len(outcomes) == 30, "no transaction is lost with its coordinator"


def test_another_coordinator_goes_on_with_open_transactions() -> None:
    first, second = coordinator(), coordinator()
    ready = first.step(NewProducer("tx"))
    identity = ready.identity
    assert identity is not None
    entries = [*ready.append, *first.step(Include(identity, (written(3),))).append]
    entries += first.step(OffsetsStep(identity, "g", {T0: CommittedOffset(5)})).append
    for entry in entries:
        second.apply(stored(entry))
    assert second.standings() == first.standings()
    assert second.step(Commit(identity, raises_epoch=True)) == first.step(Commit(identity, raises_epoch=True))


def written(offset: int) -> Participant:
    return Participant(WHERE, "id", offset)


def stored(entry: Entry) -> Entry:
    """As it is read again."""
    read = decode_entry(*encode_entry(entry, 0))
    assert not isinstance(read, ProducerIdRange)
    return read


class Wanderer:
    """A producer whose answers get lost, and a coordinator that is replaced by the fold of its records."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.core = coordinator()
        self.records: dict[str, Entry] = {}
        self.outcomes: dict[tuple[int, int], bool] = {}
        ready = self.core.step(NewProducer("tx"))
        assert ready.identity is not None
        self.identity = ready.identity
        self.carry_out(ready)

    def carry_out(self, ready: Ready) -> None:
        for entry in ready.append:
            self.records[entry.transactional_id] = entry
        if ready.outcome is None:
            return
        self.note(ready.outcome)
        if self.random.random() < 0.2:
            self.replaced()
        else:
            self.end(ready.outcome)

    def note(self, outcome: Outcome) -> None:
        key = (outcome.record.producer_id, outcome.record.participants[0].first_offset)
        assert self.outcomes.setdefault(key, outcome.committed) == outcome.committed

    def end(self, outcome: Outcome) -> None:
        self.carry_out(self.core.step(Finished("tx") if outcome.committed else Aborted("tx")))

    def replaced(self) -> None:
        self.core = coordinator()
        for entry in self.records.values():
            self.core.apply(stored(entry))
        for outcome in (*self.core.unfinished(), *self.core.given_up()):
            self.note(outcome)
            self.end(outcome)

    def run(self) -> dict[tuple[int, int], bool]:
        for number in range(30):
            self.transaction(number)
        return self.outcomes

    def transaction(self, number: int) -> None:
        self.carry_out(self.core.step(Include(self.identity, (written(number),))))
        self.carry_out(self.core.step(OffsetsStep(self.identity, "g", {T0: CommittedOffset(number)})))
        if self.random.random() < 0.3:
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
