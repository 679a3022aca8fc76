"""The interface of every format: a decoder from record bytes to columns, and an encoder back, for batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...sql.compiling.loops import read_only
from ..errors import QueryFailed


@dataclass(frozen=True, slots=True)
class RowError:
    """Row `row` of a batch could not be decoded or encoded. The message has what was expected, what was found, and
    where."""

    row: int
    message: str


@dataclass(frozen=True, slots=True)
class Decoded:
    """Columns in the order of the decoder's columns, all as long as the batch.

    `null_rows`: true if a row has no value at all, because the bytes are null or encode null (the JSON text null).
    `window_start`, `window_end`: BIGINT ms, if the key is windowed.
    """

    columns: list[pa.Array]
    null_rows: pa.BooleanArray
    errors: list[RowError] = field(default_factory=list[RowError])
    window_start: pa.Array | None = None
    window_end: pa.Array | None = None


class UnwritableRows(QueryFailed):
    """Rows that the format or its schema cannot hold. `errors`: one per such row, in order; at least one."""

    code = "UNWRITABLE_ROWS"

    def __init__(self, errors: Sequence[RowError]) -> None:
        super().__init__(f"Exception caught in process: Unable to serialize record: {errors[0].message}")
        self.errors = errors


class Decoder(Protocol):
    """Decoders are thread-safe, unless a format says otherwise; all of ours are."""

    def decode(self, data: pa.Array | pa.ChunkedArray) -> Decoded:
        """Decodes a batch. Null bytes are NULL in all columns. A row that cannot be decoded is NULL, too, and has an
        entry in `errors`."""
        ...


class Encoder(Protocol):
    """Encoders are thread-safe, like decoders."""

    def encode(
        self,
        columns: Sequence[pa.Array],
        *,
        null_rows: pa.BooleanArray | None = None,
        window_start: pa.Array | None = None,
        window_end: pa.Array | None = None,
    ) -> pa.BinaryArray:
        """One byte string per row; null for `null_rows`. Without `null_rows`, a key is null if all its columns are.
        Raises `UnwritableRows`."""
        ...


def encode_writable(
    encoder: Encoder,
    columns: Sequence[pa.Array],
    null_rows: pa.BooleanArray | None = None,
    window_start: pa.Array | None = None,
    window_end: pa.Array | None = None,
) -> tuple[pa.BinaryArray, Sequence[RowError]]:
    """One byte string per row, and the errors of rows that cannot be written: these rows are null."""
    try:
        encoded = encoder.encode(columns, null_rows=null_rows, window_start=window_start, window_end=window_end)
        return encoded, ()
    except UnwritableRows as refused:
        errors = refused.errors
    given = [*columns, null_rows, window_start, window_end]
    count = next(len(array) for array in given if array is not None)
    writable = np.ones(count, np.bool_)
    writable[[error.row for error in errors]] = False
    keep = pa.array(writable)
    *values, nulls, starts, ends = (None if array is None else array.filter(keep) for array in given)
    encoded = encoder.encode(values, null_rows=nulls, window_start=starts, window_end=ends)
    places = pa.array(np.cumsum(writable) - 1, mask=~writable)
    return encoded.take(places), errors


def one_array(data: pa.Array | pa.ChunkedArray) -> pa.BinaryArray:
    """The bytes as one array of 32-bit binary."""
    if isinstance(data, pa.ChunkedArray):
        data = data.chunk(0) if data.num_chunks == 1 else pa.concat_arrays(data.chunks or [pa.array([], data.type)])
    return data if data.type == pa.binary() else data.cast(pa.binary())


def byte_view(array: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """The bytes of a string or binary array and its offsets into them: read-only, without a copy."""
    buffers = array.buffers()
    text, offsets = buffers[2], buffers[1]
    data = np.zeros(0, np.uint8) if text is None else np.frombuffer(text, np.uint8)
    if offsets is None:
        return read_only(data), read_only(np.zeros(1, np.int32))
    positions = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    return read_only(data), read_only(positions)


def valid_flags(array: pa.Array) -> NDArray[np.uint8]:
    """1 where the array has a value, 0 where it is NULL."""
    if array.null_count == 0:
        return np.ones(len(array), np.uint8)
    return array.is_valid().to_numpy(zero_copy_only=False).astype(np.uint8)


def boolean_array(flags: NDArray[np.bool_] | NDArray[np.uint8]) -> pa.BooleanArray:
    return pa.array(flags.astype(np.bool_))
