"""A topic of the log as rows, with any contents.

A topic in row form has the columns of TOPIC_SCHEMA; a topic in columnar form has its own columns, `_partition` and
`_offset`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from millstream.logcore.client import HEADERS, FetchedColumns, FetchedRows, LogClient, TopicPartition

TOPIC_SCHEMA: Final = pa.schema([
    ("partition", pa.int32()), ("offset", pa.int64()), ("timestamp", pa.timestamp("us", "UTC")), ("key", pa.binary()),
    ("value", pa.binary()), ("headers", HEADERS),
])  # fmt: skip
_OFFSET: Final[dict[type, str]] = {FetchedRows: "offset", FetchedColumns: "_offset"}


def topic_schema(log: LogClient, topic: str) -> pa.Schema:
    """The schema, determined by the first existing record."""
    for partition in range(log.partition_count(topic)):
        found = log.fetch(topic, partition, log.offsets(topic, partition).log_start_offset, max_bytes=1).runs
        if found and isinstance(found[0], FetchedColumns):
            schema = found[0].batch.schema
            return schema.append(pa.field("_partition", pa.int32())).append(pa.field("_offset", pa.int64()))
        if found:
            break
    return TOPIC_SCHEMA


def topic_rows(log: LogClient, lane: TopicPartition, start: int, end: int) -> Iterator[pa.Table]:
    """The records at these offsets, `end` exclusive."""
    position = start
    while position < end:
        fetched = log.fetch(*lane, position)
        for run in fetched.runs:
            table = _rows(run, lane.partition)
            yield table.filter(pa.array(table.column(_OFFSET[type(run)]).to_numpy() < end))
        if fetched.next_offset <= position:
            return
        position = fetched.next_offset


def _rows(run: FetchedRows | FetchedColumns, partition: int) -> pa.Table:
    if isinstance(run, FetchedColumns):
        table = pa.Table.from_batches([run.batch])
        partitions = pa.array(np.full(len(table), partition, np.int32))
        return table.append_column("_partition", partitions).append_column("_offset", pa.array(run.row_offsets))
    table = run.table
    times = table["timestamp"].cast(pa.timestamp("ms", "UTC"))
    table = table.set_column(table.column_names.index("timestamp"), "timestamp", times)
    if "headers" not in table.column_names:
        table = table.append_column("headers", pa.nulls(len(table), HEADERS))
    return table.append_column("partition", pa.array(np.full(len(table), partition, np.int32)))
