"""POST /query and /query-stream: rows as they come, for as long as the client stays.

Raw ASGI: a row leaves as soon as it is there, a slow client slows the query down, and one that goes away ends it.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

import structlog
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from millstream.errors import InvalidStatement

from ..sql.ast import PrintTopic
from ..sql.tokens import tokenize
from .arrow_rows import arrow_stream
from .client_tables import ARROW_TYPE
from .http_context import HttpContext, user_of
from .http_requests import StatementRequest, awaited_command, read_object, statement_request
from .http_statements import error_response
from .queries import QueryResult
from .row_formats import (
    DELIMITED_TYPE,
    JSON_TYPE,
    KSQL_TYPE,
    MILLSTREAM_TYPE,
    PRINT_TYPE,
    Delimited,
    JsonArray,
    MillstreamRows,
    NdJson,
    RowFormat,
    StreamedRows,
    encoded,
    encoded_lines,
)
from .row_stream import RowStream

_log = structlog.get_logger("millstream.server")

STALL_SECONDS_MAX: Final = 60.0  # a client that takes nothing for so long is gone


@dataclass(frozen=True, slots=True)
class StartedRows:
    """What a query sends: `open` begins to fill the stream."""

    query_id: str
    kind: Literal["PULL", "PUSH"]
    media_type: str
    open: Callable[[], RowStream]


@dataclass(frozen=True, slots=True)
class Encoding:
    """A media type, and how rows become a response of it."""

    media_type: str
    chunks: Callable[[QueryResult], Iterator[bytes]]


class QueryRoute:
    """An ASGI application. `default_type` is what a client gets who accepts anything."""

    def __init__(self, context: HttpContext, default_type: str) -> None:
        self._context = context
        self._default_type = default_type

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        text: str | None = None
        try:
            body = await read_object(request, self._context.body_bytes_max)
            asked = statement_request(body, user_of(scope), self._context.engine.properties)
            await self._context.await_command(awaited_command(body))
            text = asked.text
            format = self._encoding(request.headers.get("accept", "*/*"))
            rows = await self._context.workers.run(lambda: start_rows(self._context, asked, format))
            stream = rows.open()
            try:
                self._context.open_queries.add(rows.query_id, rows.kind, stream)
            except BaseException:
                stream.close()
                raise
        except Exception as error:
            await error_response(error, text)(scope, receive, send)
            return
        try:
            stream.start()
            await _send_all(stream, rows.media_type, receive, send)
        except TimeoutError:
            _log.warning("client takes no rows", query_id=rows.query_id)  # returning closes its connection
        finally:
            stream.close()
            self._context.open_queries.remove(rows.query_id)

    def _encoding(self, accept: str) -> Encoding:
        format = self._format(accept)
        if format is None:
            return Encoding(ARROW_TYPE, arrow_stream)
        return Encoding(format.media_type, lambda result: encoded(result, format))

    def _format(self, accept: str) -> RowFormat | None:
        """None is Arrow."""
        for wanted in (*(part.partition(";")[0].strip().lower() for part in accept.split(",")), self._default_type):
            match wanted:
                case "application/vnd.millstream.rows.v1":
                    return MillstreamRows()
                case "application/vnd.ksqlapi.delimited.v1":
                    return Delimited()
                case "application/vnd.ksql.v1+json":
                    return StreamedRows()
                case "application/vnd.apache.arrow.stream":
                    return None
                case "application/x-ndjson" | "application/jsonl":
                    return NdJson()
                case "application/json":
                    # /query answers so whatever it calls it; on /query-stream it is a format of its own.
                    return StreamedRows(JSON_TYPE) if self._default_type == KSQL_TYPE else JsonArray()
                case _:
                    continue
        return Delimited()


def query_route(context: HttpContext) -> QueryRoute:
    """/query."""
    return QueryRoute(context, KSQL_TYPE)


def query_stream_route(context: HttpContext) -> QueryRoute:
    """/query-stream."""
    return QueryRoute(context, DELIMITED_TYPE)


def start_rows(context: HttpContext, asked: StatementRequest, format: Encoding) -> StartedRows:
    """SELECT or PRINT. Raises before any row. Takes a while: not for the event loop."""
    first = tokenize(asked.text, limit=1)
    if first and first[0].type == "PRINT":
        return _start_print(context, asked, format.media_type)
    result: QueryResult = context.engine.query(asked.text, asked.session)

    def open_rows() -> RowStream:
        return RowStream(result.query_id, format.chunks(result), result.close)

    return StartedRows(result.query_id, result.kind, format.media_type, open_rows)


def _start_print(context: HttpContext, asked: StatementRequest, media_type: str) -> StartedRows:
    statements = context.engine.parse(asked.text, asked.session)
    if len(statements) != 1 or not isinstance(statements[0], PrintTopic):
        found = len(statements)
        raise InvalidStatement(f"Expected exactly one KSQL statement; found {found} instead", text=asked.text)
    feed = context.engine.print_topic(statements[0])
    query_id = f"print_{statements[0].topic}_{uuid.uuid4().hex}"

    def open_lines() -> RowStream:
        return RowStream(query_id, encoded_lines(feed, media_type), feed.close)

    return StartedRows(query_id, "PUSH", media_type if media_type == MILLSTREAM_TYPE else PRINT_TYPE, open_lines)


async def _send_all(stream: RowStream, media_type: str, receive: Receive, send: Send) -> None:
    gone = asyncio.create_task(_disconnected(receive))
    try:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", media_type.encode())]})
        while True:
            taking = asyncio.create_task(stream.take())
            await asyncio.wait({taking, gone}, return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                taking.cancel()
                return
            data = taking.result()
            async with asyncio.timeout(STALL_SECONDS_MAX):
                await send({"type": "http.response.body", "body": data, "more_body": bool(data)})
            if not data:
                return
    finally:
        gone.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
