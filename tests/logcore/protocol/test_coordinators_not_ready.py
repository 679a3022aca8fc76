"""Requests that a coordinator does not answer, or not now: clients are told to ask again; nothing waits for ever."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

import pytest

from millstream.logcore.client import TopicPartition
from millstream.logcore.cluster.cluster_groups import ClusterGroups
from millstream.logcore.cores.group_messages import CheckCommit, ConsumerHeartbeat, GroupFault
from millstream.logcore.error_codes import ErrorCode
from millstream.logcore.errors import LogClosed, NotNow
from millstream.logcore.log import Log
from millstream.logcore.protocol.channel import Address, Channels
from millstream.logcore.protocol.requests import group_requests
from millstream.logcore.protocol.wire.apis import Api
from millstream.logcore.server import LogServer

_MEMBER = {"group_id": "g", "generation_id": 1, "member_id": "m", "group_instance_id": None}
_REQUESTS: dict[Api, dict[str, Any]] = {
    Api.HEARTBEAT: _MEMBER,
    Api.LEAVE_GROUP: {"group_id": "g", "members": [{"member_id": "m", "group_instance_id": None, "reason": None}]},
    Api.SYNC_GROUP: {**_MEMBER, "protocol_type": "consumer", "protocol_name": "range", "assignments": []},
    Api.JOIN_GROUP: {
        "group_id": "g",
        "session_timeout": timedelta(milliseconds=1),
        "rebalance_timeout": timedelta(milliseconds=1),
        "member_id": "m",
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
        "reason": None,
    },
}


@pytest.fixture
def channels(log: Log) -> Iterator[Channels]:
    log.committed_offsets("g")  # there is a coordinator
    with LogServer(log, port=0) as running:
        opened = Channels(Address("127.0.0.1", running.port))
        yield opened
        opened.close()


@pytest.mark.parametrize("api", _REQUESTS, ids=lambda api: api.name)
def test_a_member_whose_coordinator_never_answers_is_told_to_ask_again(
    log: Log, channels: Channels, monkeypatch: pytest.MonkeyPatch, api: Api
) -> None:
    monkeypatch.setattr(log.served.groups, "ask", lambda message: Future[Any]())
    for limit in ("_ANSWER_S", "_GRACE_S", "_SYNC_S"):
        monkeypatch.setattr(group_requests, limit, 0.05)
    assert channels.ask(api, _REQUESTS[api]).error_code is ErrorCode.coordinator_not_available


@pytest.mark.parametrize("api", _REQUESTS, ids=lambda api: api.name)
def test_a_member_whose_coordinator_has_ended_is_told_to_ask_again(
    log: Log, channels: Channels, monkeypatch: pytest.MonkeyPatch, api: Api
) -> None:
    def ended(message: object) -> None:
        raise LogClosed("this node has ended")

    monkeypatch.setattr(log.served.groups, "ask", ended)
    assert channels.ask(api, _REQUESTS[api]).error_code is ErrorCode.coordinator_not_available


@pytest.mark.parametrize(
    "code", [ErrorCode.coordinator_load_in_progress, ErrorCode.coordinator_not_available], ids=lambda code: code.name
)
def test_who_asks_for_transactions_that_are_not_known_yet_is_told_to_ask_again(
    log: Log, channels: Channels, monkeypatch: pytest.MonkeyPatch, code: ErrorCode
) -> None:
    def refuse() -> None:
        raise NotNow(code, "a coordinator reads its log; ask again")

    monkeypatch.setattr(log.served, "transactions", refuse)
    assert channels.ask(Api.LIST_TRANSACTIONS, {}).error_code is code
    described = channels.ask(Api.DESCRIBE_TRANSACTIONS, {"transactional_ids": ["a", "b"]}).transaction_states
    assert [(found.transactional_id, found.error_code) for found in described] == [("a", code), ("b", code)]


class _EndedNode:
    """A `ClusterNode` whose machines have panicked."""

    def answer(self, *asked: object, **options: object) -> Any:
        raise LogClosed("this node has ended")


def test_groups_of_a_node_that_has_ended_say_so_as_what_is_asked_again() -> None:
    groups = ClusterGroups(_EndedNode())  # pyrefly: ignore[bad-argument-type]
    beat = ConsumerHeartbeat("g", "m", 0, None, "", "", 1000, ("t",), None, None)
    assert groups.beat(beat, {"t": 1}).fault is GroupFault.SHUTTING_DOWN
    with pytest.raises(NotNow) as raised:
        groups.commit(CheckCommit("g"), {TopicPartition("t", 0): 1}, {})
    assert raised.value.problem == ErrorCode.coordinator_not_available
