"""Encodes and decodes a few keys and values as one batch of rows, without tables: for logs that contain a map."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .batch import COMPRESSION, HEADER_SIZE, NOBODY, EncodedBatch, seal
from .compression import uncompress
from .small import encode_record, read_bytes
from .varint import read_varint, write_varint


class KeyValue(NamedTuple):
    """An entry of the map; a value of None removes the entry."""

    key: bytes
    value: bytes | None


def encode_key_values(changes: Sequence[KeyValue], now_ms: int) -> EncodedBatch:
    """In: `changes`: at least one; `now_ms`: the timestamp of all."""
    out = bytearray(HEADER_SIZE)
    for row, (key, value) in enumerate(changes):
        record = encode_record(0, row, key, value, ())
        write_varint(out, len(record))
        out += record
    return seal(
        [out],
        attributes=0,
        last_offset_delta=len(changes) - 1,
        base_timestamp_ms=now_ms,
        max_timestamp_ms=now_ms,
        record_count=len(changes),
        producer=NOBODY,
    )


def decode_key_values(batch: EncodedBatch) -> list[KeyValue]:
    """The entries, without records that have no key and control batches. Raises ValueError if the bytes are invalid."""
    if batch.header.control:
        return []
    try:
        return list(_records(batch))
    except IndexError as error:
        raise ValueError(f"not records: {error}") from error


def _records(batch: EncodedBatch) -> Iterator[KeyValue]:
    whole = memoryview(b"".join(batch.buffers))
    position = HEADER_SIZE
    if compression := batch.header.attributes & COMPRESSION:
        whole, position = uncompress(compression, whole[HEADER_SIZE:]), 0
    for _ in range(batch.header.record_count):
        length, position = read_varint(whole, position)
        end = position + length
        _, inside = read_varint(whole, position + 1)  # after the attributes: timestamp delta, offset delta
        _, inside = read_varint(whole, inside)
        key, inside = read_bytes(whole, inside)
        value, inside = read_bytes(whole, inside)
        if length < 0 or inside > end:
            raise ValueError("a record that is longer than it says")
        if key is not None:
            yield KeyValue(key, value)
        position = end
