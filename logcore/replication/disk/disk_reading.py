"""Reads whole record batches from a segment, as replicas send them to each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...records.batch import HEADER_SIZE, NO_PRODUCER, BatchHeader, EncodedBatch, checksum_of, read_header
from ...records.thinning import fillers
from ...storage.epoch_cache import EpochCache
from ...storage.read_view import ReadableFile

_FIRST_BYTES: Final = 16 * 1024


def read_batches(
    file: ReadableFile, offset: int, limit: int, max_bytes: int, epochs: EpochCache | None
) -> Sequence[EncodedBatch]:
    """Batches below `limit`, starting with the one that contains `offset`; at least one if there is one.

    In: `file`: starts with that batch or an earlier one. `epochs`: None if no other node compares its log by epochs.
    Raises `CorruptLog` if a batch is missing, or is not what was written. The checksum does not cover offset and epoch:
    the offset is checked against the previous batch, the epoch against `epochs`.
    """
    found: list[EncodedBatch] = []
    window, start, size = memoryview(b""), file.start, 0
    position, expected = file.start, file.first_offset
    while position < file.end and expected < limit:  # after damage a file may end in zeros
        if position + HEADER_SIZE > start + len(window):
            window, start = _window(file, position, max(_FIRST_BYTES, max_bytes - size)), position
        header = _header(file, position, window[position - start :], expected)
        above = header.last_offset >= limit
        if found and (above or size + header.size > max_bytes):
            return found
        if above or header.last_offset >= offset:
            if position + header.size > start + len(window):
                window, start = _window(file, position, header.size), position
            batch = EncodedBatch([window[position - start : position - start + header.size]], header)
            _check(file, position, batch, epochs)
            if above:
                return found
            found.append(batch)
            size += header.size
        position += header.size
        expected = header.last_offset + 1
    if not found and expected <= offset < limit:
        raise file.segment.corrupt(position, f"the records from offset {expected} on are missing")
    return found


def from_offset(batches: Sequence[EncodedBatch], offset: int) -> Sequence[EncodedBatch]:
    """The same batches, starting exactly at this offset if possible. A filler for removed batches can start anywhere: a
    replica that had some of the batches when compaction removed them asks only for the rest."""
    if not batches or batches[0].header.base_offset >= offset:
        return batches
    header = batches[0].header
    if header.record_count or header.producer_id != NO_PRODUCER:
        return batches
    return [*fillers(offset, header.last_offset + 1, header.leader_epoch), *batches[1:]]


def _header(file: ReadableFile, position: int, content: memoryview, offset: int) -> BatchHeader:
    if len(content) < HEADER_SIZE:
        raise file.segment.corrupt(position, "the file ends inside a batch")
    header = read_header(content)
    if not header.plausible or header.base_offset != offset or position + header.size > file.end:
        raise file.segment.corrupt(position, f"no record batch with offset {offset} begins here")
    return header


def _check(file: ReadableFile, position: int, batch: EncodedBatch, epochs: EpochCache | None) -> None:
    header, content = batch.header, memoryview(batch.buffers[0])
    if len(content) < header.size or checksum_of(content) != header.crc:
        raise file.segment.corrupt(position, "the checksum of a record batch does not fit")
    if epochs is not None and header.leader_epoch != epochs.at(header.base_offset):
        raise file.segment.corrupt(position, f"a record batch says that it is of leader epoch {header.leader_epoch}")


def _window(file: ReadableFile, position: int, size: int) -> memoryview:
    buffer = memoryview(bytearray(min(size, file.end - position)))
    return buffer[: file.file.read_into(buffer, position)]
