"""Checks record batches from the network, so that no batch is stored that readers could not read."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import InvalidRecords, InvalidTimestamps, RejectedRecords
from ..records.batch import COMPRESSION, HEADER_SIZE, BatchHeader, EncodedBatch, checksum_of, read_header
from ..records.codec import check_rows, decode_rows, stored_batch
from ..records.envelope import checked_columns
from ..topic_settings import TIME_AFTER, TIME_BEFORE, TopicSettings

_COMPRESSION_MAX: Final = 4
_MAGIC_POSITION: Final = 16
_UNCOMPRESSED_BYTES: Final = 10 * 1024 * 1024  # always allowed, even if the compressed batch is tiny
_GROWTH_MAX: Final = 100
_NO_TIME: Final = -1  # of a record without a time


class CorruptRecords(InvalidRecords):
    """The bytes changed on their way; the sender may send them again."""

    code = "CORRUPT_RECORDS"


def checked_batches(records: memoryview) -> list[EncodedBatch]:
    """The batches in these bytes, as views of them. Raises `InvalidRecords`, `CorruptRecords`."""
    batches: list[EncodedBatch] = []
    position = 0
    while position < len(records):
        header = _header_at(records, position)
        batch = records[position : position + header.size]
        _check(header, batch)
        batches.append(EncodedBatch([batch], header))
        position += header.size
    if not batches:
        raise InvalidRecords("a partition's data holds no record batch")
    return batches


def check_keys(batches: list[EncodedBatch]) -> None:
    """Checks that all records have a key, for compacted topics. In: batches from `checked_batches`. Raises
    `RejectedRecords`."""
    for encoded in batches:
        header, batch = encoded.header._replace(base_offset=0), memoryview(encoded.buffers[0])
        if header.columnar:
            continue  # its schema defines its keys
        keys = _column("key", header, batch)
        if keys.null_count:
            keyless = pc.indices_nonzero(keys.is_null()).to_pylist()
            raise RejectedRecords.of(dict.fromkeys(keyless, "a record without a key, for a topic that is compacted"))


def check_times(batches: list[EncodedBatch], settings: TopicSettings, now_ms: int) -> None:
    """Checks the times of records. In: batches from `checked_batches`. A record without a time (-1) is accepted, as in
    Kafka; a columnar batch has one time, that of its latest row. Raises `InvalidTimestamps`."""
    bounds = settings.times(now_ms)
    if bounds is None:
        return
    earliest, latest = bounds
    for encoded in batches:
        header, batch = encoded.header._replace(base_offset=0), memoryview(encoded.buffers[0])
        times = pa.array([header.max_timestamp_ms]) if header.columnar else _column("timestamp", header, batch)
        outside = pc.or_(pc.less(times, earliest), pc.greater(times, latest))
        wrong = pc.indices_nonzero(pc.and_(outside, pc.not_equal(times, _NO_TIME))).to_pylist()
        if wrong:
            limit = f"the topic takes {earliest} to {latest} now ({TIME_BEFORE}, {TIME_AFTER})"
            raise InvalidTimestamps.of({number: f"its time is {times[number]}, and {limit}" for number in wrong})


def _column(name: str, header: BatchHeader, batch: memoryview) -> pa.Array:
    return decode_rows([stored_batch(header, batch, _size_max(batch))], 0).column(name)


def _header_at(records: memoryview, position: int) -> BatchHeader:
    left = len(records) - position
    if left > _MAGIC_POSITION and records[position + _MAGIC_POSITION] != 2:
        raise InvalidRecords(
            f"record batches of version {records[position + _MAGIC_POSITION]} are not supported",
            hint="Clients since Kafka 0.11 send version 2: set no older message format.",
        )
    if left < HEADER_SIZE:
        raise CorruptRecords("the data ends inside the header of a record batch")
    header = read_header(records, position)
    if not header.plausible or header.size > left:
        raise CorruptRecords("the data ends inside a record batch, or no batch begins where one should")
    return header


def _check(header: BatchHeader, batch: memoryview) -> None:
    if checksum_of(batch) != header.crc:
        raise CorruptRecords("the checksum of a record batch does not fit")
    if header.control:
        raise InvalidRecords("a control batch: only the log itself writes those")
    if header.attributes & COMPRESSION > _COMPRESSION_MAX:
        raise InvalidRecords(f"unknown compression {header.attributes & COMPRESSION}")
    if header.transactional and (header.producer_id < 0 or header.base_sequence < 0):
        raise InvalidRecords("a transactional batch without a producer")
    try:
        rows = _columnar_rows(header, batch) if header.columnar else _rows(header, batch)
    except ValueError as error:
        raise InvalidRecords(f"a record batch whose records cannot be read: {error}") from error
    if not rows or rows != header.last_offset_delta + 1:
        raise InvalidRecords(f"a record batch with {rows} records that takes {header.last_offset_delta + 1} offsets")


def _columnar_rows(header: BatchHeader, batch: memoryview) -> int:
    if header.attributes & COMPRESSION:
        return checked_columns(stored_batch(header, batch, _size_max(batch)).buffer).num_rows
    return checked_columns(batch[HEADER_SIZE:]).num_rows


def _rows(header: BatchHeader, batch: memoryview) -> int:
    """Raises ValueError if the records' offsets are not 0, 1, 2, …"""
    check_rows(stored_batch(header, batch, _size_max(batch)))
    return header.record_count


def _size_max(batch: memoryview) -> int:
    """The size to which a batch may be decompressed: a few bytes must not fill our memory, or that of readers."""
    return max(_UNCOMPRESSED_BYTES, _GROWTH_MAX * len(batch))
