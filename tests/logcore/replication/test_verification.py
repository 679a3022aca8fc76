"""Batches that open a transaction at a leader: parked until the coordinator has said that the transaction is open."""

from __future__ import annotations

from typing import Any

from millstream.logcore.records.batch import BatchProducer
from millstream.logcore.replication.machine import NodeId, Received, Send
from millstream.logcore.replication.replica.replica_messages import (
    COORDINATOR,
    EndMarker,
    PartitionId,
    Problem,
    Produced,
    Refused,
)
from millstream.logcore.replication.shards.transaction_messages import (
    MarkerWritten,
    ToCoordinator,
    TransactionVerified,
    VerifyTransaction,
    WriteMarker,
)

from .trio import PARTITION, Trio

SHARD = PartitionId("transactions", 3)


def led_by_1() -> Trio:
    trio = Trio()
    trio.change(leader=NodeId(1))
    trio.settle()
    trio.held = lambda sender, send: send.to == COORDINATOR
    return trio


def write(trio: Trio, value: bytes, sequence: int = 0, epoch: int = 0, **options: Any) -> int:
    producer = BatchProducer(7, epoch, sequence, transactional=True)
    return trio.produce(1, value, producer=producer, transactional_id="tx", **options)


def questions(trio: Trio) -> list[VerifyTransaction]:
    """What the leader has asked the coordinator; taken off the wire."""
    asked = [send for _, send in trio.wire if send.to == COORDINATOR]
    trio.wire = [(sender, send) for sender, send in trio.wire if send.to != COORDINATOR]
    said = [send.message.message for send in asked if isinstance(send.message, ToCoordinator)]
    assert len(said) == len(asked)
    return said


def answer(trio: Trio, question: VerifyTransaction, problem: Problem | None = None, *, epoch: int = 0) -> None:
    """As the coordinator of this epoch."""
    verified = TransactionVerified(
        PARTITION, SHARD, epoch, question.leader_epoch, question.correlation, question.producer_id, problem, "so it is"
    )
    trio.step(1, Received(NodeId(2), verified))
    trio.settle()


def test_a_batch_that_opens_a_transaction_waits_for_the_coordinator() -> None:
    trio = led_by_1()
    first = write(trio, b"a", announces=True)
    (question,) = questions(trio)
    assert (question.transactional_id, question.epoch, question.includes) == ("tx", 0, True)
    assert trio.values(1) == []
    answer(trio, question)
    assert isinstance(trio.replies[first], Produced)
    write(trio, b"b", 1)
    assert questions(trio) == [], "the transaction is open here: nobody has to be asked"
    assert trio.values(1) == [b"a", b"b"]


def test_what_comes_behind_a_parked_batch_waits_with_it_and_stays_in_order() -> None:
    trio = led_by_1()
    requests = [write(trio, value, sequence) for sequence, value in enumerate([b"a", b"b", b"c"])]
    (question,) = questions(trio)
    answer(trio, question)
    assert trio.values(1) == [b"a", b"b", b"c"]
    assert [trio.replies[request].first_offset for request in requests] == [0, 1, 2]


def test_a_batch_that_overtook_the_first_of_its_transaction_is_refused() -> None:
    """T-L16: the marker of the transaction before has the producer's new epoch already."""
    trio = led_by_1()
    write(trio, b"a")
    answer(trio, questions(trio)[0])
    trio.ask(1, EndMarker(7, 1, True, 0, 1))
    second, first = write(trio, b"c", 1, epoch=1), write(trio, b"b", 0, epoch=1)
    assert trio.replies[second].problem is Problem.OUT_OF_ORDER_SEQUENCE
    answer(trio, questions(trio)[0])
    assert isinstance(trio.replies[first], Produced)


def test_a_refused_batch_is_refused_with_the_coordinators_reason() -> None:
    trio = led_by_1()
    requests = [write(trio, b"a"), write(trio, b"b", 1)]
    answer(trio, questions(trio)[0], Problem.INVALID_TXN_STATE)
    assert [trio.replies[request] for request in requests] == [Refused(Problem.INVALID_TXN_STATE, "so it is")] * 2
    assert trio.values(1) == []


def test_a_batch_without_a_transactional_id_opens_no_transaction() -> None:
    trio = led_by_1()
    request = trio.produce(1, b"a", producer=BatchProducer(7, 0, 0, transactional=True))
    assert trio.replies[request].problem is Problem.INVALID_TXN_STATE


def test_an_answer_of_before_a_marker_opens_nothing_after_it() -> None:
    """T-L18: verified, then the transaction ends, then the answer comes: the record would stay open for ever."""
    trio = led_by_1()
    write(trio, b"late")
    (before,) = questions(trio)
    trio.ask(1, EndMarker(7, 0, False, 0, 1))
    trio.settle()
    answer(trio, before)
    assert trio.values(1) == []
    (again,) = questions(trio)
    answer(trio, again, Problem.INVALID_TXN_STATE)
    assert trio.log(1).state.transactions.open == []


