"""Produce and Fetch messages that are written by hand are what kio's schemas say, in every version that we know."""

from __future__ import annotations

import importlib
import io
from collections.abc import Sequence
from typing import Any

import pytest
from kio.serial import entity_reader, entity_writer

from millstream.logcore.client import TopicPartition
from millstream.logcore.protocol.wire import fetch_messages as fetch
from millstream.logcore.protocol.wire import produce_messages as produce
from millstream.logcore.protocol.wire.apis import KNOWN, Api
from millstream.logcore.protocol.wire.fetch_messages import (
    AbortedTransaction,
    ClientFetch,
    FetchedPartition,
    FetchPosition,
)
from millstream.logcore.protocol.wire.primitives import MalformedMessage
from millstream.logcore.protocol.wire.produce_messages import ProduceData, ProduceRequest, ProduceResult

PARTITIONS = [TopicPartition("a", 0), TopicPartition("a", 7), TopicPartition("long" * 50, 1)]

PRODUCE_REQUEST = ProduceRequest(
    "id", -1, 1000, [ProduceData(where, [b"batch" * (where.partition + 1), b"more"]) for where in PARTITIONS]
)
PRODUCE_RESULTS = [
    ProduceResult(PARTITIONS[0], 0, 5, 2),
    ProduceResult(PARTITIONS[1], 3, error_message="no"),
    ProduceResult(PARTITIONS[2], 0, 1 << 40, 0),
]
FETCH_REQUEST = ClientFetch(
    500, 1, 1 << 20, "read_committed", [FetchPosition(where, 1 << 33, 4096) for where in PARTITIONS]
)
FETCHED = [
    FetchedPartition(PARTITIONS[0], 0, 9, 8, 1, [AbortedTransaction(4, 3), AbortedTransaction(5, 6)], [b"x", b"yz"]),
    FetchedPartition(PARTITIONS[1], 1),
    FetchedPartition(PARTITIONS[2], 0, 0, 0, 0, [], [b"z" * 300]),
]

BY_NAME = 12  # later versions name topics by their ids: tests/logcore/clients asks in them, beside Apache Kafka
assert KNOWN[Api.PRODUCE].newest > BY_NAME and KNOWN[Api.FETCH].newest > BY_NAME

produce_versions = pytest.mark.parametrize("version", range(KNOWN[Api.PRODUCE].oldest, BY_NAME + 1))
fetch_versions = pytest.mark.parametrize("version", range(KNOWN[Api.FETCH].oldest, BY_NAME + 1))


def joined(buffers: Sequence[Any]) -> bytes:
    return b"".join(buffers)


def by_kio(message: bytes, api: str, version: int, side: str) -> Any:
    """What kio reads; what kio then writes is the same bytes."""
    module = importlib.import_module(f"kio.schema.{api}.v{version}.{side}")
    kind = getattr(module, f"{api}{side}".title().replace(side, side.title()))
    entity, size = entity_reader(kind)(message, 0)
    assert size == len(message)
    out = io.BytesIO()
    entity_writer(kind)(out, entity)
    assert out.getvalue() == message
    return entity


@produce_versions
def test_produce_requests_round_trip(version: int) -> None:
    message = joined(produce.write_request(PRODUCE_REQUEST, version))
    entity = by_kio(message, "produce", version, "request")
    assert (entity.transactional_id, entity.acks) == ("id", -1)
    assert [topic.name for topic in entity.topic_data] == ["a", "long" * 50]
    read = produce.read_request(memoryview(message), 0, version)
    assert [(data.partition, joined(data.records)) for data in read.data] == [
        (data.partition, joined(data.records)) for data in PRODUCE_REQUEST.data
    ]
    assert (read.transactional_id, read.acks, read.timeout_ms) == ("id", -1, 1000)


