"""Share groups as a client asks for them by hand: sessions, acknowledgements, rights and what is refused."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import timedelta
from enum import IntEnum
from typing import Any

import pytest

from millstream.logcore.client import TopicPartition
from millstream.logcore.error_codes import ErrorCode
from millstream.logcore.log import Log
from millstream.logcore.log_settings import of_group
from millstream.logcore.protocol.channel import Address, Channels
from millstream.logcore.protocol.wire.apis import Api
from millstream.logcore.server import LogServer

from ..log_records import rows

GROUP = "workers"
ACCEPT, RELEASE = 1, 2


@pytest.fixture
def server(log: Log) -> Iterator[LogServer]:
    with LogServer(log, port=0) as running:
        yield running


class Member:
    """State: its connection, and the epoch of its session."""

    def __init__(self, server: LogServer, name: str, group: str = GROUP) -> None:
        self.channels = Channels(Address("127.0.0.1", server.port))
        self.name, self.group, self.epoch = name, group, 0
        self.topic_id = uuid.UUID(hex=server.log.topic_id("t"))

    def beat(self, epoch: int = 0, *topics: str) -> Any:
        self.channels.ask(Api.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": [self.group]})
        about = {"group_id": self.group, "member_id": self.name, "member_epoch": epoch}
        return self.channels.ask(Api.SHARE_GROUP_HEARTBEAT, {**about, "subscribed_topic_names": topics or ("t",)})

    def fetch(self, *acks: tuple[int, int, int], epoch: int | None = None, wait_ms: int = 0, **fields: Any) -> Any:
        """The answer. In: `acks`: first and last offset, and the verdict."""
        used = self.epoch if epoch is None else epoch
        answer = self.channels.ask(
            Api.SHARE_FETCH,
            {
                "group_id": self.group,
                "member_id": self.name,
                "share_session_epoch": used,
                "max_wait": timedelta(milliseconds=wait_ms),
                "min_bytes": 1,
                "max_bytes": 1 << 20,
                "max_records": 500,
                "topics": self._topics(acks),
                **fields,
            },
        )
        self.epoch = used + 1 if epoch is None else self.epoch
        return answer

    def acknowledge(self, *acks: tuple[int, int, int], epoch: int | None = None) -> Any:
        used = self.epoch if epoch is None else epoch
        about = {"group_id": self.group, "member_id": self.name, "share_session_epoch": used}
        answer = self.channels.ask(Api.SHARE_ACKNOWLEDGE, {**about, "topics": self._topics(acks)})
        self.epoch = used + 1
        return answer

    def _topics(self, acks: tuple[tuple[int, int, int], ...]) -> list[Any]:
        batches = [
            {"first_offset": first, "last_offset": last, "acknowledge_types": (verdict,)}
            for first, last, verdict in acks
        ]
        return [{"topic_id": self.topic_id, "partitions": [{"partition_index": 0, "acknowledgement_batches": batches}]}]


def spans(answer: Any) -> list[tuple[int, int, int]]:
    assert answer.error_code is ErrorCode.none
    return [
        (each.first_offset, each.last_offset, each.delivery_count)
        for topic in answer.responses
        for entry in topic.partitions
        for each in entry.acquired_records
    ]


class Resource(IntEnum):
    BROKER = 4
    GROUP = 32


def set_of(member: Member, kind: Resource, name: str, settings: dict[str, str]) -> ErrorCode:
    changes = [{"name": name, "config_operation": 0, "value": value} for name, value in settings.items()]
    resource = {"resource_type": kind, "resource_name": name, "configs": changes}
    (found,) = member.channels.ask(Api.INCREMENTAL_ALTER_CONFIGS, {"resources": [resource]}).responses
    return found.error_code


def lock_ms(log: Log, member: Member) -> int:
    """For how long a record is the member's."""
    log.append("t", 0, rows(b"a"))
    return int(member.fetch().acquisition_lock_timeout / timedelta(milliseconds=1))


def entry(answer: Any) -> Any:
    ((found,),) = [topic.partitions for topic in answer.responses]
    return found


@pytest.fixture
def member(log: Log, server: LogServer) -> Iterator[Member]:
    log.serving(None).log.change_settings(of_group(GROUP), {"share.auto.offset.reset": "earliest"})
    found = Member(server, "a")
    found.beat()
    yield found
    found.channels.close()


def test_records_are_fetched_and_accepted_in_one_request(log: Log, member: Member) -> None:
    log.append("t", 0, rows(b"a", b"b"))
    log.append("t", 0, rows(b"c"))
    assert spans(member.fetch()) == [(0, 1, 1), (2, 2, 1)]
    answer = member.fetch((0, 0, ACCEPT), (1, 1, RELEASE))
    assert entry(answer).acknowledge_error_code == 0
    assert spans(answer) == [(1, 1, 2)]
    refused = member.fetch((7, 7, ACCEPT))
    assert entry(refused).acknowledge_error_code == ErrorCode.invalid_record_state


