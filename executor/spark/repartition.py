"""The repartition topic of a query: rows that go from a bucket to a task of the next subplan.

Partition n contains the rows that bucket n wrote in the transactions of its outputs and state changes. So each row is
there exactly once, like the state from which it came. The readers split the rows by task. So a bucket writes only one
partition, not one per task, and the cost of a batch does not grow with the product of buckets and tasks.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa

from ...logcore.client import ColumnarRecords, FetchedColumns, FetchedRows, LogClient, RowRecords
from ..errors import ForeignState, QueryFailed
from .lanes import LaneRange

ROWS_MAX = 65_536  # in one record batch, so that a reader's memory stays bounded
PACKED_BYTES = 256 * 1024  # size of a batch that is stored as one record; brokers accept up to 1 MB
_PACKED = pa.schema([("timestamp", pa.int64()), ("key", pa.binary()), ("value", pa.binary())])
READ_BYTES = 16 * 1024 * 1024
VISIBLE_S = 30.0  # how long committed rows may take to become visible, on logs whose commit does not wait for that


def records_of(rows: pa.Table, *, columnar: bool) -> Iterator[ColumnarRecords | RowRecords]:
    """The rows as record batches. The log does not use their rowtimes: it keeps the rows until they were read. In:
    `columnar`: whether the log can store columnar batches; if not, each record is a packed batch with one offset."""
    plain = rows.replace_schema_metadata().combine_chunks()
    if columnar:
        for batch in plain.to_batches(max_chunksize=ROWS_MAX):
            yield ColumnarRecords(batch, 0)
        return
    size = max(1, plain.num_rows * PACKED_BYTES // max(PACKED_BYTES, plain.nbytes))
    for batch in plain.to_batches(max_chunksize=min(size, ROWS_MAX)):
        yield RowRecords(_packed(batch))


def _packed(batch: pa.RecordBatch) -> pa.Table:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch)
    columns = {"timestamp": [int(time.time() * 1000)], "key": [None], "value": [out.getvalue().to_pybytes()]}
    return pa.table(columns, schema=_PACKED)


def read_rows(log: LogClient, lane_range: LaneRange) -> Iterator[tuple[pa.Table, int]]:
    """The rows of the range in several tables, each with the offset after it."""
    (topic, partition), position, end = lane_range.lane, lane_range.start, lane_range.end
    since = time.monotonic()
    while position < end:
        fetched = log.fetch(topic, partition, position, max_bytes=READ_BYTES)
        batches = [batch for run in fetched.runs for batch in _batches(run, end)]
        moved = fetched.next_offset > position
        position = fetched.next_offset
        if batches:
            tables = [pa.Table.from_batches([batch]) for batch in batches]  # only some may have a headers column
            yield pa.concat_tables(tables, promote_options="default"), min(position, end)
        elif not moved:
            if time.monotonic() - since > VISIBLE_S:
                raise QueryFailed(
                    f'partition {partition} of topic "{topic}" was written up to offset {end}, and can be read only'
                    f" up to {position}"
                )
            log.wait({lane_range.lane: position}, 1.0)


def _batches(run: FetchedRows | FetchedColumns, end: int) -> Iterator[pa.RecordBatch]:
    """The part of the run before `end`. Raises `ForeignState`."""
    if isinstance(run, FetchedColumns):
        yield run.batch.slice(0, int((run.row_offsets < end).sum())).replace_schema_metadata()
        return
    count = int((run.table["offset"].to_numpy() < end).sum())
    try:
        for value in run.table["value"].slice(0, count).to_pylist():
            with pa.ipc.open_stream(value) as packed:
                yield from packed
    except (pa.ArrowInvalid, TypeError) as error:
        raise ForeignState(
            f"the repartition topic of the query holds records that no query wrote: {error}",
            hint="Rebuild the query from its sources with RESET.",
        ) from error
