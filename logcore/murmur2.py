"""The partition of a key by Kafka's partitioner (murmur2), for whole columns."""

from __future__ import annotations

import importlib
import sys
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_FEW_KEYS: Final = 16
_FEW_KEYS_UNLOADED: Final = 2000
_COMPILED: Final = "millstream.logcore.murmur2_bulk"


def partitions_of(keys: pa.Array, partition_count: int) -> npt.NDArray[np.int32]:
    """The partition of each key; -1 for NULL, whose partition is the producer's choice.

    In: an array of bytes or text. A few keys are hashed in Python, more by compiled code.
    """
    if keys.type != pa.binary():
        keys = keys.cast(pa.binary())
    if len(keys) < _FEW_KEYS or (len(keys) < _FEW_KEYS_UNLOADED and _COMPILED not in sys.modules):
        return np.array(
            [-1 if key is None else partition_of(key, partition_count) for key in keys.to_pylist()], np.int32
        )
    bulk: Any = importlib.import_module(".murmur2_bulk", __package__)
    return bulk.partitions_of(keys, partition_count)


def partition_of(key: bytes, partition_count: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


def murmur2(data: bytes) -> int:
    """The 32 bits of the hash, unsigned."""
    length = len(data)
    h = (_SEED ^ length) & 0xFFFFFFFF
    whole = length & ~3
    for position in range(0, whole, 4):
        k = int.from_bytes(data[position : position + 4], "little") * _MULTIPLIER & 0xFFFFFFFF
        k = (k ^ (k >> 24)) * _MULTIPLIER & 0xFFFFFFFF
        h = (h * _MULTIPLIER & 0xFFFFFFFF) ^ k
    if length > whole:
        h ^= int.from_bytes(data[whole:], "little")
        h = h * _MULTIPLIER & 0xFFFFFFFF
    h = (h ^ (h >> 13)) * _MULTIPLIER & 0xFFFFFFFF
    return h ^ (h >> 15)
