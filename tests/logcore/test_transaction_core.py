"""The transaction coordinator by itself: messages in, decisions out."""

from __future__ import annotations

import pytest

from millstream.logcore.client import TopicPartition
from millstream.logcore.coordination.transaction_log import decode_entry, encode_entry
from millstream.logcore.cores.group_messages import CommittedOffset
from millstream.logcore.cores.transaction_records import (
    UNWRITTEN,
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
    Ready,
)
from millstream.logcore.cores.transactions import Coordinator
from millstream.logcore.errors import InvalidTransactionState, ProducerFenced

FIRST = Participant(TopicPartition("t", 0), "id", UNWRITTEN)
SECOND = Participant(TopicPartition("t", 1), "id", UNWRITTEN)
OFFSETS = {TopicPartition("src", 0): CommittedOffset(5)}


@pytest.fixture
def core() -> Coordinator:
    return coordinator()


def coordinator(first_id: int = 0) -> Coordinator:
    core = Coordinator()
    core.take_ids(first_id, first_id + 1000)
    return core


def stored(entry: Entry) -> Entry:
    """As it is read again."""
    read = decode_entry(*encode_entry(entry, 0))
    assert not isinstance(read, ProducerIdRange)
    return read


def producer_of(core: Coordinator) -> Identity:
    identity = core.step(NewProducer("q")).identity
    assert identity is not None
    return identity


def prepared(core: Coordinator, identity: Identity, *participants: Participant) -> Ready:
    core.step(Include(identity, participants))
    core.step(OffsetsStep(identity, "g", OFFSETS))
    return core.step(Commit(identity))


def test_the_first_producer_takes_an_id() -> None:
    core = Coordinator()
    assert core.lacks_ids
    core.take_ids(7, 8)
    ready = core.step(NewProducer("q"))
    assert ready.identity == Identity("q", 7, 0)
    assert ready.append == (TransactionRecord("q", 7, 0, TransactionState.EMPTY),)
    assert core.lacks_ids


def test_what_a_transaction_includes_is_written_down_once(core: Coordinator) -> None:
    identity = producer_of(core)
    (entry,) = core.step(Include(identity, (FIRST,), ("g",))).append
    assert isinstance(entry, TransactionRecord)
    assert (entry.state, entry.participants, entry.offsets) == (TransactionState.ONGOING, (FIRST,), {"g": {}})
    assert core.step(Include(identity, (FIRST,), ("g",))) == Ready()
    (entry,) = core.step(Include(identity, (FIRST, SECOND))).append
    assert isinstance(entry, TransactionRecord) and entry.participants == (FIRST, SECOND)


def test_a_commit_is_prepared_and_tells_the_outcome(core: Coordinator) -> None:
    ready = prepared(core, producer_of(core), FIRST, SECOND)
    (entry,) = ready.append
    assert isinstance(entry, TransactionRecord)
    assert (entry.state, entry.participants, entry.offsets) == (
        TransactionState.PREPARE_COMMIT,
        (FIRST, SECOND),
        {"g": OFFSETS},
    )
    assert ready.outcome is not None
    assert ready.outcome.committed


def test_an_abort_is_asked_for_until_it_is_carried_out(core: Coordinator) -> None:
    identity = producer_of(core)
    assert core.step(Abort(identity)) == Ready(), "there is nothing to drop"
    core.step(Include(identity, (FIRST,)))
    ready = core.step(Abort(identity))
    outcome = ready.outcome
    assert outcome is not None
    assert not outcome.committed
    assert outcome.record.participants == (FIRST,)
    assert [entry.state for entry in ready.append if isinstance(entry, TransactionRecord)] == [
        TransactionState.PREPARE_ABORT
    ]
    with pytest.raises(InvalidTransactionState):
        core.step(Include(identity, (SECOND,)))
    assert core.step(Abort(identity)).outcome == outcome
    core.step(Aborted("q"))
    assert core.step(Abort(identity)) == Ready()
    core.step(Include(identity, (FIRST,)))


