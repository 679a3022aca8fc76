"""Rows as Arrow tables for the client: reads what `arrow_rows` writes. Both use the constants below."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import pyarrow as pa

from millstream.errors import ServerError

if TYPE_CHECKING:
    from .engine.queries import QueryResult

ARROW_TYPE: Final = "application/vnd.apache.arrow.stream"
HEADER: Final = b"millstream.header"
END: Final = b"millstream.end"
ERROR: Final = b"millstream.error"
_BROKEN: Final = (pa.ArrowException, OSError, http.client.HTTPException, StopIteration, ValueError, AttributeError)
_BODY_BYTES: Final = 512 * 1024  # half of what a server accepts


class AnswerBroke(ServerError):
    """The query failed after its answer had begun."""

    code = "ANSWER_BROKE"


class Readable(Protocol):
    """An HTTP response."""

    def read(self, amount: int = -1, /) -> bytes: ...


class ResultTables:
    """The rows of one SELECT as tables of `schema`. Iterate once; `close`, from any thread, ends it early.

    If rows can update earlier rows, a column `@tombstone` marks rows that are deleted. `sql_types`: the types of the
    query's columns, in SQL notation. `key`: the positions of the columns that identify the updated row, if they are
    known.
    """

    def __init__(
        self, kind: Literal["PULL", "PUSH"], query_id: str, schema: pa.Schema, sql_types: tuple[str, ...],
        tables: Iterator[pa.Table], close: Callable[[], None], key: tuple[int, ...] | None = None,
    ) -> None:  # fmt: skip
        self.kind: Literal["PULL", "PUSH"] = kind
        self.query_id = query_id
        self.schema = schema
        self.sql_types = sql_types
        self.key = key
        self._tables = tables
        self._close = close

    def __iter__(self) -> Iterator[pa.Table]:
        try:
            yield from self._tables
        finally:
            self.close()

    def limited(self, row_count: int) -> ResultTables:
        """The first `row_count` rows. Iterate over the result instead of this object."""

        def taken() -> Iterator[pa.Table]:
            left = row_count
            for table in self:
                yield table.slice(0, left)
                left -= table.num_rows
                if left <= 0:
                    return

        return ResultTables(self.kind, self.query_id, self.schema, self.sql_types, taken(), self._close, self.key)

    def close(self) -> None:
        self._close()

    def __enter__(self) -> ResultTables:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def local_tables(result: QueryResult) -> ResultTables:
    """The tables of a query in this process."""
    types = tuple(str(column.type) for column in result.schema)
    return ResultTables(
        result.kind, result.query_id, result.arrow_schema, types, result.tables(), result.close, result.key
    )


def remote_tables(response: Readable, cut: Callable[[], None], address: str) -> ResultTables:
    """The tables of a server's response. In: `cut` ends it. Raises `AnswerBroke` if the response has no tables."""
    closed = False

    def close() -> None:
        nonlocal closed
        closed = True
        cut()

    def tables() -> Iterator[pa.Table]:
        while True:
            try:
                batch, metadata = reader.read_next_batch_with_custom_metadata()
            except _BROKEN as error:
                if closed:
                    return
                raise AnswerBroke(f"the connection to {address} broke before the last row") from error
            about: Mapping[bytes, bytes] = metadata or {}
            if ERROR in about:
                raise AnswerBroke(str(json.loads(about[ERROR])["message"]))
            if END in about:
                return
            yield pa.Table.from_batches([batch]).replace_schema_metadata(None)

    try:
        reader: Any = pa.ipc.open_stream(pa.PythonFile(response, mode="r"))
        header = json.loads(reader.schema.metadata[HEADER])
    except (*_BROKEN, LookupError, TypeError) as error:
        cut()
        raise AnswerBroke(f"what answers at {address} is not a Millstream server") from error
    schema = reader.schema.remove_metadata()
    types, key = tuple(header["columnTypes"]), header.get("keyColumns")
    return ResultTables(
        header["kind"], header["queryId"], schema, types, tables(), close, None if key is None else tuple(key)
    )


def insert_bodies(rows: pa.Table) -> Iterator[bytes]:
    """The rows as Arrow IPC streams that a server accepts, as few as possible; a single row is never split."""
    if rows.num_rows > 1 and rows.nbytes > _BODY_BYTES:
        half = rows.num_rows // 2
        yield from insert_bodies(rows.slice(0, half))
        yield from insert_bodies(rows.slice(half))
        return
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    yield sink.getvalue().to_pybytes()