def test_acknowledgements_alone_take_a_turn_of_the_session(log: Log, member: Member) -> None:
    log.append("t", 0, rows(b"a"))
    member.fetch()
    assert entry(member.acknowledge((0, 0, ACCEPT))).error_code is ErrorCode.none
    assert member.acknowledge((0, 0, ACCEPT), epoch=0).error_code is ErrorCode.invalid_share_session_epoch
    assert member.acknowledge((0, 0, ACCEPT), epoch=77).error_code is ErrorCode.invalid_share_session_epoch


def test_a_session_begins_with_nothing_to_acknowledge(member: Member) -> None:
    assert member.fetch((0, 0, ACCEPT)).error_code is ErrorCode.invalid_request


def test_the_end_of_a_session_frees_records(log: Log, server: LogServer, member: Member) -> None:
    log.append("t", 0, rows(b"a"))
    member.fetch()
    assert member.acknowledge(epoch=-1).error_code is ErrorCode.none
    other = Member(server, "b")
    assert spans(other.fetch()) == [(0, 0, 2)]
    other.channels.close()
    third = Member(server, "c")
    assert spans(third.fetch(wait_ms=10_000)) == [(0, 0, 3)]  # b's connection is closed
    third.channels.close()


def test_a_fetch_waits_for_records(log: Log, server: LogServer, member: Member) -> None:
    assert spans(member.fetch()) == []
    log.append("t", 0, rows(b"a"))
    assert spans(member.fetch(wait_ms=10_000)) == [(0, 0, 1)]


def test_what_is_not_there_is_refused(log: Log, server: LogServer, member: Member) -> None:
    stranger = Member(server, "a", "nobody")
    assert entry(stranger.fetch()).error_code is ErrorCode.group_id_not_found
    stranger.topic_id = uuid.UUID(int=5)
    assert entry(stranger.fetch(epoch=0)).error_code is ErrorCode.unknown_topic_id
    stranger.channels.close()
    nameless = Member(server, "")
    assert nameless.fetch().error_code is ErrorCode.invalid_request
    nameless.name = "x" * 256
    assert nameless.fetch(epoch=0).error_code is ErrorCode.invalid_request
    assert nameless.beat().error_code is ErrorCode.invalid_request
    nameless.channels.close()


def test_settings_of_share_groups_are_checked(server: LogServer, member: Member) -> None:
    def set_to(name: str, value: str) -> ErrorCode:
        return set_of(member, Resource.GROUP, GROUP, {name: value})

    assert set_to("share.auto.offset.reset", "by_duration:PT1H") is ErrorCode.none
    assert set_to("share.auto.offset.reset", "sometimes") is ErrorCode.invalid_config
    assert set_to("share.record.lock.duration.ms", "15000") is ErrorCode.none
    assert set_to("share.record.lock.duration.ms", "14999") is ErrorCode.invalid_config
    assert set_to("share.record.lock.duration.ms", "60000") is ErrorCode.none
    assert set_to("share.record.lock.duration.ms", "60001") is ErrorCode.invalid_config
    assert set_to("share.isolation.level", "serializable") is ErrorCode.invalid_config
    assert set_to("share.heartbeat.interval.ms", "45000") is ErrorCode.invalid_config  # not below the session
    assert set_to("share.delivery.count.limit", "1") is ErrorCode.invalid_config


def test_all_brokers_say_what_groups_may_set_and_what_holds_for_the_others(
    log: Log, server: LogServer, member: Member
) -> None:
    def all_brokers(**settings: str) -> ErrorCode:
        named = {f"group.share.{name.replace('_', '.')}": value for name, value in settings.items()}
        return set_of(member, Resource.BROKER, "", named)

    assert all_brokers(record_lock_duration_ms="5000") is ErrorCode.invalid_config  # groups could not set it
    assert all_brokers(min_record_lock_duration_ms="999") is ErrorCode.invalid_config
    assert all_brokers(record_lock_duration_ms="5000", min_record_lock_duration_ms="1000") is ErrorCode.none
    assert lock_ms(log, member) == 5_000
    assert set_of(member, Resource.GROUP, GROUP, {"share.record.lock.duration.ms": "1000"}) is ErrorCode.none
    assert lock_ms(log, member) == 1_000
    assert set_of(member, Resource.BROKER, "1", {"group.share.max.size": "3"}) is ErrorCode.invalid_config
    assert all_brokers(max_size="1001") is ErrorCode.invalid_config


