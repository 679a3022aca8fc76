"""Rows as an Arrow IPC stream (https://arrow.apache.org/docs/format/Columnar.html), for notebooks and data frames.

The columns are those of the query, in its types. If rows may be updated (`keyed`), an additional column, `@tombstone`,
marks rows that are deleted. The last batch has no rows, and its metadata has `end` or `error`.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from ..client_tables import END, ERROR, HEADER
from ..engine.queries import QueryResult
from .errors import error_body


def arrow_stream(result: QueryResult) -> Iterator[bytes]:
    """The whole response. An error after the first rows is sent in the last batch."""
    header = {
        "kind": result.kind,
        "queryId": result.query_id,
        "columnTypes": [str(column.type) for column in result.schema],
        "keyColumns": result.key,
    }
    schema = result.arrow_schema.with_metadata({HEADER: json.dumps(header).encode()})
    sink = _Sink()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_pylist([], schema))  # otherwise the schema is sent with the first rows
        yield sink.take()
        last: dict[bytes, bytes] = {}
        try:
            for table in result.tables():
                writer.write_table(table)
                yield sink.take()
            last[END] = json.dumps({"finalMessage": result.final_message}).encode()
        except Exception as error:
            last[ERROR] = json.dumps(error_body(error)).encode()
        writer.write_batch(pa.RecordBatch.from_pylist([], schema), custom_metadata=last)
    yield sink.take()


class _Sink(io.RawIOBase):
    """Collects written bytes until `take`."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self._parts.append(bytes(data))
        return len(self._parts[-1])

    def take(self) -> bytes:
        taken, self._parts = b"".join(self._parts), []
        return taken
