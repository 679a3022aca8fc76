"""Uncompressing what other clients compressed; we write batches as they are."""

from __future__ import annotations

import struct
from typing import Final

import pyarrow as pa

_NAMES: Final = {1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
_XERIAL: Final = b"\x82SNAPPY\0"  # Java's clients cut Snappy into blocks behind this header, librdkafka does not
_XERIAL_HEADER_SIZE: Final = 16
_GROWTH_MAX: Final = 1 << 31


def uncompress(kind: int, data: memoryview) -> memoryview:
    """Raises ValueError where `data` is not what `kind` (the low bits of the attributes) says."""
    name = _NAMES.get(kind)
    if name is None:
        raise ValueError(f"unknown compression {kind}")
    try:
        if name == "snappy":
            return _uncompress_snappy(data)
        with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(data)), name) as stream:
            content = stream.read(_GROWTH_MAX)
    except (OSError, struct.error, pa.ArrowException) as error:
        raise ValueError(f"not {name}: {error}") from error
    return memoryview(content).cast("B")


def _uncompress_snappy(data: memoryview) -> memoryview:
    if bytes(data[: len(_XERIAL)]) != _XERIAL:
        return _snappy_block(data)
    out, position = bytearray(), _XERIAL_HEADER_SIZE
    while position < len(data):
        (length,) = struct.unpack_from(">i", data, position)
        position += 4
        out += _snappy_block(data[position : position + length])
        position += length
    return memoryview(out)


def _snappy_block(data: memoryview) -> memoryview:
    size = shift = 0
    for byte in data[:5]:  # a Snappy block begins with its uncompressed size
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > _GROWTH_MAX:
        raise ValueError("a Snappy block that claims to be larger than two gigabytes")
    return memoryview(pa.Codec("snappy").decompress(pa.py_buffer(data), decompressed_size=size)).cast("B")