def test_a_share_group_has_so_many_members_as_brokers_allow(server: LogServer, member: Member) -> None:
    assert set_of(member, Resource.BROKER, "", {"group.share.max.size": "2"}) is ErrorCode.none
    second, third = Member(server, "b"), Member(server, "c")
    try:
        assert second.beat().error_code is ErrorCode.none
        assert third.beat().error_code is ErrorCode.group_max_size_reached
        assert set_of(member, Resource.BROKER, "", {"group.share.max.size": "3"}) is ErrorCode.none
        assert third.beat().error_code is ErrorCode.none
    finally:
        second.channels.close()
        third.channels.close()


def test_a_node_keeps_so_many_share_sessions_as_brokers_allow(server: LogServer, member: Member) -> None:
    assert set_of(member, Resource.BROKER, "", {"group.share.max.share.sessions": "1"}) is ErrorCode.none
    assert member.fetch().error_code is ErrorCode.none
    second = Member(server, "b")
    try:
        second.beat()
        assert second.fetch().error_code is ErrorCode.share_session_limit_reached
    finally:
        second.channels.close()


def test_a_broker_describes_what_holds_for_share_groups_also_where_nothing_is_set(member: Member) -> None:
    """The names and defaults of Apache Kafka 4.3."""
    asked = {"resource_type": 4, "resource_name": "1", "configuration_keys": None}
    (found,) = member.channels.ask(Api.DESCRIBE_CONFIGS, {"resources": [asked]}).results
    values = {each.name: each.value for each in found.configs if each.name.startswith("group.share.")}
    assert values == {
        "group.share.session.timeout.ms": "45000",
        "group.share.min.session.timeout.ms": "45000",
        "group.share.max.session.timeout.ms": "60000",
        "group.share.heartbeat.interval.ms": "5000",
        "group.share.min.heartbeat.interval.ms": "5000",
        "group.share.max.heartbeat.interval.ms": "15000",
        "group.share.record.lock.duration.ms": "30000",
        "group.share.min.record.lock.duration.ms": "15000",
        "group.share.max.record.lock.duration.ms": "60000",
        "group.share.delivery.count.limit": "5",
        "group.share.min.delivery.count.limit": "2",
        "group.share.max.delivery.count.limit": "10",
        "group.share.partition.max.record.locks": "2000",
        "group.share.min.partition.max.record.locks": "100",
        "group.share.max.partition.max.record.locks": "4000",
        "group.share.max.size": "200",
        "group.share.max.share.sessions": "2000",
    }


def test_who_asks_for_consumer_groups_sees_no_share_groups(log: Log, member: Member) -> None:
    log.commit_offsets("readers", {TopicPartition("t", 0): 1})
    assert log.groups.names() == ["readers"]
    (*_, found) = sorted(member.channels.ask(Api.LIST_GROUPS, {}).groups, key=lambda each: each.group_type)
    assert (found.group_id, found.group_type) == (GROUP, "share")


def test_offsets_of_a_group_are_described_set_and_deleted(log: Log, member: Member) -> None:
    log.append("t", 0, rows(b"a", b"b", b"c"))
    member.fetch()
    member.acknowledge((0, 0, ACCEPT))

    def described() -> list[tuple[int, int]]:
        asked = {"groups": [{"group_id": GROUP, "topics": None}]}
        (group,) = member.channels.ask(Api.DESCRIBE_SHARE_GROUP_OFFSETS, asked).groups
        return [(row.start_offset, row.lag) for topic in group.topics for row in topic.partitions]

    assert described() == [(1, 2)]
    partition = {"partition_index": 0, "start_offset": 2}
    to_two: dict[str, Any] = {"group_id": GROUP, "topics": [{"topic_name": "t", "partitions": [partition]}]}
    assert member.channels.ask(Api.ALTER_SHARE_GROUP_OFFSETS, to_two).error_code is ErrorCode.non_empty_group
    member.beat(-1)
    assert member.channels.ask(Api.ALTER_SHARE_GROUP_OFFSETS, to_two).error_code is ErrorCode.none
    absent = {"topic_name": "t", "partitions": [{"partition_index": -1, "start_offset": 2}]}
    twice = {"group_id": GROUP, "topics": [*to_two["topics"], absent]}
    answer = member.channels.ask(Api.ALTER_SHARE_GROUP_OFFSETS, twice)
    codes = [row.error_code for topic in answer.responses for row in topic.partitions]
    assert codes == [ErrorCode.none, ErrorCode.unknown_topic_or_partition]
    assert described() == [(2, 1)]
    topics = [{"topic_name": "t"}, {"topic_name": "missing"}]
    deleted = member.channels.ask(Api.DELETE_SHARE_GROUP_OFFSETS, {"group_id": GROUP, "topics": topics})
    assert [row.error_code for row in deleted.responses] == [ErrorCode.none, ErrorCode.unknown_topic_or_partition]
    assert described() == []
