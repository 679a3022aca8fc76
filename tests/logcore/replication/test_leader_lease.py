"""Who was replaced as a leader without knowing it reads out nothing old (T-L4)."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.logcore.records.batch import NOBODY
from millstream.logcore.replication.broker.leader_lease import LeaderLease
from millstream.logcore.replication.controller.controller_messages import BrokerHeartbeat, HeartbeatAnswer
from millstream.logcore.replication.machine import NodeId
from millstream.logcore.replication.replica.replica_messages import (
    AskEpochEnd,
    AskOffsets,
    ForPartition,
    PartitionId,
    PartitionOffsets,
    Problem,
    Produce,
    Produced,
    Read,
    ReadBatches,
    Refused,
)
from tests.simulation.cluster_clients import encode

from .brokers import SESSION_MS, Brokers


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


def test_a_leader_that_was_replaced_without_noticing_reads_out_nothing_old(brokers: Brokers) -> None:
    assert isinstance(_produce(brokers, 1, b"before"), Produced)
    brokers.cut = {1}
    brokers.pass_time(SESSION_MS)
    brokers.elect(2, topic="orders")
    assert isinstance(_produce(brokers, 2, b"behind its back"), Produced)
    for body in (AskOffsets(), Read(0, 1_000), AskEpochEnd(1)):
        answer = _ask(brokers, 1, body)
        assert isinstance(answer, Refused) and answer.problem is Problem.NOT_LEADER, f"{body} was answered"
    assert _ask(brokers, 2, AskOffsets()) == PartitionOffsets(0, 2, 2)


def test_a_leader_in_touch_with_the_controller_answers(brokers: Brokers) -> None:
    for _ in range(20):
        brokers.pass_time(500)
        assert isinstance(_ask(brokers, 1, AskOffsets()), PartitionOffsets)


def test_some_answers_may_be_lost_before_a_leader_is_silent(brokers: Brokers) -> None:
    brokers.held = lambda sender, message: isinstance(message, BrokerHeartbeat)
    brokers.pass_time(2 * SESSION_MS // 3)
    assert isinstance(_ask(brokers, 1, AskOffsets()), PartitionOffsets)
    brokers.pass_time(SESSION_MS // 3)
    assert _ask(brokers, 1, AskOffsets()).problem is Problem.NOT_LEADER
    brokers.held = lambda sender, message: False
    brokers.pass_time(500)
    assert isinstance(_ask(brokers, 1, AskOffsets()), PartitionOffsets)


def test_a_follower_answers_out_of_touch_as_far_as_it_knows(brokers: Brokers) -> None:
    _produce(brokers, 1, b"before")
    brokers.pass_time(1_000)
    brokers.cut = {2}
    brokers.pass_time(2 * SESSION_MS)
    assert isinstance(_ask(brokers, 2, Read(0, 1_000)), ReadBatches)


def test_signs_of_life_come_more_often_as_long_as_nobody_answers(brokers: Brokers) -> None:
    sent: list[int] = []

    def hold(sender: NodeId, message: Any) -> bool:
        if isinstance(message, BrokerHeartbeat) and sender == 1:
            sent.append(brokers.now_ms)
        return isinstance(message, BrokerHeartbeat)

    brokers.held = hold
    brokers.pass_time(3_000)
    assert len(sent) > 2 * 3_000 // 500


# The lease by itself


def test_a_lease_begins_when_the_sign_of_life_was_sent() -> None:
    lease = LeaderLease()
    lease.sent(1, 10_000)
    assert not lease.holds(10_000)
    lease.answered(_answer(1), applied=7)
    assert lease.holds(10_000 + 2_600)
    assert not lease.holds(10_000 + 2_800), "it lasts longer than the controller waits"


def test_an_answer_to_nothing_grants_nothing() -> None:
    lease = LeaderLease()
    lease.sent(2, 1_000)
    lease.answered(_answer(1), applied=7)
    assert not lease.holds(1_000)
    lease.answered(_answer(2), applied=7)
    until_ms = lease.until_ms
    lease.sent(3, 2_000)
    lease.answered(_answer(2), applied=7)  # a copy
    assert lease.until_ms == until_ms and lease.is_unanswered


def test_who_is_fenced_leads_nothing_whatever_was_answered_before() -> None:
    lease = LeaderLease()
    for number in (1, 2, 3):
        lease.sent(number, 1_000)
    lease.answered(_answer(1), applied=7)
    lease.answered(_answer(3, fenced=True), applied=7)
    assert not lease.holds(1_000)
    lease.answered(_answer(2), applied=7)  # late
    lease.learned(7)
    assert not lease.holds(1_000)


def test_an_answer_counts_when_the_metadata_it_knew_of_are_known_here() -> None:
    lease = LeaderLease()
    lease.sent(1, 1_000)
    lease.answered(_answer(1, index=8), applied=7)
    assert not lease.holds(1_000), "the metadata may say that another node leads"
    lease.learned(8)
    assert lease.holds(1_000)


def _answer(number: int, *, fenced: bool = False, index: int = 7) -> HeartbeatAnswer:
    return HeartbeatAnswer("test", 1, number, True, fenced, index, 3_000)


def _ask(brokers: Brokers, node: int, body: Any) -> Any:
    return brokers.replies.get(brokers.ask(node, ForPartition(_orders(brokers), body)))


def _produce(brokers: Brokers, node: int, value: bytes) -> Any:
    request = brokers.ask(node, ForPartition(_orders(brokers), Produce([encode(value, NOBODY)])))
    brokers.pass_time(1_500)
    return brokers.replies.get(request)


def _orders(brokers: Brokers) -> PartitionId:
    return PartitionId(brokers.image.topic_ids["orders"], 0)
