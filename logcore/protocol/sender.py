"""A client's Produce requests: batches go out from the buffers they were encoded into, in frames a server takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ..client import TopicPartition
from ..errors import InvalidRecords, LogUnavailable
from ..records.batch import Buffer, EncodedBatch, next_sequence
from . import produce
from .apis import Api
from .channel import Channels, understanding
from .faults import error_of
from .frames import FRAME_BYTES_MAX
from .produce import ProduceData, ProduceRequest

_REQUEST_BYTES: Final = 32 * 1024 * 1024  # batches are gathered up to here
_HEADERS_BYTES: Final = 4096  # what a frame needs besides batches
_TIMEOUT_MS: Final = 30_000
_ALL: Final = -1


@dataclass(frozen=True, slots=True)
class Sent:
    first_offset: int
    next_sequence: int


class Sender:
    """Sends batches that carry sequence numbers: one whose answer was lost is sent again and stored once."""

    def __init__(self, channels: Channels) -> None:
        self._channels = channels

    def send(self, where: TopicPartition, batches: list[EncodedBatch], transactional_id: str | None) -> Sent:
        """Returns when all are acknowledged. Raises `LogUnavailable`; then any number of them may be stored."""
        first_offset: int | None = None
        for group in _groups(batches):
            records = [buffer for batch in group for buffer in batch.buffers]
            offset = self._produce(where, records, transactional_id)
            first_offset = offset if first_offset is None else first_offset
        assert first_offset is not None
        last = batches[-1].header
        return Sent(first_offset, next_sequence(last.base_sequence, last.last_offset_delta + 1))

    def _produce(self, where: TopicPartition, records: list[Buffer], transactional_id: str | None) -> int:
        request = ProduceRequest(transactional_id, _ALL, _TIMEOUT_MS, [ProduceData(where, records)])
        response = self._channels.exchange(Api.PRODUCE, lambda version: produce.write_request(request, version))
        with understanding(self._channels.address):
            results = produce.read_response(response.message, response.position, response.version)
        if [result.partition for result in results] != [where]:
            raise LogUnavailable(f"the server at {self._channels.address} did not answer for the partition")
        if results[0].error_code:
            what = f'append to partition {where.partition} of topic "{where.topic}"'
            raise error_of(results[0].error_code, results[0].error_message, what)
        return results[0].base_offset


def _groups(batches: list[EncodedBatch]) -> Iterator[list[EncodedBatch]]:
    group: list[EncodedBatch] = []
    size = 0
    for batch in batches:
        if batch.header.size > FRAME_BYTES_MAX - _HEADERS_BYTES:
            raise InvalidRecords(
                f"a record batch of {batch.header.size} bytes is too large to be sent",
                hint="Cut it into several batches, or append it in the process that has the log.",
            )
        if group and size + batch.header.size > _REQUEST_BYTES:
            yield group
            group, size = [], 0
        group.append(batch)
        size += batch.header.size
    yield group
