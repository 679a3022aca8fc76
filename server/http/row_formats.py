"""The rows of a query as bytes of a response: one class per media type. Each encodes a head, rows, and an end."""

from __future__ import annotations

import decimal
from collections.abc import Iterator
from typing import Any, Final, Protocol

import orjson

from ..engine.entities import json_value
from ..engine.print_topic import PrintFeed
from ..engine.queries import QueryResult, QueryRow
from ..insight.descriptions import fields_of
from .errors import error_body

DELIMITED_TYPE = "application/vnd.ksqlapi.delimited.v1"
JSON_TYPE = "application/json"
KSQL_TYPE = "application/vnd.ksql.v1+json"
MILLSTREAM_TYPE = "application/vnd.millstream.rows.v1"
PRINT_TYPE = "text/plain; charset=utf-8"
NDJSON_TYPE = "application/x-ndjson"

_COMMA: Final = b",\n"
_TERMINATED: Final = "Query Terminated"  # of a push query that somebody closed, or whose server stops


class RowFormat(Protocol):
    """`media_type`: of the whole response."""

    media_type: str

    def head(self, result: QueryResult) -> bytes: ...

    def row(self, row: QueryRow) -> bytes:
        """Empty if the format cannot express the row."""
        ...

    def end(self, result: QueryResult, error: BaseException | None) -> bytes:
        """Ends the response, after the last row or after an error."""
        ...


def encoded(result: QueryResult, format: RowFormat) -> Iterator[bytes]:
    """The whole response. An error after the first rows is sent at the end."""
    yield format.head(result)
    failure: BaseException | None = None
    try:
        for rows in result.pieces():
            yield b"".join(map(format.row, rows))
    except Exception as error:
        failure = error
    yield format.end(result, failure or result.stopped)


class DelimitedRows:
    """One JSON value per line: the header, then an array per row. Tombstones are not sent."""

    media_type = DELIMITED_TYPE

    def head(self, result: QueryResult) -> bytes:
        return _json(_header(result)) + b"\n"

    def row(self, row: QueryRow) -> bytes:
        return b"" if row.tombstone else _json(row.values) + b"\n"

    def end(self, result: QueryResult, error: BaseException | None) -> bytes:
        return b"" if error is None else _json(error_body(error)) + b"\n"


class JsonArray:
    """Like `DelimitedRows`, but the whole response is one JSON array."""

    media_type = JSON_TYPE

    def head(self, result: QueryResult) -> bytes:
        return b"[" + _json(_header(result))

    def row(self, row: QueryRow) -> bytes:
        return b"" if row.tombstone else b",\n" + _json(row.values)

    def end(self, result: QueryResult, error: BaseException | None) -> bytes:
        return (b"" if error is None else b",\n" + _json(error_body(error))) + b"]\n"


class StreamedRows:
    """/query: an array of objects of different kinds: header, row, finalMessage or errorMessage.

    A push query's rows end with the comma and the line break, so that who reads line by line has each row at once; a
    last object always follows. A pull query may end with a row, so a comma precedes each row.
    """

    def __init__(self, media_type: str = KSQL_TYPE) -> None:
        self.media_type = media_type
        self._before, self._after = _COMMA, b""

    def head(self, result: QueryResult) -> bytes:
        if result.kind == "PUSH":
            self._before, self._after = b"", _COMMA
        header = {"header": {"queryId": result.query_id, "schema": str(result.schema)}}
        return b"[" + _json(header) + self._after

    def row(self, row: QueryRow) -> bytes:
        members: dict[str, Any] = {"columns": row.values}
        if row.tombstone:
            members["tombstone"] = True
        return self._before + _json({"row": members}) + self._after

    def end(self, result: QueryResult, error: BaseException | None) -> bytes:
        if error is not None:
            return self._before + _json({"errorMessage": error_body(error)}) + b"]\n"
        message = result.final_message or (_TERMINATED if result.kind == "PUSH" else None)
        return b"]\n" if message is None else self._before + _json({"finalMessage": message}) + b"]\n"


