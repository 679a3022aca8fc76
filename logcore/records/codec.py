"""Encodes and decodes batches of rows: chooses between the plain codec and the compiled one.

Loading the compiled one takes about half a second (longer the very first time, when it is compiled). So small batches
do not wait for it, until there have been enough of them to make it worthwhile.
"""

from __future__ import annotations

import importlib
import struct
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from ..client import ROWS, ColumnarRecords, RowRecords
from . import small
from .batch import (
    APPEND_TIME,
    COMPRESSION,
    HEADER_SIZE,
    NOBODY,
    BatchHeader,
    BatchProducer,
    EncodedBatch,
    next_sequence,
)
from .columns import row_columns
from .compression import SIZE_MAX, uncompress
from .envelope import encode_columns
from .record_layout import StoredBatch

_FEW_ROWS: Final = 16  # below, plain Python is as fast
_FEW_ROWS_UNLOADED: Final = 2000
_PLAIN_ROWS_MAX: Final = 20_000  # after this many rows the compiled codec is loaded anyway


class _Choice:
    """State: the compiled codec once it is loaded, and how many rows were processed without it before."""

    def __init__(self) -> None:
        self.bulk: Any = None
        self.plain_rows = 0

    def codec_for(self, rows: int) -> Any:
        if rows < _FEW_ROWS:
            return small
        if self.bulk is None:
            self.plain_rows += rows
            if rows < _FEW_ROWS_UNLOADED and self.plain_rows < _PLAIN_ROWS_MAX:
                return small
            self.bulk = importlib.import_module(".bulk", __package__)
        return self.bulk


_choice = _Choice()


def encode(records: RowRecords | ColumnarRecords, producer: BatchProducer = NOBODY) -> list[EncodedBatch]:
    """The batches that hold these records; none if there are no records. Raises `InvalidRecords`."""
    if isinstance(records, ColumnarRecords):
        return [encode_columns(records, producer)] if records.batch.num_rows else []
    batches: list[EncodedBatch] = []
    rows = 0
    for columns in row_columns(records):
        if rows and producer.base_sequence >= 0:
            producer = producer._replace(base_sequence=next_sequence(producer.base_sequence, rows))
        rows = len(columns)
        batches += _choice.codec_for(rows).encode_rows(columns, producer)
    return batches


def stored_batch(header: BatchHeader, batch: memoryview, size_max: int = SIZE_MAX) -> StoredBatch:
    """The input of the decoders for a whole batch. Raises ValueError if it cannot be decompressed."""
    buffer, start, end = batch, HEADER_SIZE, len(batch)
    if header.attributes & COMPRESSION:
        buffer = uncompress(header.attributes & COMPRESSION, batch[HEADER_SIZE:], size_max)
        start, end = 0, len(buffer)
    fixed = header.max_timestamp_ms if header.attributes & APPEND_TIME else None
    return StoredBatch(buffer, start, end, header.record_count, header.base_offset, header.base_timestamp_ms, fixed)


def decode_rows(batches: Sequence[StoredBatch], from_offset: int) -> pa.Table:
    """One table of the rows at or after `from_offset`. Raises ValueError if the bytes are not records."""
    rows = sum(batch.record_count for batch in batches)
    if not rows:
        return ROWS.empty_table()
    try:
        return _choice.codec_for(rows).decode_rows(batches, from_offset)
    except (IndexError, struct.error, OverflowError) as error:
        raise ValueError(f"not records: {error}") from error


def check_rows(batch: StoredBatch) -> None:
    """Raises ValueError if the bytes are not exactly the records, with consecutive offsets from 0 on."""
    try:
        _choice.codec_for(batch.record_count).check_rows(batch)
    except (IndexError, struct.error, OverflowError) as error:
        raise ValueError(f"not records: {error}") from error
