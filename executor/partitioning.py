"""Finds the partition of a row: murmur2 of its encoded key, as in Kafka's clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..logcore.murmur2 import partitions_of
from ..planner.schema import Column
from ..planner.specs import FormatSpec, KeyWindow
from ..planner.steps.repartition import Rekey
from .columnar import ARROW
from .formats.codec import Encoder, encode_writable
from .formats.registry import encoder
from .formats.windows import suffix_bytes
from .operators.columns import flat
from .state.key_hash import key_hashes
from .state.key_index import KeyIndex, Numbered

_SAMPLE_ROWS: Final = 4_096

Partitions = npt.NDArray[np.int32]
_Rows = TypeVar("_Rows", pa.Table, pa.RecordBatch)
_FEW = 24  # up to so many partitions, searching the rows of each takes less time than sorting


def key_encoder(key_format: FormatSpec, columns: Sequence[Column], window: KeyWindow | None = None) -> Encoder:
    """Encodes keys to the bytes that are hashed. Columnar keys have no bytes and are hashed as JSON. Without key
    columns, keys are null in every format: one with schemas has none for them."""
    if not columns:
        return encoder(FormatSpec("NONE"), columns)
    spec = FormatSpec("JSON", wrap_single=False) if key_format.name == ARROW else key_format
    return encoder(spec, columns, window)


class RekeyPartitioner:
    """Finds the new task of each row of a Rekey step. It is called with the step and rows that have the new `k0`…"""

    def __init__(self) -> None:
        self._encoders: dict[str, Encoder] = {}

    def __call__(self, step: Rekey, rows: pa.Table) -> Partitions:
        """Rows whose key is NULL or cannot be encoded in the key format go to partition 0. If the step has no key
        columns, rows keep their distribution."""
        if step.partition_count == 1:
            return np.zeros(rows.num_rows, np.int32)
        if not step.schema.key:
            return (rows["_part"].to_numpy() % step.partition_count).astype(np.int32)
        known = self._encoders.get(step.id)
        if known is None:
            known = self._encoders[step.id] = key_encoder(step.key_format, step.schema.key)
        columns = [flat(rows, f"k{i}") for i in range(len(step.schema.key))]
        numbered = _distinct(columns)
        if numbered is not None:
            columns = [column.take(pa.array(numbered.first)) for column in columns]
        keys, _ = encode_writable(known, columns)
        found = np.maximum(partitions_of(keys, step.partition_count), 0)
        return found if numbered is None else found[numbered.group]


def _distinct(columns: Sequence[pa.Array]) -> Numbered | None:
    """The distinct keys of the rows, so that each is encoded once. None if this does not pay off, or if equal keys may
    have different bytes."""
    if len(columns[0]) < _SAMPLE_ROWS or not all(_has_one_text(column.type) for column in columns):
        return None
    sample = KeyIndex().number(key_hashes([column.slice(0, _SAMPLE_ROWS) for column in columns]))
    if len(sample) > _SAMPLE_ROWS // 2:
        return None
    return KeyIndex().number(key_hashes(columns))


def _has_one_text(type_: pa.DataType) -> bool:
    """Whether equal values always have the same bytes; 0.0 and -0.0 do not."""
    plain = pa.types.is_integer(type_) or pa.types.is_temporal(type_) or pa.types.is_boolean(type_)
    return plain or pa.types.is_string(type_) or pa.types.is_binary(type_)


def sink_partitions(
    keys: pa.Array, tasks: pa.Array, partition_count: int, window: KeyWindow | None = None
) -> Partitions:
    """The partition of each record to write. In: key bytes, and the rows' `_part`, which decides for null keys.

    A `window` at the end of the keys is not hashed, as in Kafka Streams: all windows of a key share a partition.
    """
    if partition_count == 1:
        return np.zeros(len(keys), np.int32)
    if window is not None:
        keys = pc.binary_slice(keys, 0, -suffix_bytes(window))
    partitions = partitions_of(keys, partition_count)
    if keys.null_count == 0:
        return partitions
    return np.where(partitions < 0, tasks.to_numpy(zero_copy_only=False) % partition_count, partitions).astype(np.int32)


@dataclass(frozen=True, slots=True)
class RowsOfPartition:
    """The rows of a batch that belong to one partition, as row numbers in order."""

    partition: int
    numbers: range | npt.NDArray[np.int64]

    def of(self, rows: _Rows) -> _Rows:
        """The partition's rows. Adjacent rows, as those of a source partition, are not copied."""
        if isinstance(self.numbers, range):
            return rows.slice(self.numbers.start, len(self.numbers)) if len(self.numbers) < len(rows) else rows
        return rows.take(pa.array(self.numbers))

    def without(self, numbers: Sequence[int]) -> RowsOfPartition:
        found = np.asarray(self.numbers)
        return RowsOfPartition(self.partition, found[~np.isin(found, numbers)])


def split_by_partition(partitions: Partitions) -> list[RowsOfPartition]:
    """The rows of each partition that occurs."""
    if len(partitions) == 0:
        return []
    first = int(partitions[0])
    if bool((partitions == first).all()):
        return [RowsOfPartition(first, range(len(partitions)))]
    there = np.flatnonzero(np.bincount(partitions))
    if len(there) <= _FEW:
        return [_rows_of(partition, np.flatnonzero(partitions == partition)) for partition in there.tolist()]
    small = partitions.astype(np.uint16) if int(there[-1]) < 1 << 16 else partitions  # NumPy radix-sorts 16-bit numbers
    order = np.argsort(small, kind="stable")
    bounds = np.flatnonzero(np.diff(partitions[order])) + 1
    return [_rows_of(int(partitions[part[0]]), part) for part in np.split(order, bounds)]


def _rows_of(partition: int, numbers: npt.NDArray[np.int64]) -> RowsOfPartition:
    begin, end = int(numbers[0]), int(numbers[-1]) + 1
    return RowsOfPartition(partition, range(begin, end) if end - begin == len(numbers) else numbers)