@produce_versions
def test_produce_responses_round_trip(version: int) -> None:
    message = joined(produce.write_response(PRODUCE_RESULTS, version))
    entity = by_kio(message, "produce", version, "response")
    assert [partition.base_offset for topic in entity.responses for partition in topic.partition_responses] == [
        result.base_offset for result in PRODUCE_RESULTS
    ]
    read = produce.read_response(memoryview(message), 0, version)
    assert [(result.partition, result.error_code, result.base_offset) for result in read] == [
        (result.partition, result.error_code, result.base_offset) for result in PRODUCE_RESULTS
    ]
    if version >= 8:
        assert [result._replace(record_errors=tuple(result.record_errors)) for result in read] == PRODUCE_RESULTS


@fetch_versions
def test_fetch_requests_round_trip(version: int) -> None:
    message = joined(fetch.write_request(FETCH_REQUEST, version))
    entity = by_kio(message, "fetch", version, "request")
    assert [partition.fetch_offset for topic in entity.topics for partition in topic.partitions] == [1 << 33] * 3
    assert fetch.read_request(memoryview(message), 0, version) == FETCH_REQUEST


@fetch_versions
def test_fetch_responses_round_trip(version: int) -> None:
    message = joined(fetch.write_response(FETCHED, version))
    entity = by_kio(message, "fetch", version, "response")
    assert [partition.records for topic in entity.responses for partition in topic.partitions] == [
        joined(entry.records) for entry in FETCHED
    ]
    error_code, read = fetch.read_response(memoryview(message), 0, version)
    assert error_code == 0
    for found, entry in zip(read, FETCHED, strict=True):
        assert joined(found.records) == joined(entry.records)
        assert (found.partition, found.error_code, list(found.aborted)) == (
            entry.partition,
            entry.error_code,
            list(entry.aborted),
        )
        assert (found.high_watermark, found.last_stable_offset) == (entry.high_watermark, entry.last_stable_offset)


def test_a_mirror_is_named_in_a_tag_that_others_pass_over() -> None:
    message = joined(produce.write_request(PRODUCE_REQUEST._replace(mirror="shop"), BY_NAME))
    read = produce.read_request(memoryview(message), 0, BY_NAME)
    assert (read.mirror, len(read.data)) == ("shop", len(PRODUCE_REQUEST.data))
    assert (
        produce.read_request(memoryview(joined(produce.write_request(PRODUCE_REQUEST, BY_NAME))), 0, BY_NAME).mirror
        is None
    )


def test_topics_that_go_by_their_ids_are_fetched_so() -> None:
    id, by_id = b"0123456789abcdef", BY_NAME + 1
    positions = [FetchPosition(TopicPartition("a", number), 5, 4096, topic_id=id) for number in range(2)]
    message = joined(fetch.write_request(ClientFetch(500, 1, 1 << 20, "read_committed", positions), by_id))
    entity = by_kio(message, "fetch", by_id, "request")
    assert [topic.topic_id.bytes for topic in entity.topics] == [id]
    answered = [FetchedPartition(TopicPartition("a", 1), 0, 9, 8, 1, [], [b"x"], topic_id=id)]
    message = joined(fetch.write_response(answered, by_id))
    by_kio(message, "fetch", by_id, "response")
    [read] = fetch.read_response(memoryview(message), 0, by_id)[1]
    assert (read.topic_id, read.partition.partition, joined(read.records)) == (id, 1, b"x")


@pytest.mark.parametrize("version", [3, 9])
def test_a_produce_request_that_is_cut_off_is_malformed_at_every_byte(version: int) -> None:
    message = memoryview(joined(produce.write_request(PRODUCE_REQUEST, version)))
    for end in range(len(message)):
        with pytest.raises(MalformedMessage):
            produce.read_request(message[:end], 0, version)


@pytest.mark.parametrize("version", [4, 12])
def test_a_fetch_response_that_is_cut_off_is_malformed_at_every_byte(version: int) -> None:
    message = memoryview(joined(fetch.write_response(FETCHED, version)))
    for end in range(len(message) - (1 if version == 12 else 0)):  # its last byte says: no tagged fields
        with pytest.raises(MalformedMessage):
            fetch.read_response(message[:end], 0, version)
