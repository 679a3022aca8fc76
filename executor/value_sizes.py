"""Limits the size of values that expressions return. If a column as a whole is small, no value is checked."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..sql.functions.bounds import VALUE_BYTES, BoundExceeded, CallBounds
from ..sql.functions.failures import Failures


def too_large(column: pa.Array | pa.ChunkedArray, bounds: CallBounds) -> np.ndarray | None:
    """For each value, whether it exceeds the limit; None if no value does."""
    if column.nbytes <= bounds.value_bytes:
        return None
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        sizes = pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
    elif pa.types.is_nested(column.type):
        sizes = np.fromiter((column.slice(row, 1).nbytes for row in range(len(column))), np.int64, len(column))
    else:
        return None
    found = sizes > bounds.value_bytes
    return found if found.any() else None


def without_large_values(rows: pa.Table, failures: Failures) -> pa.Table:
    """The rows, with NULL instead of values that are too large; these are counted in `failures`."""
    for index, field in enumerate(rows.schema):
        if pa.types.is_primitive(field.type):  # numbers, times and booleans
            continue
        found = too_large(rows.column(index), failures.bounds)
        if found is None:
            continue
        failures.note_too_large(int(found.sum()))
        kept = pc.if_else(pa.array(~found), rows.column(index), pa.scalar(None, rows.column(index).type))
        rows = rows.set_column(index, field, kept)
    return rows


def check_sizes(batch: pa.RecordBatch, bounds: CallBounds) -> None:
    """Raises `BoundExceeded` if a value exceeds the limit."""
    for column in batch.columns:
        if too_large(column, bounds) is not None:
            message = f"a value is larger than {VALUE_BYTES} = {bounds.value_bytes:,} bytes"
            raise BoundExceeded(message, VALUE_BYTES)
