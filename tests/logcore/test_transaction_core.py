"""The transaction coordinator by itself: messages in, decisions out."""

from __future__ import annotations

import pytest

from millstream.logcore.client import TopicPartition
from millstream.logcore.coordination.transaction_log import decode_entry, encode_entry
from millstream.logcore.cores.group_messages import CommittedOffset
from millstream.logcore.cores.transaction_records import (
    Identity,
    Participant,
    ProducerIdRange,
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
    Unprepared,
    Wrote,
)
from millstream.logcore.cores.transactions import Coordinator
from millstream.logcore.errors import InvalidTransactionState, ProducerFenced

FIRST = Participant(TopicPartition("t", 0), "id", 3)
SECOND = Participant(TopicPartition("t", 1), "id", 4)
OFFSETS = {TopicPartition("src", 0): CommittedOffset(5)}


def producer_of(core: Coordinator) -> Identity:
    identity = core.step(NewProducer("q")).identity
    assert identity is not None
    return identity


def prepared(core: Coordinator, identity: Identity, *participants: Participant) -> Ready:
    core.step(Begin(identity))
    for participant in participants:
        core.step(Wrote(identity, participant))
    core.step(OffsetsStep(identity, "g", OFFSETS))
    return core.step(Commit(identity))


def test_the_first_producer_takes_an_id_from_a_block_that_is_durable_first() -> None:
    ready = Coordinator().step(NewProducer("q"))
    assert ready.identity == Identity("q", 0, 0)
    assert [type(entry) for entry in ready.append] == [ProducerIdRange, TransactionRecord]


def test_a_commit_syncs_its_data_then_prepares_then_tells_the_outcome() -> None:
    core = Coordinator()
    ready = prepared(core, producer_of(core), FIRST, SECOND)
    assert ready.sync == (FIRST, SECOND)
    (entry,) = ready.append
    assert isinstance(entry, TransactionRecord)
    assert (entry.state, entry.participants, entry.offsets) == (
        TransactionState.PREPARE_COMMIT,
        (FIRST, SECOND),
        {"g": OFFSETS},
    )
    assert ready.outcome is not None
    assert ready.outcome.committed


def test_a_commit_also_syncs_the_markers_and_offsets_of_the_one_before() -> None:
    core = Coordinator()
    identity = producer_of(core)
    assert not prepared(core, identity, FIRST).sync_offsets
    core.step(Finished("q"))
    ready = prepared(core, identity, SECOND)
    assert set(ready.sync) == {FIRST, SECOND}
    assert ready.sync_offsets


def test_a_commit_that_was_not_prepared_is_an_abort() -> None:
    core = Coordinator()
    identity = producer_of(core)
    prepared(core, identity, FIRST)
    outcome = core.step(Unprepared("q")).outcome
    assert outcome is not None
    assert not outcome.committed
    assert outcome.record.participants == (FIRST,)
    assert core.step(Abort(identity)).outcome == outcome, "it is asked for until it is carried out"
    core.step(Aborted("q"))
    assert core.step(Abort(identity)) == Ready()
    core.step(Begin(identity))


def test_a_prepared_transaction_is_completed_before_a_new_producer_is_let_in() -> None:
    core = Coordinator()
    identity = producer_of(core)
    prepared(core, identity, FIRST)
    with pytest.raises(InvalidTransactionState):
        core.step(Begin(identity))
    ready = core.step(NewProducer("q"))
    assert ready.identity is None
    assert ready.outcome is not None
    assert ready.outcome.committed
    core.step(Finished("q"))
    ready = core.step(NewProducer("q"))
    assert ready.identity == identity._replace(epoch=1)
    assert ready.sync == (FIRST,)
    assert ready.sync_offsets


def test_a_new_producer_aborts_under_its_own_epoch_and_fences_the_old_one() -> None:
    core = Coordinator()
    old = producer_of(core)
    core.step(Begin(old))
    core.step(Wrote(old, FIRST))
    ready = core.step(NewProducer("q"))
    assert ready.outcome is not None
    assert (ready.outcome.committed, ready.outcome.record.epoch) == (False, 1)
    with pytest.raises(ProducerFenced):
        core.step(Commit(old))


def test_after_a_replay_prepared_transactions_are_unfinished_and_producer_ids_are_not_given_twice() -> None:
    core, again = Coordinator(), Coordinator()
    entries = core.step(NewProducer("q")).append
    entries += prepared(core, Identity("q", 0, 0), FIRST).append
    for entry in entries:
        again.apply(decode_entry(*encode_entry(entry, 0)))
    (outcome,) = again.unfinished()
    assert outcome.record == entries[-1]
    again.step(Finished("q"))
    (completed,) = again.completed()
    assert isinstance(completed, TransactionRecord)
    assert (completed.state, completed.participants) == (TransactionState.COMPLETE_COMMIT, ())
    other = again.step(NewProducer("other")).identity
    assert other is not None
    assert other.producer_id >= 1000


def test_what_is_forgotten_is_so_in_the_fold_too() -> None:
    core, again = Coordinator(), Coordinator()
    for entry in core.step(NewProducer("q")).append:
        again.apply(decode_entry(*encode_entry(entry, 0)))
    (gone,) = core.forget("q")
    again.apply(decode_entry(*encode_entry(gone, 0)))
    assert again.describe() == core.describe() == []


def test_each_transaction_that_ends_has_the_next_number() -> None:
    core = Coordinator()
    identity = producer_of(core)
    first = core.number_of("q")
    for nth in (1, 2, 3):
        (entry,) = prepared(core, identity, FIRST).append
        assert isinstance(entry, TransactionRecord)
        core.step(Finished("q"))
        assert entry.number == core.number_of("q") == first + nth


def test_what_is_told_of_a_transaction_follows_it_from_beginning_to_end() -> None:
    core = Coordinator()
    identity = producer_of(core)

    def told() -> tuple[TransactionState, tuple[TopicPartition, ...], int, bool]:
        (described,) = core.describe()
        waits = len(core.unsettled_offsets("g"))
        return described.state, described.partitions, waits, core.is_over("q")

    assert told() == (TransactionState.EMPTY, (), 0, True)
    core.step(Begin(identity))
    core.step(Wrote(identity, FIRST))
    core.step(OffsetsStep(identity, "g", OFFSETS))
    assert told() == (TransactionState.ONGOING, (FIRST.partition,), 1, False)
    assert core.forget("q") == () and not core.has(identity) and not core.has_committed(identity)
    core.step(Commit(identity))
    assert told() == (TransactionState.PREPARE_COMMIT, (FIRST.partition,), 1, False)
    assert core.forget("q") == () and not core.has(identity) and core.has_committed(identity)
    core.step(Finished("q"))
    assert told() == (TransactionState.COMPLETE_COMMIT, (), 0, False)
    assert core.has(identity) and core.has_committed(identity)
    assert core.forget("q") == (), "its markers may not be durable yet"
    (entry,) = core.completed()
    assert entry.state is TransactionState.COMPLETE_COMMIT and core.is_over("q") and core.completed() == ()
    assert core.forget("q") and not core.has(identity) and not core.knows_somebody
