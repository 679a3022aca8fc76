"""Answers to Produce and Fetch."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import structlog

from millstream.errors import LogError

from ...client import Offsets
from ...error_codes import ErrorCode
from ...errors import (
    InconsistentTopicId,
    InvalidRecords,
    InvalidTransactionState,
    OffsetOutOfRange,
    RejectedRecords,
    UnknownTopic,
    UnknownTopicId,
)
from ...records.batch import COLUMNAR, COMPRESSION, HEADER_SIZE, Buffer, EncodedBatch, read_header
from ...storage.partition_files import PartitionFiles
from ..connection import Answer, KafkaRequest
from ..incoming import check_keys, check_times, checked_batches
from ..kafka_service import Desk, KafkaService
from ..layout import NOBODY
from ..security.access import check_readable
from ..security.accesses import WRITE_TRANSACTION
from ..security.peer import Peer
from ..served_log import ServedLog
from ..stored import StoredBytes, read_stored
from ..wire import fetch_messages as fetch
from ..wire.faults import code_of, message_of
from ..wire.fetch_messages import ClientFetch, FetchedPartition, FetchPosition
from ..wire.produce_messages import ProduceData, ProduceRequest, ProduceResult

_ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
_WAIT_MS_MAX: Final = 5 * 60 * 1000
_LIGHT_BYTES_MAX: Final = 64 * 1024
_LIGHT_ROWS_MAX: Final = 15

_log = structlog.get_logger("millstream.logcore")


def named(log: ServedLog, asked: ProduceRequest) -> ProduceRequest:
    """The request with the names of topics that it names by id; the name of an unknown topic stays empty."""
    if not any(asked.topic_ids):
        return asked
    names = {id: log.topic_name(id) or "" for id in set(asked.topic_ids)}
    data = [each._replace(partition=each.partition._replace(topic=names[each.topic_id])) for each in asked.data]
    return asked._replace(data=data)


def check_same_topic(log: ServedLog, topic: str, topic_id: bytes) -> None:
    """Checks that the topic of this name is the one that the client means, if it has sent an id. Call it after the
    partition was found. Raises `UnknownTopic`."""
    if not topic_id or (topic and log.topic_name(topic_id) == topic):
        return
    if topic and log.topic(topic) is None:
        raise UnknownTopic(f'topic "{topic}" does not exist any more')
    if topic:
        raise InconsistentTopicId(f'topic "{topic}" has another id than {topic_id.hex()}: it was deleted and made anew')
    raise UnknownTopicId(f"no topic has the id {topic_id.hex()}")


async def refused_transaction(broker: KafkaService, asked: ProduceRequest, peer: Peer) -> list[ProduceResult] | None:
    """The results if the client may not use the transactional id; None if it may."""
    if asked.transactional_id is None:
        return None
    await broker.wait_for_names(peer)
    if not broker.refuses(peer, asked.transactional_id, WRITE_TRANSACTION):
        return None
    code = ErrorCode.transactional_id_authorization_failed
    return [ProduceResult(data.partition, code) for data in asked.data]


def is_light(records: Sequence[Buffer]) -> bool:
    """Whether it is one small batch of a few records that are not compressed."""
    if len(records) != 1 or not HEADER_SIZE <= len(records[0]) <= _LIGHT_BYTES_MAX:
        return False
    header = read_header(records[0])
    return (
        header.size == len(records[0])
        and header.record_count <= _LIGHT_ROWS_MAX
        and not header.attributes & (COMPRESSION | COLUMNAR)
    )


def answered(body: list[Buffer] | None) -> Answer:
    """An answer that is ready."""
    answer: asyncio.Future[list[Buffer] | None] = asyncio.get_running_loop().create_future()
    answer.set_result(body)
    return answer


def checked_write(
    partition: PartitionFiles, transactional_id: str | None, data: ProduceData, peer: Peer, now_ms: int
) -> list[EncodedBatch]:
    """The batches to append to the partition. Raises `LogError`.

    The topic's `max.message.bytes` and its limits for times apply to third-party clients only. What queries write is
    limited by the largest size of a value; refusing one of their batches would stop the query.
    """
    batches = [batch for records in data.records for batch in checked_batches(memoryview(records))]
    if not batches:
        raise InvalidRecords("a partition's data holds no record batch")
    if not peer.trusted:
        for batch in batches:
            partition.check_size(batch.header)
        if partition.settings.compacted:
            check_keys(batches)
        check_times(batches, partition.settings, now_ms)
    if transactional_id is None and any(batch.header.transactional for batch in batches):
        raise InvalidTransactionState("records of a transaction come with its id")
    return batches


def failed(data: ProduceData, error: LogError) -> ProduceResult:
    reasons = error.reasons if isinstance(error, RejectedRecords) else {}
    return ProduceResult(
        data.partition, code_of(error), error_message=message_of(error), record_errors=list(reasons.items())
    )


async def answer_fetch(broker: KafkaService, request: KafkaRequest) -> list[Buffer]:
    """Waits until there is as much as the client wants, at most for the time that it sets."""
    version = request.header.version
    asked = fetch.read_request(request.message, request.position, version)
    if asked.by_id:  # look up the names now, because a session remembers them
        asked = replace(asked, positions=[_named_position(broker.log, each) for each in asked.positions])
    turn = broker.sessions.turn(asked, time.monotonic())
    if turn.error is not ErrorCode.none:
        return fetch.write_response([], version, int(turn.error))
    asked = replace(asked, positions=turn.positions)
    deadline = time.monotonic() + min(max(asked.wait_ms_max, 0), _WAIT_MS_MAX) / 1000
    while True:
        advance = broker.next_advance()
        fetched = await broker.blocking(partial(read_all, broker, asked, request.peer))
        left_s = deadline - time.monotonic()
        if left_s <= 0 or _is_enough(asked, fetched):
            break
        try:
            await asyncio.wait_for(advance.wait(), left_s)
        except TimeoutError:
            break
    throttle_ms = broker.throttle(request.peer, fetched=sum(entry.size for entry in fetched))
    return fetch.write_response(turn.news(fetched), version, throttle_ms=throttle_ms, session_id=turn.session_id)


def _is_enough(asked: ClientFetch, fetched: Sequence[FetchedPartition]) -> bool:
    if not fetched or any(entry.error_code or entry.preferred_replica != NOBODY for entry in fetched):
        return True
    if sum(entry.size for entry in fetched) >= asked.bytes_min:
        return True
    return any(
        not position.bytes_max and _visible_end(asked, entry) > position.offset
        for position, entry in zip(asked.positions, fetched, strict=True)
    )


def _visible_end(asked: ClientFetch, fetched: FetchedPartition) -> int:
    return fetched.last_stable_offset if asked.isolation == "read_committed" else fetched.high_watermark


def read_all(broker: Desk, asked: ClientFetch, peer: Peer) -> list[FetchedPartition]:
    left = min(max(asked.bytes_max, 0), _ANSWER_BYTES_MAX)
    taken = 0
    fetched: list[FetchedPartition] = []
    for position in asked.positions:
        bytes_max = min(position.bytes_max, left - taken)
        if taken and bytes_max <= 0:
            position = replace(position, bytes_max=0)
        entry = _read(broker, asked, _named_position(broker.log, position), max(bytes_max, 0), peer)
        if position.topic_id:
            entry = replace(entry, topic_id=position.topic_id)
        taken += entry.size
        fetched.append(entry)
    return fetched


def _named_position(log: ServedLog, position: FetchPosition) -> FetchPosition:
    """With the name of a topic that is named by id; without a name if there was never such a topic."""
    if position.partition.topic:
        return position
    name = log.topic_name(position.topic_id)
    return position if name is None else replace(position, partition=position.partition._replace(topic=name))


def _read(broker: Desk, asked: ClientFetch, position: FetchPosition, bytes_max: int, peer: Peer) -> FetchedPartition:
    committed_only = asked.isolation == "read_committed"
    error_code, stored = 0, StoredBytes([], [])
    records: Sequence[Buffer] = ()
    topic, id = position.partition.topic, position.topic_id
    try:
        check_same_topic(broker.log, topic, id)
        check_readable(peer, topic)
        near = broker.layout.check_reads(position.partition, position.leader_epoch, position.offset, asked.rack)
        partition = broker.log.partition(*position.partition)
        offsets = partition.offsets()
        if near != NOBODY and offsets.log_start_offset <= position.offset <= offsets.high_watermark:
            return FetchedPartition(position.partition, 0, *_told(offsets), preferred_replica=near)
        try:
            view = partition.view(position.offset, bytes_max, asked.isolation)
            offsets = view.offsets
            if position.bytes_max:
                stored = read_stored(view, position.offset, bytes_max, committed_only=committed_only)
                rows = broker.row_view(peer, topic)
                records = stored.records if rows is None else rows.of(stored.records, position.offset)
                if stored.records:
                    partition.traffic.note_sent(stored.end_offset - position.offset, sum(map(len, records)))
        except OffsetOutOfRange as error:
            error_code = code_of(error)  # with the offsets that there are
        broker.layout.check_reads(position.partition, position.leader_epoch, position.offset, asked.rack)
        check_same_topic(broker.log, topic, id)
    except LogError as error:
        return FetchedPartition(position.partition, code_of(error))
    return FetchedPartition(position.partition, error_code, *_told(offsets), stored.aborted, records)


def _told(offsets: Offsets) -> tuple[int, int, int]:
    return offsets.high_watermark, offsets.last_stable_offset, offsets.log_start_offset
