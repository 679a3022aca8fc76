"""Answers to Produce and Fetch."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import structlog

from millstream.errors import LogError

from ..errors import OffsetOutOfRange
from ..partition import Mark, Partition
from ..records.batch import Buffer, EncodedBatch
from . import fetch, produce
from .broker import Broker
from .connection import Answer, Request
from .faults import code_of, message_of
from .fetch import FetchedPartition, FetchPosition, FetchRequest
from .incoming import checked_batches
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
    writing = asyncio.ensure_future(broker.blocking(partial(_write_all, broker, asked)))
    finish = _finish if asked.transactional_id is None else _finish_transactional
    answer = broker.keep(finish(broker, writing, version, silent=asked.acks == 0))
    await asyncio.shield(writing)  # if the client goes away meanwhile, what it sent is written and synced all the same
    return answer


_Writing = asyncio.Future[list[_Written]]


async def _finish(broker: Broker, writing: _Writing, version: int, *, silent: bool) -> list[Buffer] | None:
    results = await broker.blocking(partial(_sync_all, await writing))
    return None if silent else produce.write_response(results, version)


async def _finish_transactional(
    broker: Broker, writing: _Writing, version: int, *, silent: bool
) -> list[Buffer] | None:
    written = await writing
    broker.in_background(partial(_sync_all, written))
    return None if silent else produce.write_response([entry.result for entry in written], version)


def _write_all(broker: Broker, asked: ProduceRequest) -> list[_Written]:
    return [_write(broker, asked.transactional_id, data) for data in asked.data]


def _write(broker: Broker, transactional_id: str | None, data: ProduceData) -> _Written:
    try:
        partition = broker.log.writable(*data.partition)
        batches = [batch for records in data.records for batch in checked_batches(memoryview(records))]
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
    deadline = time.monotonic() + min(max(asked.wait_ms_max, 0), _WAIT_MS_MAX) / 1000
    while True:
        advance = broker.next_advance()
        fetched = await broker.blocking(partial(_read_all, broker, asked))
        left_s = deadline - time.monotonic()
        if left_s <= 0 or _is_enough(asked, fetched):
            return fetch.write_response(fetched, version)
        try:
            await asyncio.wait_for(advance.wait(), left_s)
        except TimeoutError:
            return fetch.write_response(fetched, version)


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


def _read_all(broker: Broker, asked: FetchRequest) -> list[FetchedPartition]:
    left = min(max(asked.bytes_max, 0), _ANSWER_BYTES_MAX)
    taken = 0
    fetched: list[FetchedPartition] = []
    for position in asked.positions:
        bytes_max = min(position.bytes_max, left - taken)
        if taken and bytes_max <= 0:
            position = FetchPosition(position.partition, position.offset, 0)
        entry = _read(broker, asked, position, max(bytes_max, 0))
        taken += entry.size
        fetched.append(entry)
    return fetched


def _read(broker: Broker, asked: FetchRequest, position: FetchPosition, bytes_max: int) -> FetchedPartition:
    committed_only = asked.isolation == "read_committed"
    error_code, stored = 0, StoredBytes([], [])
    try:
        partition = broker.log.partition(*position.partition)
        offsets = partition.offsets()
        try:
            view = partition.view(position.offset, bytes_max, asked.isolation)
            offsets = view.offsets
            if position.bytes_max:
                stored = read_stored(view, position.offset, bytes_max, committed_only=committed_only)
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
        stored.records,
    )
