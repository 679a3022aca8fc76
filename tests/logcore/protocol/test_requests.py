"""Requests that no common client sends, asked by hand; and who is trusted."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from millstream.logcore.client import TopicPartition
from millstream.logcore.error_codes import ErrorCode
from millstream.logcore.log import Log
from millstream.logcore.protocol.channel import Address, AuthenticationFailed, Channel, Channels
from millstream.logcore.protocol.security.access import NotAllowed
from millstream.logcore.protocol.wire import fetch_messages as fetch
from millstream.logcore.protocol.wire.apis import Api
from millstream.logcore.protocol.wire.fetch_messages import ClientFetch, FetchPosition
from millstream.logcore.remote import RemoteLog, trusted_address
from millstream.logcore.server import LogServer

from ..log_records import rows, values_of

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def server(log: Log) -> Iterator[LogServer]:
    with LogServer(log, port=0) as running:
        yield running


@pytest.fixture
def channels(server: LogServer) -> Iterator[Channels]:
    opened = Channels(Address("127.0.0.1", server.port))
    yield opened
    opened.close()


def codes(found: Any) -> list[str]:
    return [entry.error_code.name for entry in found]


def test_transactions_and_producers_are_described(log: Log, channels: Channels) -> None:
    producer = log.transactional_producer("tx")
    producer.begin()
    producer.append("t", 0, rows(b"a"))
    listed = channels.ask(Api.LIST_TRANSACTIONS, {"state_filters": ["Ongoing", "Nonsense"]})
    (found,) = listed.transaction_states
    assert (found.transactional_id, found.producer_id, found.transaction_state) == (
        "tx",
        producer.producer_id,
        "Ongoing",
    )
    assert listed.unknown_state_filters == ("Nonsense",)
    asked = {"transactional_ids": ["tx", "nobody"]}
    known, unknown = channels.ask(Api.DESCRIBE_TRANSACTIONS, asked).transaction_states
    assert [(topic.topic, topic.partitions) for topic in known.topics] == [("t", (0,))]
    assert unknown.error_code.name == "transactional_id_not_found"
    asked = {"topics": [{"name": "t", "partition_indexes": [0, 1, 9]}]}
    (topic,) = channels.ask(Api.DESCRIBE_PRODUCERS, asked).topics
    assert codes(topic.partitions) == ["none", "none", "unknown_topic_or_partition"]
    (active,) = topic.partitions[0].active_producers
    assert (active.producer_id, active.last_sequence, active.current_txn_start_offset) == (producer.producer_id, 0, 0)
    producer.commit()
    listed = channels.ask(Api.LIST_TRANSACTIONS, {})
    assert [entry.transaction_state for entry in listed.transaction_states] == ["CompleteCommit"]


def test_offsets_that_a_transaction_may_still_commit_are_waited_for(
    log: Log, server: LogServer, channels: Channels
) -> None:
    log.commit_offsets("g", {T0: 1, T1: 1})
    remote = RemoteLog(server.address)
    producer = remote.transactional_producer("tx")
    producer.begin()
    producer.send_offsets("g", {T0: 5})
    group = {"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0, 1]}]}

    def fetched(*, stable: bool) -> list[tuple[str, int]]:
        (found,) = channels.ask(Api.OFFSET_FETCH, {"groups": [group], "require_stable": stable}).groups
        return [(entry.error_code.name, entry.committed_offset) for entry in found.topics[0].partitions]

    assert fetched(stable=True) == [("unstable_offset_commit", -1), ("none", 1)]
    assert fetched(stable=False) == [("none", 1), ("none", 1)]
    producer.commit()
    assert log.committed_offsets("g") == {T0: 5, T1: 1}  # waits for what is decided
    assert fetched(stable=True) == [("none", 5), ("none", 1)]
    remote.close()


def test_topics_are_described_by_their_ids(log: Log, channels: Channels) -> None:
    known, unknown = log.topic_id("t"), uuid.UUID(int=5)
    asked = [{"topic_id": known, "name": None}, {"topic_id": unknown, "name": None}, {"topic_id": None, "name": "t"}]
    found = channels.ask(Api.METADATA, {"topics": asked}).topics
    assert [(topic.name, topic.topic_id, topic.error_code.name) for topic in found] == [
        ("t", known, "none"),
        (None, unknown, "unknown_topic_id"),
        ("t", known, "none"),
    ]


def test_a_leader_epoch_ends_where_the_log_does(log: Log, channels: Channels) -> None:
    log.append("t", 0, rows(b"a", b"b"))
    asked = [
        {"partition": 0, "current_leader_epoch": 0, "leader_epoch": 0},
        {"partition": 0, "current_leader_epoch": 7, "leader_epoch": 0},
        {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 3},
        {"partition": 9, "current_leader_epoch": -1, "leader_epoch": 0},
    ]
    (topic,) = channels.ask(Api.OFFSET_FOR_LEADER_EPOCH, {"topics": [{"topic": "t", "partitions": asked}]}).topics
    assert codes(topic.partitions) == ["none", "unknown_leader_epoch", "none", "unknown_topic_or_partition"]
    ends = [(entry.leader_epoch, entry.end_offset) for entry in topic.partitions]
    assert ends == [(0, 2), (-1, -1), (0, 2), (-1, -1)], "of the newest epoch up to the one that is asked for"


def test_offsets_are_deleted_unless_somebody_reads_the_topic(log: Log, channels: Channels) -> None:
    log.commit_offsets("g", {T0: 1, T1: 2})
    asked = {"name": "t", "partitions": [{"partition_index": 0}]}
    answer = channels.ask(Api.OFFSET_DELETE, {"group_id": "g", "topics": [asked]})
    assert codes(answer.topics[0].partitions) == ["none"] and log.committed_offsets("g") == {T1: 2}
    answer = channels.ask(Api.OFFSET_DELETE, {"group_id": "nobody", "topics": [asked]})
    assert answer.error_code.name == "group_id_not_found"


def test_a_commit_is_refused_for_what_there_is_not_or_is_too_much(log: Log, channels: Channels) -> None:
    entries = [
        {"partition_index": 0, "committed_offset": 1, "committed_metadata": "x" * 5000},
        {"partition_index": 1, "committed_offset": 1, "committed_metadata": "fine"},
        {"partition_index": 9, "committed_offset": 1, "committed_metadata": None},
    ]
    log.committed_offsets("g")  # there is a coordinator
    answer = channels.ask(Api.OFFSET_COMMIT, {"group_id": "g", "topics": [{"name": "t", "partitions": entries}]})
    assert codes(answer.topics[0].partitions) == ["offset_metadata_too_large", "none", "unknown_topic_or_partition"]
    assert log.committed_offsets("g") == {T1: 1} and log.groups.committed("g")[T1].metadata == "fine"


def test_a_transaction_commits_no_offsets_of_what_there_is_not(log: Log, channels: Channels) -> None:
    log.committed_offsets("g")
    log.transactional_producer("tx")  # there are coordinators
    asked = {"transactional_id": "tx", "transaction_timeout": timedelta(seconds=10)}
    started = channels.ask(Api.INIT_PRODUCER_ID, {**asked, "producer_id": -1, "producer_epoch": -1})
    who = {
        "transactional_id": "tx", "producer_id": started.producer_id, "producer_epoch": started.producer_epoch,
        "group_id": "g",
    }  # fmt: skip
    entries = [
        {"partition_index": 0, "committed_offset": 1, "committed_metadata": "x" * 5000},
        {"partition_index": 1, "committed_offset": 1, "committed_metadata": "fine"},
        {"partition_index": 9, "committed_offset": 1, "committed_metadata": None},
    ]
    for some, expected in ((entries, ["offset_metadata_too_large", "none", "unknown_topic_or_partition"]),
                           (entries[2:], ["unknown_topic_or_partition"])):  # fmt: skip
        answer = channels.ask(Api.TXN_OFFSET_COMMIT, {**who, "topics": [{"name": "t", "partitions": some}]})
        assert codes(answer.topics[0].partitions) == expected
    channels.ask(Api.END_TXN, {name: value for name, value in who.items() if name != "group_id"} | {"committed": True})
    assert log.committed_offsets("g") == {T1: 1}


def test_a_fetch_that_goes_on_with_a_session_is_told_that_there_is_none(server: LogServer) -> None:
    request = ClientFetch(0, 0, 1000, "read_committed", [FetchPosition(T0, 0, 1000)])

    def body(version: int) -> list[Any]:
        whole = bytearray(b"".join(fetch.write_request(request, version)))
        whole[17:25] = (5).to_bytes(4, "big") + (1).to_bytes(4, "big")  # session id and epoch
        return [whole]

    channel = Channel(Address("127.0.0.1", server.port))
    response = channel.ask(Api.FETCH, body)
    error_code, fetched = fetch.read_response(response.message, response.position, response.version)
    assert (ErrorCode(error_code).name, fetched) == ("fetch_session_id_not_found", [])
    channel.close()


def test_who_knows_the_secret_writes_to_the_topics_of_millstream(log: Log, server: LogServer) -> None:
    internal = "_millstream-x"
    with RemoteLog(server.address) as stranger, RemoteLog(trusted_address(log.served, server.address)) as ours:
        with pytest.raises(NotAllowed, match="cannot create"):
            stranger.create_topic(internal, 1)
        ours.create_topic(internal, 1)
        ours.append(internal, 0, rows(b"a"))
        producer = ours.transactional_producer("tx")
        producer.begin()
        producer.append(internal, 0, rows(b"b"))
        producer.commit()
        assert values_of(stranger, internal) == [b"a", b"b"]
        with pytest.raises(NotAllowed, match="not write"):
            stranger.append(internal, 0, rows(b"c"))
        for change in (
            lambda: stranger.delete_topic(internal),
            lambda: stranger.alter_topic(internal, {}),
            lambda: stranger.add_partitions(internal, 2),
        ):
            with pytest.raises(NotAllowed, match="cannot create, change or delete"):
                change()
        with pytest.raises(NotAllowed):
            stranger.delete_records(internal, 0, 1)
        ours.delete_topic(internal)


def test_a_wrong_secret_is_refused(log: Log, server: LogServer) -> None:
    with RemoteLog(f"wrong@{server.address}") as remote, pytest.raises(AuthenticationFailed, match="does not know"):
        remote.topics()
    secret = log.served.path / "secret"
    assert secret.stat().st_mode & 0o077 == 0 and secret.read_text() == log.served.secret
