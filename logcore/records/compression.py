"""Decompresses batches that other clients compressed, and compresses what compaction keeps of them."""

from __future__ import annotations

import struct
from typing import Final

import pyarrow as pa

_NAMES: Final = {1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
_XERIAL: Final = b"\x82SNAPPY\0"  # Java clients split Snappy data into blocks after this header, librdkafka does not
_XERIAL_HEADER_SIZE: Final = 16
SIZE_MAX: Final = 1 << 31


def uncompress(kind: int, data: memoryview, size_max: int = SIZE_MAX) -> memoryview:
    """In: `kind`: the low bits of the attributes. Raises ValueError if `data` is not of this kind, or becomes larger
    than `size_max`."""
    name = _NAMES.get(kind)
    if name is None:
        raise ValueError(f"unknown compression {kind}")
    try:
        if name == "snappy":
            return _uncompress_snappy(data, size_max)
        with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(data)), name) as stream:
            content = stream.read(size_max + 1)
    except (OSError, struct.error, pa.ArrowException) as error:
        raise ValueError(f"not {name}: {error}") from error
    if len(content) > size_max:
        raise _too_large(size_max)
    return memoryview(content).cast("B")


def compress(kind: int, data: memoryview) -> memoryview:
    """The inverse of `uncompress`. Raises ValueError for an unknown kind."""
    name = _NAMES.get(kind)
    if name is None:
        raise ValueError(f"unknown compression {kind}")
    if name == "snappy":
        return memoryview(pa.Codec(name).compress(pa.py_buffer(data))).cast("B")
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, name) as stream:
        stream.write(pa.py_buffer(data))
    return memoryview(sink.getvalue()).cast("B")


def _too_large(size_max: int) -> ValueError:
    return ValueError(f"records of more than {size_max} bytes once uncompressed")


def _uncompress_snappy(data: memoryview, size_max: int) -> memoryview:
    if bytes(data[: len(_XERIAL)]) != _XERIAL:
        return _snappy_block(data, size_max)
    out, position = bytearray(), _XERIAL_HEADER_SIZE
    while position < len(data):
        (length,) = struct.unpack_from(">i", data, position)
        position += 4
        out += _snappy_block(data[position : position + length], size_max - len(out))
        position += length
    return memoryview(out)


def _snappy_block(data: memoryview, size_max: int) -> memoryview:
    size = shift = 0
    for byte in data[:5]:  # a Snappy block begins with its uncompressed size
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > size_max:
        raise _too_large(size_max)
    return memoryview(pa.Codec("snappy").decompress(pa.py_buffer(data), decompressed_size=size)).cast("B")