def test_a_prepared_transaction_is_completed_before_a_new_producer_is_let_in(core: Coordinator) -> None:
    identity = producer_of(core)
    prepared(core, identity, FIRST)
    with pytest.raises(InvalidTransactionState):
        core.step(Include(identity, (FIRST,)))
    ready = core.step(NewProducer("q"))
    assert ready.identity is None
    assert ready.outcome is not None
    assert ready.outcome.committed
    core.step(Finished("q"))
    assert core.step(NewProducer("q")).identity == identity._replace(epoch=1)


def test_a_new_producer_aborts_under_its_own_epoch_and_fences_the_old_one(core: Coordinator) -> None:
    old = producer_of(core)
    core.step(Include(old, (FIRST,)))
    ready = core.step(NewProducer("q"))
    assert ready.outcome is not None
    assert (ready.outcome.committed, ready.outcome.record.epoch) == (False, 1)
    with pytest.raises(ProducerFenced):
        core.step(Commit(old))


def test_when_epochs_are_used_up_a_new_producer_gets_another_id(core: Coordinator) -> None:
    core.apply(TransactionRecord("q", 7, 32766, TransactionState.EMPTY))
    assert core.step(NewProducer("q")).identity == Identity("q", 0, 0)


def test_after_a_replay_prepared_transactions_are_unfinished(core: Coordinator) -> None:
    again = coordinator(1000)
    entries = core.step(NewProducer("q")).append
    entries += prepared(core, Identity("q", 0, 0), FIRST).append
    for entry in entries:
        again.apply(stored(entry))
    (outcome,) = again.unfinished()
    assert outcome.record == entries[-1]
    (completed,) = again.step(Finished("q")).append
    assert isinstance(completed, TransactionRecord)
    assert (completed.state, completed.participants) == (TransactionState.COMPLETE_COMMIT, ())
    assert again.unfinished() == []


def test_after_a_replay_an_abort_is_given_up_still_and_leaves_nothing_open(core: Coordinator) -> None:
    again = coordinator(1000)
    identity = producer_of(core)
    core.step(Include(identity, (FIRST,)))
    for entry in core.step(Abort(identity)).append:
        again.apply(stored(entry))
    (outcome,) = again.given_up()
    assert (outcome.committed, outcome.record.participants) == (False, (FIRST,))
    (over,) = again.step(Aborted("q")).append
    assert isinstance(over, TransactionRecord)
    assert (over.state, over.participants) == (TransactionState.EMPTY, ())
    assert again.given_up() == []


def test_what_is_forgotten_is_so_in_the_fold_too(core: Coordinator) -> None:
    again = coordinator()
    for entry in core.step(NewProducer("q")).append:
        again.apply(stored(entry))
    (gone,) = core.forget("q")
    again.apply(stored(gone))
    assert again.standings() == core.standings() == []


def test_nothing_is_forgotten_of_what_is_not_over(core: Coordinator) -> None:
    assert core.forget("q") == ()
    identity = producer_of(core)
    core.step(Include(identity, (FIRST,)))
    assert core.forget("q") == ()
    core.step(Commit(identity))
    assert core.forget("q") == ()
    core.step(Finished("q"))
    assert core.forget("q") and core.standing("q") is None


def test_each_transaction_that_ends_has_the_next_number(core: Coordinator) -> None:
    identity = producer_of(core)
    for number in (1, 2, 3):
        (entry,) = prepared(core, identity, FIRST).append
        assert isinstance(entry, TransactionRecord)
        core.step(Finished("q"))
        assert entry.number == number


def test_what_is_told_of_a_transaction_follows_it_from_beginning_to_end(core: Coordinator) -> None:
    identity = producer_of(core)

    def told() -> tuple[TransactionState, tuple[TopicPartition, ...], bool]:
        standing = core.standing("q")
        assert standing is not None
        return standing.state, standing.partitions, standing.ending is not None

    assert told() == (TransactionState.EMPTY, (), False)
    core.step(Include(identity, (FIRST,)))
    assert told() == (TransactionState.ONGOING, (FIRST.partition,), False)
    core.step(Commit(identity))
    assert told() == (TransactionState.PREPARE_COMMIT, (FIRST.partition,), True)
    core.step(Finished("q"))
    state, _, ending = told()
    assert (state, ending) == (TransactionState.COMPLETE_COMMIT, False)