def test_a_coordinator_that_was_replaced_opens_nothing_that_its_successor_has_ended() -> None:
    """T-L18: it was cut off, does not know it, and the leader does not know it yet either."""
    trio = led_by_1()
    request = write(trio, b"late")
    trio.step(1, Received(NodeId(9), WriteMarker(PARTITION, SHARD, 5, "tx", EndMarker(7, 0, False, 0, 1))))
    trio.settle()
    *_, again = questions(trio)
    answer(trio, again, epoch=4)
    assert trio.values(1) == []
    answer(trio, again, Problem.INVALID_TXN_STATE, epoch=5)
    assert trio.replies[request].problem is Problem.INVALID_TXN_STATE


def test_the_next_transactions_first_batch_does_not_join_the_last_one_that_is_still_open_here() -> None:
    """The producer was told of the end, and its marker is on its way (KIP-890: the epoch is another one)."""
    trio = led_by_1()
    write(trio, b"a")
    answer(trio, questions(trio)[0])
    early = write(trio, b"b", epoch=1)
    (question,) = questions(trio)
    trio.settle()
    assert early not in trio.replies
    trio.ask(1, EndMarker(7, 1, False, 0, 1))
    trio.settle()
    (again,) = questions(trio)
    assert question.correlation < again.correlation
    answer(trio, again)
    trio.ask(1, EndMarker(7, 2, True, 0, 2))
    trio.settle()
    assert trio.values(1) == [b"a", b"b"]
    assert isinstance(trio.replies[early], Produced)


def test_a_coordinator_that_does_not_answer_is_asked_again_and_given_up_on_in_the_end() -> None:
    trio = led_by_1()
    request = write(trio, b"a")
    trio.pass_time(1_000)
    assert len(questions(trio)) >= 2
    trio.pass_time(10_000)
    assert trio.replies[request].problem is Problem.NOT_ENOUGH_REPLICAS
    assert trio.values(1) == []


def test_parked_batches_are_refused_where_another_leader_epoch_begins() -> None:
    trio = led_by_1()
    request = write(trio, b"a")
    (question,) = questions(trio)
    trio.change(leader=NodeId(2))
    assert trio.replies[request].problem is Problem.NOT_LEADER
    trio.change(leader=NodeId(1))
    answer(trio, question)
    assert trio.values(1) == []


def test_too_many_batches_of_one_producer_are_refused_and_not_queued_for_ever() -> None:
    """I24."""
    trio = led_by_1()
    requests = [write(trio, b"%d" % sequence, sequence) for sequence in range(30)]
    refused = [request for request in requests if request in trio.replies]
    assert len(refused) == 10
    assert trio.replies[refused[0]].problem is Problem.CONCURRENT_TRANSACTIONS


def test_a_marker_that_is_asked_for_again_waits_once_and_is_answered_when_it_is_committed() -> None:
    """I24: a coordinator asks every half a second, for as long as too few are in sync."""
    trio = led_by_1()
    trio.no_syncs = {2, 3}
    trio.held = lambda sender, send: send.to == 9
    asked = WriteMarker(PARTITION, SHARD, 0, "tx", EndMarker(7, 1, True, 0, 1))
    for _ in range(20):
        trio.step(1, Received(NodeId(9), asked))
    trio.settle()
    assert not any(send.to == 9 for _, send in trio.wire)
    trio.no_syncs = set()
    trio.settle()
    assert [send for _, send in trio.wire if send.to == 9] == [
        Send(NodeId(9), MarkerWritten(SHARD, "tx", 7, 1, PARTITION))
    ]
    assert trio.log(1).end_offset == 1


def test_a_late_copy_of_a_marker_ends_no_later_transaction_of_the_same_epoch() -> None:
    """T-L17, with a client that keeps its epoch: the number of the transaction tells them apart."""
    trio = led_by_1()
    write(trio, b"a")
    answer(trio, questions(trio)[0])
    marker = EndMarker(7, 0, False, 0, 1)
    trio.ask(1, marker)
    write(trio, b"b", 1)
    answer(trio, questions(trio)[0])
    trio.ask(1, marker)
    trio.settle()
    assert trio.log(1).state.transactions.open_of(7) is not None
    trio.ask(1, EndMarker(7, 0, True, 0, 2))
    trio.settle()
    assert trio.log(1).state.transactions.open == []


def test_a_new_leader_knows_which_transactions_have_ended() -> None:
    trio = led_by_1()
    trio.ask(1, EndMarker(7, 0, False, 0, 1))
    trio.settle()
    trio.change(leader=NodeId(2))
    trio.settle()
    trio.ask(2, EndMarker(7, 0, False, 0, 1))
    trio.settle()
    assert trio.log(2).end_offset == 1
