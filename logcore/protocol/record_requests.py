"""Answers to Produce and Fetch."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import structlog
from kio.schema.errors import ErrorCode

from millstream.errors import LogError

from ..errors import OffsetOutOfRange
from ..partition import Mark, Partition
from ..records.batch import Buffer, EncodedBatch
from . import fetch, produce
from .access import check_writable
from .broker import Broker
from .connection import Answer, Request
from .faults import code_of, message_of
from .fetch import FetchedPartition, FetchPosition, FetchRequest
from .incoming import checked_batches
from .peer import Peer
from .produce import ProduceData, ProduceRequest, ProduceResult
from .stored import StoredBytes, read_stored

_ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
_WAIT_MS_MAX: Final = 5 * 60 * 1000

_log = structlog.get_logger("millstream.logcore")


@dataclass(frozen=True, slots=True)
class _Written:
    """An append that may not be durable yet."""

    result: ProduceResult
    partition: Partition | None = None
    mark: Mark | None = None


async def answer_produce(broker: Broker, request: Request) -> Answer:
    """Returns when the records are written in order; the answer comes when they are durable.

    Records of a transaction are answered at once: their commit makes them durable.
    """
    version = request.header.version
    asked = produce.read_request(request.message, request.position, version)
    writing = asyncio.ensure_future(broker.blocking(partial(_write_all, broker, asked, request.peer)))
    finish = _finish if asked.transactional_id is None else _finish_transactional
    throttle_ms = broker.throttle(request.peer, produced=len(request.message))

    def write(results: list[ProduceResult]) -> list[Buffer] | None:
        return produce.write_response(results, version, throttle_ms) if asked.acks else None

    answer = broker.keep(finish(broker, writing, write))
    await asyncio.shield(writing)  # if the client goes away meanwhile, what it sent is written and synced all the same
    return answer


_Writing = asyncio.Future[list[_Written]]


_Write = Callable[[list[ProduceResult]], list[Buffer] | None]


async def _finish(broker: Broker, writing: _Writing, write: _Write) -> list[Buffer] | None:
    return write(await broker.blocking(partial(_sync_all, await writing)))


async def _finish_transactional(broker: Broker, writing: _Writing, write: _Write) -> list[Buffer] | None:
    written = await writing
    broker.in_background(partial(_sync_all, written))
    return write([entry.result for entry in written])


def _write_all(broker: Broker, asked: ProduceRequest, peer: Peer) -> list[_Written]:
    return [_write(broker, asked.transactional_id, data, peer) for data in asked.data]


def _write(broker: Broker, transactional_id: str | None, data: ProduceData, peer: Peer) -> _Written:
    try:
        check_writable(peer, data.partition.topic)
        partition = broker.log.writable(*data.partition)
        batches = [batch for records in data.records for batch in checked_batches(memoryview(records))]
        for batch in batches:
            partition.check_size(batch.header)
        if transactional_id is None:
            first_offset, mark = _append(partition, batches)
        else:
            first_offset, mark = broker.producers.owner(transactional_id).append(data.partition, batches)
    except LogError as error:
        return _Written(_failed(data, error))
    start = partition.offsets().log_start_offset
    return _Written(ProduceResult(data.partition, 0, first_offset, start), partition, mark)


def _append(partition: Partition, batches: list[EncodedBatch]) -> tuple[int, Mark]:
    """Numbered batches go one by one: of those that were sent before, each is found again."""
    if batches[0].header.producer_id < 0:
        return partition.append(batches)
    appended = [partition.append([batch]) for batch in batches]
    return appended[0].first_offset, appended[-1].mark


def _sync_all(written: list[_Written]) -> list[ProduceResult]:
    results: list[ProduceResult] = []
    for entry in written:
        result = entry.result
        if entry.partition is not None and entry.mark is not None:
            try:
                entry.partition.sync(entry.mark)
            except LogError as error:
                result = ProduceResult(result.partition, code_of(error), error_message=message_of(error))
        results.append(result)
    return results


def _failed(data: ProduceData, error: LogError) -> ProduceResult:
    return ProduceResult(data.partition, code_of(error), error_message=message_of(error))


async def answer_fetch(broker: Broker, request: Request) -> list[Buffer]:
    """Waits until there is as much as the client wants, or for as long as it wants."""
    version = request.header.version
    asked = fetch.read_request(request.message, request.position, version)
    if asked.continues_session:
        return fetch.write_response([], version, int(ErrorCode.fetch_session_id_not_found))
    deadline = time.monotonic() + min(max(asked.wait_ms_max, 0), _WAIT_MS_MAX) / 1000
    while True:
        advance = broker.next_advance()
        fetched = await broker.blocking(partial(_read_all, broker, asked, request.peer))
        left_s = deadline - time.monotonic()
        if left_s <= 0 or _is_enough(asked, fetched):
            break
        try:
            await asyncio.wait_for(advance.wait(), left_s)
        except TimeoutError:
            break
    throttle_ms = broker.throttle(request.peer, fetched=sum(entry.size for entry in fetched))
    return fetch.write_response(fetched, version, throttle_ms=throttle_ms)


def _is_enough(asked: FetchRequest, fetched: Sequence[FetchedPartition]) -> bool:
    if not fetched or any(entry.error_code for entry in fetched):
        return True
    if sum(entry.size for entry in fetched) >= asked.bytes_min:
        return True
    return any(
        not position.bytes_max and _visible_end(asked, entry) > position.offset
        for position, entry in zip(asked.positions, fetched, strict=True)
    )


def _visible_end(asked: FetchRequest, fetched: FetchedPartition) -> int:
    return fetched.last_stable_offset if asked.isolation == "read_committed" else fetched.high_watermark


def _read_all(broker: Broker, asked: FetchRequest, peer: Peer) -> list[FetchedPartition]:
    left = min(max(asked.bytes_max, 0), _ANSWER_BYTES_MAX)
    taken = 0
    fetched: list[FetchedPartition] = []
    for position in asked.positions:
        bytes_max = min(position.bytes_max, left - taken)
        if taken and bytes_max <= 0:
            position = FetchPosition(position.partition, position.offset, 0)
        entry = _read(broker, asked, position, max(bytes_max, 0), peer)
        taken += entry.size
        fetched.append(entry)
    return fetched


def _read(broker: Broker, asked: FetchRequest, position: FetchPosition, bytes_max: int, peer: Peer) -> FetchedPartition:
    committed_only = asked.isolation == "read_committed"
    error_code, stored = 0, StoredBytes([], [])
    records: Sequence[Buffer] = ()
    try:
        partition = broker.log.partition(*position.partition)
        offsets = partition.offsets()
        try:
            view = partition.view(position.offset, bytes_max, asked.isolation)
            offsets = view.offsets
            if position.bytes_max:
                stored = read_stored(view, position.offset, bytes_max, committed_only=committed_only)
                rows = broker.row_view(peer, position.partition.topic)
                records = stored.records if rows is None else rows.of(stored.records, position.offset)
        except OffsetOutOfRange as error:
            error_code = code_of(error)  # with the offsets that there are
    except LogError as error:
        return FetchedPartition(position.partition, code_of(error))
    return FetchedPartition(
        position.partition,
        error_code,
        offsets.high_watermark,
        offsets.last_stable_offset,
        offsets.log_start_offset,
        stored.aborted,
        records,
    )
