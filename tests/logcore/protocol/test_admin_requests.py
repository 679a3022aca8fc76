"""What administrators and user interfaces ask of a node that is alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from millstream.logcore.client import RowRecords
from millstream.logcore.error_codes import ErrorCode
from millstream.logcore.errors import InvalidRecords, InvalidSetting, TopicExists
from millstream.logcore.log import Log
from millstream.logcore.protocol.channel import Address, Channels
from millstream.logcore.protocol.security.quotas import Quotas
from millstream.logcore.protocol.wire.apis import Api
from millstream.logcore.remote import RemoteLog
from millstream.logcore.server import LogServer

from ..log_records import rows, values_of


@pytest.fixture
def server(log: Log) -> Iterator[LogServer]:
    with LogServer(log, port=0, quotas=Quotas(produce_bytes=5_000_000)) as running:
        yield running


@pytest.fixture
def channels(server: LogServer) -> Iterator[Channels]:
    opened = Channels(Address("127.0.0.1", server.port))
    yield opened
    opened.close()


def test_log_dirs_say_how_much_room_partitions_take(log: Log, channels: Channels) -> None:
    log.append("t", 0, rows(b"x" * 1000))
    (folder,) = channels.ask(Api.DESCRIBE_LOG_DIRS, {"topics": None}).results
    sizes = {
        (topic.name, entry.partition_index): entry.partition_size
        for topic in folder.topics
        for entry in topic.partitions
    }
    assert sizes[("t", 0)] > 1000 > sizes[("t", 1)] == 0
    assert 0 < folder.usable_bytes < folder.total_bytes
    asked = [{"topic": "t", "partitions": [1, 9, -1]}, {"topic": "missing", "partitions": [0]}]
    (folder,) = channels.ask(Api.DESCRIBE_LOG_DIRS, {"topics": asked}).results
    assert [(topic.name, [entry.partition_index for entry in topic.partitions]) for topic in folder.topics] == [
        ("t", [1])
    ]


def test_topics_are_described_page_by_page(log: Log, channels: Channels) -> None:
    log.create_topic("a", 3)
    log.committed_offsets("g")
    log.transactional_producer("tx")
    found: list[tuple[str, int]] = []
    cursor = None
    while True:
        asked = {"topics": [], "response_partition_limit": 2, "cursor": cursor}
        answer = channels.ask(Api.DESCRIBE_TOPIC_PARTITIONS, asked)
        page = [(topic.name, entry.partition_index) for topic in answer.topics for entry in topic.partitions]
        assert len(page) <= 2
        found += page
        if answer.next_cursor is None:
            break
        cursor = {"topic_name": answer.next_cursor.topic_name, "partition_index": answer.next_cursor.partition_index}
    assert found == [
        ("__consumer_offsets", 0),
        ("__transaction_state", 0),
        ("a", 0),
        ("a", 1),
        ("a", 2),
        ("t", 0),
        ("t", 1),
    ]
    asked = {"topics": [{"name": "nope"}], "response_partition_limit": 10, "cursor": None}
    (missing,) = channels.ask(Api.DESCRIBE_TOPIC_PARTITIONS, asked).topics
    assert missing.error_code is ErrorCode.unknown_topic_or_partition


def test_where_nobody_logs_in_everybody_may_do_everything(channels: Channels) -> None:
    asked = {"topics": [{"name": "t"}], "include_topic_authorized_operations": True}
    (topic,) = channels.ask(Api.METADATA, asked).topics
    assert topic.topic_authorized_operations == sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))


def test_leaders_stay_and_replicas_cannot_be_moved(channels: Channels) -> None:
    asked: dict[str, Any] = {"election_type": 0, "topic_partitions": [{"topic": "t", "partitions": [0, 9]}]}
    (topic,) = channels.ask(Api.ELECT_LEADERS, asked).replica_election_results
    assert [entry.error_code.name for entry in topic.partition_result] == [
        "election_not_needed",
        "unknown_topic_or_partition",
    ]
    assert (
        channels.ask(Api.ELECT_LEADERS, {"election_type": 0, "topic_partitions": None}).replica_election_results == ()
    )
    partitions = [{"partition_index": 0, "replicas": replicas} for replicas in (None, [1], [1, 2])]
    answer = channels.ask(Api.ALTER_PARTITION_REASSIGNMENTS, {"topics": [{"name": "t", "partitions": partitions}]})
    assert [entry.error_code.name for entry in answer.responses[0].partitions] == [
        "no_reassignment_in_progress", "none", "invalid_replica_assignment",
    ]  # fmt: skip
    assert channels.ask(Api.LIST_PARTITION_REASSIGNMENTS, {"topics": None}).topics == ()


def test_the_quotas_of_the_configuration_are_shown_and_rights_are_said_to_be_there(channels: Channels) -> None:
    (entry,) = channels.ask(Api.DESCRIBE_CLIENT_QUOTAS, {"components": []}).entries
    assert [(value.key, value.value) for value in entry.values] == [("producer_byte_rate", 5_000_000.0)]
    everything = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    assert channels.ask(Api.DESCRIBE_ACLS, everything).error_code is ErrorCode.security_disabled
    assert (
        channels.ask(Api.DELETE_ACLS, {"filters": [everything]}).filter_results[0].error_code
        is ErrorCode.security_disabled
    )
    (user,) = channels.ask(Api.DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": [{"name": "ana"}]}).results
    assert user.error_code is ErrorCode.resource_not_found


def test_the_node_has_settings_and_is_listed_with_the_topics(channels: Channels) -> None:
    resource = {"resource_type": 4, "resource_name": "1", "configuration_keys": None}
    (result,) = channels.ask(Api.DESCRIBE_CONFIGS, {"resources": [resource]}).results
    values = {entry.name: entry.value for entry in result.configs}
    assert values["offsets.retention.minutes"] == "10080" and values["auto.create.topics.enable"] == "false"
    listed = channels.ask(Api.LIST_CONFIG_RESOURCES, {"resource_types": []}).config_resources
    assert {("t", 2), ("1", 4)} <= {(found.resource_name, found.resource_type) for found in listed}


@pytest.mark.parametrize("count", [-2, 0, 10_001])
def test_a_partition_count_that_no_topic_can_have_has_an_error_of_its_own(
    log: Log, channels: Channels, count: int
) -> None:
    topic = {"name": "new", "num_partitions": count, "replication_factor": 1}
    (made,) = channels.ask(Api.CREATE_TOPICS, {"topics": [topic]}).topics
    assert made.error_code is ErrorCode.invalid_partitions
    assert f"cannot have {count} partitions" in made.error_message
    (grown,) = channels.ask(Api.CREATE_PARTITIONS, {"topics": [{"name": "t", "count": count}]}).results
    assert grown.error_code is ErrorCode.invalid_partitions
    assert {name: topic.partition_count for name, topic in log.topics().items()} == {"t": 2}


def test_topics_are_created_with_ids_and_deleted_by_them(log: Log, channels: Channels) -> None:
    topic = {"name": "new", "num_partitions": 1, "replication_factor": 1}
    (made,) = channels.ask(Api.CREATE_TOPICS, {"topics": [topic]}).topics
    assert made.topic_id == log.topic_id("new")
    asked = {"name": None, "topic_id": made.topic_id}
    for topics, name, outcome in (
        ([asked, asked], "new", "invalid_request"),
        ([asked], "new", "none"),
        ([asked], None, "unknown_topic_id"),
    ):
        (entry,) = channels.ask(Api.DELETE_TOPICS, {"topics": topics}).responses
        assert (entry.name, entry.topic_id, entry.error_code.name) == (name, made.topic_id, outcome)
    assert log.topic("new") is None


def test_a_group_that_there_is_not_is_an_error_to_newer_clients(log: Log, channels: Channels) -> None:
    log.committed_offsets("g")  # there is a coordinator
    (found,) = channels.ask(Api.DESCRIBE_GROUPS, {"groups": ["nobody"]}).groups
    assert (found.error_code, found.group_state) == (ErrorCode.group_id_not_found, "Dead")


def test_a_record_without_a_key_is_refused_where_keys_are_what_is_kept(log: Log, server: LogServer) -> None:
    log.create_topic("compacted", 1, {"cleanup.policy": "compact"})
    keyless = RowRecords(rows(b"a").table.set_column(1, "key", [pa.array([None], pa.binary())]))
    with RemoteLog(server.address) as client:
        with pytest.raises(InvalidRecords, match="without a key"):
            client.append("compacted", 0, keyless)
        client.append("t", 0, keyless)
        client.append("compacted", 0, rows(b"a"))
    assert values_of(log, "compacted") == [b"a"]


def test_a_refusal_says_what_to_do_to_every_client(channels: Channels, server: LogServer) -> None:
    wanted = {
        "name": "new", "num_partitions": 1, "replication_factor": 1, "assignments": [],
        "configs": [{"name": "retention.ms", "value": "soon"}],
    }  # fmt: skip
    asked = {"topics": [wanted], "timeout_ms": 10_000, "validate_only": False}
    (refused,) = channels.ask(Api.CREATE_TOPICS, asked).topics
    said = 'retention.ms of topic "new" cannot be "soon"'
    assert refused.error_message == f"INVALID_SETTING: {said}\nIt is a whole number, at least -1."
    with RemoteLog(server.address) as remote, pytest.raises(InvalidSetting) as raised:
        remote.create_topic("new", 1, {"retention.ms": "soon"})
    assert (raised.value.message, raised.value.hint) == (said, "It is a whole number, at least -1.")


def test_a_refusal_without_a_way_out_is_one_line(channels: Channels, server: LogServer) -> None:
    wanted = {"name": "t", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    asked = {"topics": [wanted], "timeout_ms": 10_000, "validate_only": False}
    (refused,) = channels.ask(Api.CREATE_TOPICS, asked).topics
    assert refused.error_message == 'TOPIC_EXISTS: topic "t" exists already'
    with RemoteLog(server.address) as remote, pytest.raises(TopicExists) as raised:
        remote.create_topic("t", 1)
    assert (raised.value.message, raised.value.hint) == ('topic "t" exists already', None)


def test_what_a_client_sent_in_lines_is_not_taken_for_what_to_do(channels: Channels, server: LogServer) -> None:
    value = "new\nUse another"
    wanted = {
        "name": "u", "num_partitions": 1, "replication_factor": 1, "assignments": [],
        "configs": [{"name": "retention.ms", "value": value}],
    }  # fmt: skip
    asked = {"topics": [wanted], "timeout_ms": 10_000, "validate_only": False}
    (refused,) = channels.ask(Api.CREATE_TOPICS, asked).topics
    assert refused.error_message.count("\n") == 1
    with RemoteLog(server.address) as remote, pytest.raises(InvalidSetting) as raised:
        remote.create_topic("u", 1, {"retention.ms": value})
    assert raised.value.message == 'retention.ms of topic "u" cannot be "new Use another"'
    assert raised.value.hint == "It is a whole number, at least -1."
