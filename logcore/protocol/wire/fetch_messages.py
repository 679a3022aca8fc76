"""The Fetch messages, without kio: batches are sent from the buffers that they were read into, and arrive as views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from ...client import Isolation, TopicPartition
from ...records.batch import Buffer
from .apis import KNOWN, Api
from .primitives import Reader, Writer

_LOG_START_FROM = 5
_SESSION_FROM = 7
_LEADER_EPOCH_FROM = 9
_RACK_FROM = 11
_LAST_EPOCH_FROM = 12
_IDS_FROM = 13
_REPLICA_TAGGED_FROM = 15

_CONSUMER = -1  # in the field for the node id of a follower
NO_SESSION = 0
_FINAL_EPOCH = -1  # asks for a fetch without a session


PartitionKey = tuple[str | bytes, int]
"""How the client names a partition: by its topic's name, or by its id."""


def key_of(partition: TopicPartition, topic_id: bytes) -> PartitionKey:
    return topic_id or partition.topic, partition.partition


@dataclass(frozen=True, slots=True)
class FetchPosition:
    """`bytes_max`: the limit for records, except that the first batch may exceed it; 0: only offsets. `topic_id`: set
    if the client names the topic by id; then `partition` has no topic name until it is looked up."""

    partition: TopicPartition
    offset: int
    bytes_max: int
    leader_epoch: int = -1  # the epoch that the client knows; -1: none
    topic_id: bytes = b""

    @property
    def key(self) -> PartitionKey:
        return key_of(self.partition, self.topic_id)


@dataclass(frozen=True, slots=True)
class ClientFetch:
    """It is answered as soon as there are `bytes_min` bytes, or after `wait_ms_max`.

    In a session, `positions` are those that have changed since its last request, and `forgotten` those to remove from
    it (see `fetch_sessions.py`).
    """

    wait_ms_max: int
    bytes_min: int
    bytes_max: int
    isolation: Isolation
    positions: Sequence[FetchPosition]
    session_id: int = NO_SESSION
    session_epoch: int = _FINAL_EPOCH
    forgotten: Sequence[PartitionKey] = ()
    rack: str = ""
    by_id: bool = False


class AbortedTransaction(NamedTuple):
    """From `first_offset` up to the transaction's marker, readers skip the records of this producer."""

    producer_id: int
    first_offset: int


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """`records`: whole batches; the first may begin before the requested offset.

    `preferred_replica`: the node from which the client should read instead; then there are no records. -1: none.
    """

    partition: TopicPartition
    error_code: int
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: Sequence[AbortedTransaction] = ()
    records: Sequence[Buffer] = ()
    preferred_replica: int = -1
    topic_id: bytes = b""

    @property
    def key(self) -> PartitionKey:
        return key_of(self.partition, self.topic_id)

    @property
    def size(self) -> int:
        return sum(map(len, self.records))


def read_request(message: memoryview, position: int, version: int) -> ClientFetch:
    reader = Reader(message, position, flexible=version >= KNOWN[Api.FETCH].flexible)
    if version < _REPLICA_TAGGED_FROM:
        reader.int32()  # replica id
    wait_ms_max, bytes_min, bytes_max = reader.int32(), reader.int32(), reader.int32()
    isolation: Isolation = "read_committed" if reader.int8() == 1 else "read_uncommitted"
    session_id, session_epoch = NO_SESSION, _FINAL_EPOCH
    if version >= _SESSION_FROM:
        session_id, session_epoch = reader.int32(), reader.int32()
    positions: list[FetchPosition] = []
    for _ in range(reader.count(2)):
        topic, id = ("", reader.uuid()) if version >= _IDS_FROM else (reader.string(), b"")
        positions += [_read_position(reader, topic, id, version) for _ in range(reader.count(16))]
        reader.tags()
    forgotten = _read_forgotten(reader, version) if version >= _SESSION_FROM else ()
    rack = reader.string() if version >= _RACK_FROM else ""
    return ClientFetch(
        wait_ms_max,
        bytes_min,
        bytes_max,
        isolation,
        positions,
        session_id,
        session_epoch,
        forgotten,
        rack,
        by_id=version >= _IDS_FROM,
    )


def _read_forgotten(reader: Reader, version: int) -> tuple[PartitionKey, ...]:
    forgotten: list[PartitionKey] = []
    for _ in range(reader.count(2)):
        topic = reader.uuid() if version >= _IDS_FROM else reader.string()
        forgotten += [(topic, reader.int32()) for _ in range(reader.count(4))]
        reader.tags()
    return tuple(forgotten)


def _read_position(reader: Reader, topic: str, topic_id: bytes, version: int) -> FetchPosition:
    partition = reader.int32()
    leader_epoch = reader.int32() if version >= _LEADER_EPOCH_FROM else -1
    offset = reader.int64()
    if version >= _LAST_EPOCH_FROM:
        reader.int32()
    if version >= _LOG_START_FROM:
        reader.int64()
    bytes_max = reader.int32()
    reader.tags()
    return FetchPosition(TopicPartition(topic, partition), offset, bytes_max, leader_epoch, topic_id)


