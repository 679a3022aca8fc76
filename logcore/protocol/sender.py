"""A client's Produce requests: sends batches from the buffers they were encoded into, in frames that servers accept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ..client import RowRecords, TopicPartition
from ..cores.transaction_records import Identity
from ..errors import InvalidRecords, RecordsTooLarge
from ..records.batch import BatchProducer, EncodedBatch, next_sequence
from ..records.codec import decode_rows, encode, stored_batch
from .routing import Router
from .wire.faults import error_of
from .wire.frames import FRAME_BYTES_MAX
from .wire.produce_messages import ProduceResult

_HEADERS_BYTES: Final = 4096  # what a frame needs in addition to batches
_TIMEOUT_MS: Final = 30_000
_CLUSTER_TIMEOUT_MS: Final = 8_000  # less than a node of a cluster may take to answer; after that another may lead


class Sent(NamedTuple):
    first_offset: int
    next_sequence: int


class Sender:
    """Sends batches with sequence numbers: a batch whose answer was lost is sent again, and stored once."""

    def __init__(self, router: Router) -> None:
        self._router = router

    def send(self, where: TopicPartition, batches: list[EncodedBatch], transactional_id: str | None) -> Sent:
        """Returns when all are acknowledged. Raises `LogUnavailable`; then any number of them may be stored."""
        first_offsets = [self._produce(where, batch, transactional_id) for batch in batches]
        last = batches[-1].header
        return Sent(first_offsets[0], next_sequence(last.base_sequence, last.last_offset_delta + 1))

    def send_copies(self, where: TopicPartition, batches: Sequence[EncodedBatch], mirror: str) -> None:
        """For a mirror: returns when the batches are stored at their offsets. Raises `OffsetOutOfRange` if the
        partition ends at another offset, also if they are stored already; `ReadOnlyTopic` if the mirror does not write
        the topic."""
        timeout_ms = _CLUSTER_TIMEOUT_MS if self._router.clustered else _TIMEOUT_MS
        result = self._router.put(
            lambda line: line.produce_copies(where, batches, mirror, timeout_ms),
            lambda result: [result.error_code],
            to=where,
        )
        _first_offset(where, result)

    def send_here(self, where: TopicPartition, batches: list[EncodedBatch], who: Identity) -> Sent:
        """Like `send`, to a node in this process that is alone. Returns when all batches are in its log."""
        first_offsets = [self._write_here(where, batch, who) for batch in batches]
        last = batches[-1].header
        return Sent(first_offsets[0], next_sequence(last.base_sequence, last.last_offset_delta + 1))

    def _write_here(self, where: TopicPartition, batch: EncodedBatch, who: Identity) -> int:
        _check_size(batch)
        here = self._router.leader_here(where)
        if here is not None:
            result = here.transactions.write(who, where, batch)
            if not (result.error_code and self._router.asks_again(result.error_code, where)):
                return _first_offset(where, result)
        result = self._router.put_here(
            lambda here: here.write(who, where, batch), lambda result: [result.error_code], to=where
        )
        return _first_offset(where, result)

    def _produce(self, where: TopicPartition, batch: EncodedBatch, transactional_id: str | None) -> int:
        """Sends one batch per request, as Kafka's clients do, so that a fail-over keeps all of it or nothing. A batch
        larger than the topic's `max.message.bytes` is split: nothing of it was stored, so its sequence numbers are
        free."""
        try:
            return self._produce_whole(where, batch, transactional_id)
        except RecordsTooLarge:
            if batch.header.record_count < 2:
                raise
            first, *_ = [self._produce(where, half, transactional_id) for half in _halves(batch)]
            return first

    def _produce_whole(self, where: TopicPartition, batch: EncodedBatch, transactional_id: str | None) -> int:
        _check_size(batch)
        here = self._router.leader_here(where)
        if here is not None:
            result = here.produce(where, batch, transactional_id, _TIMEOUT_MS)
            if not (result.error_code and self._router.asks_again(result.error_code, where)):
                return _first_offset(where, result)
        timeout_ms = _CLUSTER_TIMEOUT_MS if self._router.clustered else _TIMEOUT_MS
        result = self._router.put(
            lambda line: line.produce(where, batch, transactional_id, timeout_ms),
            lambda result: [result.error_code],
            to=where,
        )
        return _first_offset(where, result)


def _first_offset(where: TopicPartition, result: ProduceResult) -> int:
    if result.error_code:
        what = f'append to partition {where.partition} of topic "{where.topic}"'
        raise error_of(result.error_code, result.error_message, what)
    return result.base_offset


def _halves(batch: EncodedBatch) -> list[EncodedBatch]:
    """Splits a batch in two; its rows keep their sequence numbers."""
    header = batch.header
    rows = decode_rows([stored_batch(header, memoryview(b"".join(batch.buffers)))], header.base_offset)
    half = rows.num_rows // 2
    producer = BatchProducer(header.producer_id, header.producer_epoch, header.base_sequence, header.transactional)
    first = encode(RowRecords(rows.slice(0, half)), producer)
    if producer.base_sequence >= 0:
        producer = producer._replace(base_sequence=next_sequence(producer.base_sequence, half))
    return [*first, *encode(RowRecords(rows.slice(half)), producer)]


def _check_size(batch: EncodedBatch) -> None:
    if batch.header.size > FRAME_BYTES_MAX - _HEADERS_BYTES:
        raise InvalidRecords(
            f"a record batch of {batch.header.size} bytes is too large to be sent",
            hint="Cut it into several batches, or append it in the process that has the log.",
        )
