"""The repartition topic of a query: rows that leave a bucket for a task of the next subplan.

Partition n has what bucket n wrote, in the transactions of its outputs and state changes, so what is read there is
there once, as the state that it came from. Its readers split it by task again, so a bucket writes one partition and
not as many as there are tasks: the cost of a batch does not grow with their product.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa

from ...logcore.client import ColumnarRecords, FetchedColumns, LogClient
from ..errors import ForeignState, QueryFailed
from .lanes import LaneRange

ROWS_MAX = 65_536  # in one record batch, so that a reader's memory stays bounded
READ_BYTES = 16 * 1024 * 1024
VISIBLE_S = 30.0  # how long what was committed may take to become visible, on logs whose commit does not wait for it


def records_of(rows: pa.Table) -> Iterator[ColumnarRecords]:
    """The rows as record batches. Their rowtimes do not matter to the log: it keeps them until they were read."""
    for batch in rows.replace_schema_metadata().combine_chunks().to_batches(max_chunksize=ROWS_MAX):
        yield ColumnarRecords(batch, 0)


def read_rows(log: LogClient, lane_range: LaneRange) -> Iterator[tuple[pa.Table, int]]:
    """The rows of the range, a stretch at a time, each with the offset after it."""
    (topic, partition), position, end = lane_range.lane, lane_range.start, lane_range.end
    since = time.monotonic()
    while position < end:
        fetched = log.fetch(topic, partition, position, max_bytes=READ_BYTES)
        batches = [_rows(run, end) for run in fetched.runs]
        moved = fetched.next_offset > position
        position = fetched.next_offset
        if batches:
            tables = [pa.Table.from_batches([batch]) for batch in batches]  # some may have headers, and others none
            yield pa.concat_tables(tables, promote_options="default"), min(position, end)
        elif not moved:
            if time.monotonic() - since > VISIBLE_S:
                raise QueryFailed(
                    f'partition {partition} of topic "{topic}" was written up to offset {end}, and can be read only'
                    f" up to {position}"
                )
            log.wait({lane_range.lane: position}, 1.0)


def _rows(run: object, end: int) -> pa.RecordBatch:
    if not isinstance(run, FetchedColumns):
        raise ForeignState(
            "the repartition topic of the query holds records that no query wrote",
            hint="Rebuild the query from its sources with RESET.",
        )
    return run.batch.slice(0, int((run.row_offsets < end).sum())).replace_schema_metadata()
