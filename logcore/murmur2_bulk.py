"""Kafka's murmur2 over a column, compiled by numba. Load it through `murmur2.partitions_of`."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .records.memory import compiled, data_address_of, load_byte, offsets_of, validity_of

_OPTIONS: Final[dict[str, Any]] = {"nogil": True, "cache": True}


@compiled("int64(int64, int64)", **_OPTIONS)
def _murmur2(address: int, length: int) -> int:
    multiplier, mask = np.int64(0x5BD1E995), np.int64(0xFFFFFFFF)
    h = (np.int64(0x9747B28C) ^ length) & mask
    whole = length & ~np.int64(3)
    for position in range(0, whole, 4):
        k = load_byte(address + position)
        k |= load_byte(address + position + 1) << 8
        k |= load_byte(address + position + 2) << 16
        k |= load_byte(address + position + 3) << 24
        k = (k * multiplier) & mask
        k = ((k ^ (k >> 24)) * multiplier) & mask
        h = ((h * multiplier) & mask) ^ k
    if length > whole:
        for position in range(whole, length):
            h ^= load_byte(address + position) << (8 * (position - whole))
        h = (h * multiplier) & mask
    h = ((h ^ (h >> 13)) * multiplier) & mask
    return int(h ^ (h >> 15))


@compiled(
    "void(Array(int32, 1, 'C', readonly=True), int64, Array(bool, 1, 'C', readonly=True), int64, int32[::1])",
    **_OPTIONS,
)
def _partitions(
    offsets: npt.NDArray[np.int32],
    data: int,
    valid: npt.NDArray[np.bool_],
    partition_count: int,
    out: npt.NDArray[np.int32],
) -> None:
    for row in range(len(out)):
        if len(valid) and not valid[row]:
            out[row] = -1
        else:
            start = np.int64(offsets[row])
            out[row] = (_murmur2(data + start, offsets[row + 1] - start) & 0x7FFFFFFF) % partition_count


def partitions_of(keys: pa.BinaryArray, partition_count: int) -> npt.NDArray[np.int32]:
    out = np.empty(len(keys), np.int32)
    _partitions(offsets_of(keys), data_address_of(keys), validity_of(keys), partition_count, out)
    return out