def write_request(request: ClientFetch, version: int) -> list[Buffer]:
    writer = Writer(flexible=version >= KNOWN[Api.FETCH].flexible)
    for number in (_CONSUMER, request.wait_ms_max, request.bytes_min, request.bytes_max):
        writer.int32(number)
    writer.int8(1 if request.isolation == "read_committed" else 0)
    if version >= _SESSION_FROM:
        writer.int32(request.session_id)
        writer.int32(request.session_epoch)
    by_topic = _by_topic(request.positions)
    writer.count(len(by_topic))
    for topic, positions in by_topic.items():
        _write_topic(writer, topic)
        writer.count(len(positions))
        for position in positions:
            _write_position(writer, position, version)
        writer.tags()
    if version >= _SESSION_FROM:
        _write_forgotten(writer, request.forgotten)
    if version >= _RACK_FROM:
        writer.string("")
    writer.tags()
    return writer.buffers()


def _write_forgotten(writer: Writer, forgotten: Sequence[PartitionKey]) -> None:
    writer.count(len(forgotten))
    for topic, partition in forgotten:
        _write_topic(writer, topic)
        writer.count(1)
        writer.int32(partition)
        writer.tags()


def _write_position(writer: Writer, position: FetchPosition, version: int) -> None:
    writer.int32(position.partition.partition)
    if version >= _LEADER_EPOCH_FROM:
        writer.int32(position.leader_epoch)
    writer.int64(position.offset)
    if version >= _LAST_EPOCH_FROM:
        writer.int32(-1)
    if version >= _LOG_START_FROM:
        writer.int64(-1)
    writer.int32(position.bytes_max)
    writer.tags()


def write_response(
    fetched: Sequence[FetchedPartition],
    version: int,
    error_code: int = 0,
    throttle_ms: int = 0,
    session_id: int = NO_SESSION,
) -> list[Buffer]:
    """In: `error_code`: an error of the whole request."""
    writer = Writer(flexible=version >= KNOWN[Api.FETCH].flexible)
    writer.int32(throttle_ms)
    if version >= _SESSION_FROM:
        writer.int16(error_code)
        writer.int32(session_id)
    by_topic = _by_topic(fetched)
    writer.count(len(by_topic))
    for topic, entries in by_topic.items():
        _write_topic(writer, topic)
        writer.count(len(entries))
        for entry in entries:
            _write_fetched(writer, entry, version)
        writer.tags()
    writer.tags()
    return writer.buffers()


def _write_fetched(writer: Writer, fetched: FetchedPartition, version: int) -> None:
    writer.int32(fetched.partition.partition)
    writer.int16(fetched.error_code)
    writer.int64(fetched.high_watermark)
    writer.int64(fetched.last_stable_offset)
    if version >= _LOG_START_FROM:
        writer.int64(fetched.log_start_offset)
    writer.count(len(fetched.aborted))
    for transaction in fetched.aborted:
        writer.int64(transaction.producer_id)
        writer.int64(transaction.first_offset)
        writer.tags()
    if version >= _RACK_FROM:
        writer.int32(fetched.preferred_replica)
    writer.bytes_of(list(fetched.records))
    writer.tags()


def read_response(message: memoryview, position: int, version: int) -> tuple[int, list[FetchedPartition]]:
    """The error code of the whole answer, and the result of each partition."""
    reader = Reader(message, position, flexible=version >= KNOWN[Api.FETCH].flexible)
    reader.int32()  # throttle time
    error_code = 0
    if version >= _SESSION_FROM:
        error_code = reader.int16()
        reader.int32()
    fetched: list[FetchedPartition] = []
    for _ in range(reader.count(2)):
        topic = reader.uuid() if version >= _IDS_FROM else reader.string()
        fetched += [_read_fetched(reader, topic, version) for _ in range(reader.count(20))]
        reader.tags()
    return error_code, fetched


def _read_fetched(reader: Reader, topic: str | bytes, version: int) -> FetchedPartition:
    partition, error_code = reader.int32(), reader.int16()
    high_watermark, last_stable_offset = reader.int64(), reader.int64()
    log_start_offset = reader.int64() if version >= _LOG_START_FROM else -1
    aborted: list[AbortedTransaction] = []
    for _ in range(reader.count(16)):
        aborted.append(AbortedTransaction(reader.int64(), reader.int64()))
        reader.tags()
    preferred_replica = reader.int32() if version >= _RACK_FROM else -1
    records = reader.nullable_bytes()
    reader.tags()
    name, id = (topic, b"") if isinstance(topic, str) else ("", topic)
    return FetchedPartition(
        TopicPartition(name, partition),
        error_code,
        high_watermark,
        last_stable_offset,
        log_start_offset,
        aborted,
        [] if records is None else [records],
        preferred_replica,
        id,
    )


_Entry = TypeVar("_Entry", FetchPosition, FetchedPartition)


def _by_topic(entries: Sequence[_Entry]) -> dict[str | bytes, list[_Entry]]:
    """Keeps the order, on which clients that fetch from many partitions rely. By topic id if the client uses ids."""
    grouped: dict[str | bytes, list[_Entry]] = {}
    for entry in entries:
        grouped.setdefault(entry.key[0], []).append(entry)
    return grouped


def _write_topic(writer: Writer, topic: str | bytes) -> None:
    if isinstance(topic, bytes):
        writer.uuid(topic)
    else:
        writer.string(topic)
