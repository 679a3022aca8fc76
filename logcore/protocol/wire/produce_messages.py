"""The Produce messages, without kio: record bytes are views of the received frame, and are sent without a copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from ...client import TopicPartition
from ...records.batch import Buffer
from .apis import KNOWN, Api
from .primitives import Reader, Writer

_RECORD_ERRORS_FROM = 8
_ANNOUNCES_FROM = 12
_LOG_START_FROM = 5
_IDS_FROM = 13
_MIRROR_TAG = 10_000  # our own tag; Kafka's tags are small numbers


class ProduceData(NamedTuple):
    """Whole record batches to append to one partition, one after another.

    `topic_id`: set if the client names the topic by id; then `partition` has no topic name until it is looked up.
    """

    partition: TopicPartition
    records: Sequence[Buffer]
    topic_id: bytes = b""


class ProduceRequest(NamedTuple):
    """`acks`: 0: no answer; 1 or -1 (all): an answer when the records are durable. `announces`: the transaction writes
    to partitions that it has not named before. `mirror`: the mirror that sends these copies; each batch contains the
    offset at which it must be stored."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    data: Sequence[ProduceData]
    announces: bool = False
    mirror: str | None = None

    @property
    def topic_ids(self) -> list[bytes]:
        return [each.topic_id for each in self.data]


class ProduceResult(NamedTuple):
    """The result for one partition. `error_code`: the code of the protocol; 0: none."""

    partition: TopicPartition
    error_code: int
    base_offset: int = -1
    log_start_offset: int = -1
    error_message: str | None = None
    record_errors: Sequence[tuple[int, str | None]] = ()
    """The invalid records, by their number in the batch (KIP-467)."""


_Entry = TypeVar("_Entry", ProduceData, ProduceResult)


def read_request(message: memoryview, position: int, version: int) -> ProduceRequest:
    reader = Reader(message, position, flexible=version >= KNOWN[Api.PRODUCE].flexible)
    transactional_id = reader.nullable_string()
    acks, timeout_ms = reader.int16(), reader.int32()
    data: list[ProduceData] = []
    for _ in range(reader.count(2)):
        topic, id = ("", reader.uuid()) if version >= _IDS_FROM else (reader.string(), b"")
        for _ in range(reader.count(5)):
            partition = reader.int32()
            records = reader.nullable_bytes()
            data.append(ProduceData(TopicPartition(topic, partition), [] if records is None else [records], id))
            reader.tags()
        reader.tags()
    mirror = reader.tagged().get(_MIRROR_TAG)
    announces = version >= _ANNOUNCES_FROM
    name = None if mirror is None else bytes(mirror).decode(errors="replace")
    return ProduceRequest(transactional_id, acks, timeout_ms, data, announces, name)


def write_request(request: ProduceRequest, version: int) -> list[Buffer]:
    writer = Writer(flexible=version >= KNOWN[Api.PRODUCE].flexible)
    writer.nullable_string(request.transactional_id)
    writer.int16(request.acks)
    writer.int32(request.timeout_ms)
    by_topic = _by_topic(request.data)
    writer.count(len(by_topic))
    for topic, entries in by_topic.items():
        writer.string(topic)
        writer.count(len(entries))
        for entry in entries:
            writer.int32(entry.partition.partition)
            writer.bytes_of(list(entry.records))
            writer.tags()
        writer.tags()
    writer.tags({} if request.mirror is None else {_MIRROR_TAG: request.mirror.encode()})
    return writer.buffers()


def write_response(
    results: Sequence[ProduceResult], version: int, throttle_ms: int = 0, ids: Sequence[bytes] = ()
) -> list[Buffer]:
    """In: `ids`: the topic's id for each result, if the client has named it by id."""
    writer = Writer(flexible=version >= KNOWN[Api.PRODUCE].flexible)
    by_topic = _by_id(results, ids) if version >= _IDS_FROM else _by_topic(results)
    writer.count(len(by_topic))
    for topic, entries in by_topic.items():
        if isinstance(topic, bytes):
            writer.uuid(topic)
        else:
            writer.string(topic)
        writer.count(len(entries))
        for entry in entries:
            _write_result(writer, entry, version)
        writer.tags()
    writer.int32(throttle_ms)
    writer.tags()
    return writer.buffers()


def _write_result(writer: Writer, result: ProduceResult, version: int) -> None:
    writer.int32(result.partition.partition)
    writer.int16(result.error_code)
    writer.int64(result.base_offset)
    writer.int64(-1)  # log append time: timestamps are the producer's
    if version >= _LOG_START_FROM:
        writer.int64(result.log_start_offset)
    if version >= _RECORD_ERRORS_FROM:
        writer.count(len(result.record_errors))
        for number, message in result.record_errors:
            writer.int32(number)
            writer.nullable_string(message)
            writer.tags()
        writer.nullable_string(result.error_message)
    writer.tags()


def read_response(message: memoryview, position: int, version: int) -> list[ProduceResult]:
    reader = Reader(message, position, flexible=version >= KNOWN[Api.PRODUCE].flexible)
    results: list[ProduceResult] = []
    for _ in range(reader.count(2)):
        topic = reader.string()
        results += [_read_result(reader, topic, version) for _ in range(reader.count(22))]
        reader.tags()
    return results


def _read_result(reader: Reader, topic: str, version: int) -> ProduceResult:
    partition, error_code, base_offset = reader.int32(), reader.int16(), reader.int64()
    reader.int64()  # log append time
    log_start_offset = reader.int64() if version >= _LOG_START_FROM else -1
    message, record_errors = None, list[tuple[int, str | None]]()
    if version >= _RECORD_ERRORS_FROM:
        for _ in range(reader.count(5)):
            record_errors.append((reader.int32(), reader.nullable_string()))
            reader.tags()
        message = reader.nullable_string()
    reader.tags()
    where = TopicPartition(topic, partition)
    return ProduceResult(where, error_code, base_offset, log_start_offset, message, record_errors)


def _by_id(results: Sequence[ProduceResult], ids: Sequence[bytes]) -> dict[bytes, list[ProduceResult]]:
    grouped: dict[bytes, list[ProduceResult]] = {}
    for result, id in zip(results, ids, strict=True):
        grouped.setdefault(id, []).append(result)
    return grouped


def _by_topic(entries: Sequence[_Entry]) -> dict[str, list[_Entry]]:
    grouped: dict[str, list[_Entry]] = {}
    for entry in entries:
        grouped.setdefault(entry.partition.topic, []).append(entry)
    return grouped
