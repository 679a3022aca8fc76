"""Normalizes rows to append: the columns of a record batch in the types that the codecs take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from ..client import HEADERS, RowRecords
from ..errors import InvalidRecords

_SLICE_BYTES: Final = 256 * 1024 * 1024  # far below the limit of the 32-bit offsets of a binary column
_TIME: Final = pa.int64()
_BYTES: Final = pa.binary()


@dataclass(slots=True)
class RowColumns:
    """It is never changed. It is not frozen because each append creates one, and that takes a third of the time.

    Invariant: all columns have the same length; `timestamps` has no nulls."""

    timestamps: pa.Int64Array
    keys: pa.BinaryArray
    values: pa.BinaryArray
    headers: pa.ListArray | None

    def __len__(self) -> int:
        return len(self.timestamps)


def row_columns(records: RowRecords) -> Iterator[RowColumns]:
    """The rows in order, in contiguous pieces. Raises `InvalidRecords`."""
    table = records.table
    for piece in table.to_batches() if isinstance(table, pa.Table) else [table]:
        if piece.num_rows == 1:
            yield _columns_of(piece)
            continue
        for part in _small_enough(piece):
            if part.num_rows:
                yield _columns_of(part)


def _small_enough(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    # Counting the bytes of a slice is slow; the size of its whole buffers is a cheap upper bound.
    if batch.num_rows <= 1 or batch.get_total_buffer_size() <= _SLICE_BYTES or batch.nbytes <= _SLICE_BYTES:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _small_enough(batch.slice(0, half))
    yield from _small_enough(batch.slice(half))


def _columns_of(batch: pa.RecordBatch) -> RowColumns:
    names = batch.schema.names
    timestamps = _column(batch, names, "timestamp", _TIME)
    if timestamps.null_count:
        raise InvalidRecords("a record has no timestamp", hint="Give each record a timestamp in milliseconds.")
    headers = _column(batch, names, "headers", HEADERS) if "headers" in names else None
    keys, values = _column(batch, names, "key", _BYTES), _column(batch, names, "value", _BYTES)
    return RowColumns(timestamps, keys, values, headers)


def _column(batch: pa.RecordBatch, names: list[str], name: str, kind: pa.DataType) -> pa.Array:
    """In: `names`: the names of the batch's columns."""
    if name not in names:
        raise InvalidRecords(
            f'the records have no column "{name}"',
            hint="A table to append has the columns timestamp, key, value and, if wanted, headers.",
        )
    column = batch.column(name)
    if column.type == kind:
        return column
    try:
        if name == "timestamp" and pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("ms"), safe=False)
        return column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidRecords(f'column "{name}" of the records is {column.type}, not {kind}') from error
