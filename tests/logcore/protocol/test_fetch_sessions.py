"""Fetch sessions: what is remembered, what is told, and how many there are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from millstream.logcore.client import TopicPartition
from millstream.logcore.error_codes import ErrorCode
from millstream.logcore.log import Log
from millstream.logcore.protocol.channel import Address, Channels
from millstream.logcore.protocol.fetch_sessions import IDLE_S, FetchSessions
from millstream.logcore.protocol.wire import fetch_messages as fetch
from millstream.logcore.protocol.wire.apis import Api
from millstream.logcore.protocol.wire.fetch_messages import ClientFetch, FetchedPartition, FetchPosition, PartitionKey
from millstream.logcore.server import LogServer

from ..log_records import rows

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@dataclass
class Client:
    """Asks as a consumer does: everything first, then what has changed."""

    channels: Channels
    id: int = 0
    epoch: int = 0
    versions: list[int] = field(default_factory=list)

    def fetch(
        self, *changed: tuple[TopicPartition, int], forgotten: tuple[PartitionKey, ...] = (), bytes_max: int = 1 << 20
    ) -> Any:
        request = ClientFetch(
            0, 1, bytes_max, "read_uncommitted", [FetchPosition(where, offset, 1 << 20) for where, offset in changed],
            self.id, self.epoch, forgotten,
        )  # fmt: skip
        response = self.channels.exchange(Api.FETCH, lambda version: fetch.write_request(request, version))
        error, fetched = fetch.read_response(response.message, response.position, response.version)
        if not error:
            self.id = int.from_bytes(response.message[response.position + 6 : response.position + 10], "big")
            self.epoch += 1
        return ErrorCode(error), {entry.partition: (entry.high_watermark, entry.size > 0) for entry in fetched}


@pytest.fixture
def client(log: Log) -> Iterator[Client]:
    with LogServer(log, port=0, fetch_sessions=2) as server:
        channels = Channels(Address("127.0.0.1", server.port))
        yield Client(channels)
        channels.close()


def test_after_the_first_answer_only_what_is_new_is_told(log: Log, client: Client) -> None:
    log.append("t", 0, rows(b"a"))
    assert client.fetch((T0, 0), (T1, 0)) == (ErrorCode.none, {T0: (1, True), T1: (0, False)})
    assert client.id != 0
    assert client.fetch((T0, 1)) == (ErrorCode.none, {})
    log.append("t", 1, rows(b"b"))
    assert client.fetch() == (ErrorCode.none, {T1: (1, True)})
    assert client.fetch() == (ErrorCode.none, {T1: (1, True)}), "it was not said that this was read"
    assert client.fetch((T1, 1)) == (ErrorCode.none, {})


def test_what_a_session_forgets_is_not_fetched_any_more(log: Log, client: Client) -> None:
    client.fetch((T0, 0), (T1, 0))
    assert client.fetch(forgotten=((T0.topic, T0.partition),)) == (ErrorCode.none, {})
    log.append("t", 0, rows(b"a"))
    log.append("t", 1, rows(b"b"))
    assert client.fetch() == (ErrorCode.none, {T1: (1, True)})


def test_unknown_sessions_and_wrong_epochs_are_said(client: Client) -> None:
    client.fetch((T0, 0))
    client.epoch += 1
    assert client.fetch()[0] is ErrorCode.invalid_fetch_session_epoch
    client.id += 1
    assert client.fetch()[0] is ErrorCode.fetch_session_id_not_found


def test_the_end_of_an_error_is_told(log: Log, client: Client) -> None:
    missing = TopicPartition("missing", 0)
    assert client.fetch((missing, 0))[1] == {missing: (-1, False)}
    assert client.fetch()[1] == {missing: (-1, False)}
    log.create_topic("missing", 1)
    assert client.fetch()[1] == {missing: (0, False)}
    assert client.fetch()[1] == {}


def test_partitions_that_gave_records_let_the_others_go_first(log: Log, client: Client) -> None:
    for partition in (0, 1):
        log.append("t", partition, rows(b"x" * 100))
    assert client.fetch((T0, 0), (T1, 0), bytes_max=50)[1] == {T0: (1, True), T1: (1, False)}
    assert client.fetch(bytes_max=50)[1] == {T1: (1, True)}


def test_a_session_that_is_used_keeps_its_slot_and_an_idle_one_loses_it() -> None:
    sessions = FetchSessions(slots=2)
    first = begin(sessions, 0)
    begin(sessions, 0)
    assert sessions.turn(request(first, 1), IDLE_S - 1).session_id == first
    assert begin(sessions, IDLE_S - 1) == 0, "all slots are taken"
    third = begin(sessions, IDLE_S)
    assert third != 0 and len(sessions) == 2
    assert sessions.turn(request(first, 2), IDLE_S).session_id == first
    assert begin(sessions, IDLE_S) == 0


def test_a_session_ends_when_its_client_says_so_or_begins_another() -> None:
    sessions = FetchSessions()
    first = begin(sessions, 0)
    assert sessions.turn(request(first, -1), 0).session_id == 0
    assert len(sessions) == 0
    second = begin(sessions, 0)
    sessions.turn(request(second, 0), 0)
    assert len(sessions) == 1 and sessions.turn(request(second, 1), 0).error is ErrorCode.fetch_session_id_not_found


def test_a_session_without_partitions_is_none() -> None:
    sessions = FetchSessions()
    assert sessions.turn(ClientFetch(0, 0, 0, "read_committed", [], 0, 0), 0).session_id == 0
    id = begin(sessions, 0)
    turn = sessions.turn(ClientFetch(0, 0, 0, "read_committed", [], id, 1, [T0]), 0)
    assert (turn.positions, turn.session_id, len(sessions)) == ([], 0, 0)


def test_epochs_begin_anew_after_the_last() -> None:
    sessions = FetchSessions()
    id = begin(sessions, 0)
    sessions._sessions[id].epoch = 0x7FFFFFFF
    sessions.turn(request(id, 0x7FFFFFFF), 0)
    assert sessions.turn(request(id, 1), 0).error is ErrorCode.none


def begin(sessions: FetchSessions, now_s: float) -> int:
    turn = sessions.turn(request(0, 0), now_s)
    turn.news([FetchedPartition(T0, 0)])
    return turn.session_id


def request(id: int, epoch: int) -> ClientFetch:
    return ClientFetch(0, 1, 1 << 20, "read_uncommitted", [FetchPosition(T0, 0, 1)], id, epoch)