class MillstreamRows:
    """The format of our own client: `DelimitedRows` with the kind of query, tombstones and final messages."""

    media_type = MILLSTREAM_TYPE

    def head(self, result: QueryResult) -> bytes:
        return _json({"kind": result.kind, **_header(result), "keyColumns": result.key}) + b"\n"

    def row(self, row: QueryRow) -> bytes:
        return _json({"tombstone": row.values} if row.tombstone else row.values) + b"\n"

    def end(self, result: QueryResult, error: BaseException | None) -> bytes:
        if error is not None:
            return _json({"errorMessage": error_body(error)}) + b"\n"
        return _json({"finalMessage": result.final_message}) + b"\n"


def progress_line(result: QueryResult) -> bytes:
    """The line that reports progress between `MillstreamRows`, for clients that asked for it."""
    progress = result.progress()
    if progress is None:
        return b""
    members = {"lag": progress.lag, "streamTimeMs": progress.stream_time_ms, "leftOut": progress.left_out}
    return _json({"progress": members}) + b"\n"


class NdJson:
    """A JSON object per line and row, with the columns' names: for jq, data frames and loaders. Tombstones are not
    sent."""

    media_type = NDJSON_TYPE

    def __init__(self) -> None:
        self._names: list[str] = []

    def head(self, result: QueryResult) -> bytes:
        self._names = [column.name for column in result.schema]
        return b""

    def row(self, row: QueryRow) -> bytes:
        return b"" if row.tombstone else _json(dict(zip(self._names, row.values, strict=True))) + b"\n"

    def end(self, result: QueryResult, error: BaseException | None) -> bytes:
        return b"" if error is None else _json(error_body(error)) + b"\n"


class SocketRows:
    """The messages of a web socket, one per line: the columns, then an object per row."""

    media_type = JSON_TYPE

    def head(self, result: QueryResult) -> bytes:
        return _json(json_value(fields_of(result.schema))) + b"\n"

    def row(self, row: QueryRow) -> bytes:
        members: dict[str, Any] = {"columns": row.values}
        if row.tombstone:
            members["tombstone"] = True
        return _json({"row": members}) + b"\n"

    def end(self, result: QueryResult, error: BaseException | None) -> bytes:
        if error is not None:
            return _json({"errorMessage": error_body(error)}) + b"\n"
        return b"" if result.final_message is None else _json({"finalMessage": result.final_message}) + b"\n"


def encoded_lines(feed: PrintFeed, media_type: str) -> Iterator[bytes]:
    """The lines of PRINT as text; for our own client each line is a JSON array of one text."""
    ours = media_type == MILLSTREAM_TYPE
    if ours:
        yield _json({"kind": "PRINT", "queryId": None, "columnNames": ["LINE"], "columnTypes": ["STRING"]}) + b"\n"
    last: dict[str, Any] = {"finalMessage": None}
    try:
        for line in feed:
            yield (_json([line]) if ours else line.encode(errors="replace")) + b"\n"
    except Exception as error:
        last = {"errorMessage": error_body(error)}
    if ours or "errorMessage" in last:
        yield _json(last) + b"\n"


def _header(result: QueryResult) -> dict[str, Any]:
    return {
        "queryId": result.query_id,
        "columnNames": [column.name for column in result.schema],
        "columnTypes": [str(column.type) for column in result.schema],
    }


def _json(value: Any) -> bytes:
    return orjson.dumps(value, default=_other, option=orjson.OPT_NON_STR_KEYS)


def _other(value: object) -> object:
    """DECIMAL becomes a JSON number with all the digits of its scale; other values become their `str`."""
    if isinstance(value, decimal.Decimal):
        return orjson.Fragment(format(value, "f").encode()) if value.is_finite() else str(value)
    return str(value)
