"""The rows that Spark sees between source, second stage and sink. Imports little: all of Spark's processes load it."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pyarrow as pa

PIECE_SCHEMA = "bucket INT, seq BIGINT, batch BINARY"
REPORT_SCHEMA = (
    "bucket INT, rows_in BIGINT, rows_used BIGINT, rows_failed BIGINT, rows_out BIGINT, bytes_in BIGINT, ends STRING"
)
COUNTS = ("rows_in", "rows_used", "rows_failed", "rows_out", "bytes_in")
NO_BUCKET = -1
"""The bucket of the row that says where the batch ends: it is in each batch, also in one without records."""

_PIECES = pa.schema([("bucket", pa.int32()), ("seq", pa.int64()), ("batch", pa.binary())])
_REPORTS = pa.schema([("bucket", pa.int32()), *((name, pa.int64()) for name in COUNTS), ("ends", pa.string())])


def piece_row(bucket: int, sequence: int, data: bytes) -> pa.RecordBatch:
    """A piece as a row."""
    columns = [pa.array([bucket], pa.int32()), pa.array([sequence], pa.int64()), pa.array([data], pa.binary())]
    return pa.RecordBatch.from_arrays(columns, schema=_PIECES)


def ends_row(ends: Mapping[str, int]) -> pa.RecordBatch:
    """The row that says where the batch ends."""
    return piece_row(NO_BUCKET, 0, json.dumps(dict(ends)).encode())


def report_row(bucket: int, counts: Mapping[str, int], ends: str | None = None) -> pa.RecordBatch:
    """What a bucket did; or, for NO_BUCKET, where the batch ends."""
    values = [bucket, *(counts.get(name, 0) for name in COUNTS), ends]
    arrays = [pa.array([value], field.type) for value, field in zip(values, _REPORTS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_REPORTS)
