"""POST /query and /query-stream: streams rows until the client disconnects.

Raw ASGI: a row is sent as soon as it exists, a slow client slows the query down, and a disconnect ends the query.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

import structlog
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from millstream.errors import InvalidStatement, MillstreamError

from ...executor.answers.pull_limits import PullClient, serving
from ...sql.ast import PrintTopic
from ...sql.tokens import tokenize
from ..client_tables import ARROW_TYPE
from ..engine.queries import PushLimitExceeded, QueryResult
from ..engine.row_stream import RowStream
from ..engine.shared_feeds import Share
from ..engine.shared_stream import SharedStream
from ..insight.open_pushes import OpenPush
from .arrow_rows import arrow_stream
from .connections import TRANSPORT
from .context import HttpContext, disconnected, leaving, rights_of
from .lookups import LookedUp
from .requests import (
    StatementRequest,
    accepted_types,
    awaited_command,
    check_acceptable,
    read_object,
    statement_request,
)
from .row_formats import (
    DELIMITED_TYPE,
    JSON_TYPE,
    KSQL_TYPE,
    MILLSTREAM_TYPE,
    NDJSON_TYPE,
    PRINT_TYPE,
    DelimitedRows,
    JsonArray,
    MillstreamRows,
    NdJson,
    RowFormat,
    StreamedRows,
    encoded,
    encoded_lines,
    progress_line,
)
from .statements import error_response

_log = structlog.get_logger("millstream.server")

_OFFERED: Final = (
    DELIMITED_TYPE, JSON_TYPE, KSQL_TYPE, NDJSON_TYPE, "application/jsonl", ARROW_TYPE, MILLSTREAM_TYPE, "text/plain",
)  # fmt: skip
"""Text is only for PRINT, which needs nothing else."""

PROGRESS_SECONDS: Final = 0.5
STALL_SECONDS_MAX: Final = 60.0  # a client that accepts nothing for this long is considered gone


@dataclass(frozen=True, slots=True)
class StartedRows:
    """A query to be sent: `open` begins to fill the stream. `progress`: returns what to send every PROGRESS_SECONDS, if
    the client asked for it. `push`: how statements show it, unless it is a pull query. `result`: None is PRINT."""

    query_id: str
    kind: Literal["PULL", "PUSH"]
    media_type: str
    open: Callable[[], RowStream | SharedStream]
    progress: Callable[[], bytes] | None = None
    result: QueryResult | None = None
    push: OpenPush | None = None


@dataclass(frozen=True, slots=True)
class Encoding:
    """A media type, and the function that encodes rows as a response of that type."""

    media_type: str
    chunks: Callable[[QueryResult], Iterator[bytes]]
    progress: bool = False
    rows: RowFormat | None = None  # None is Arrow


class QueryRoute:
    """An ASGI application. `default_type`: the type for clients that accept anything."""

    def __init__(self, context: HttpContext, default_type: str) -> None:
        self._context = context
        self._default_type = default_type
        self._looked_up = LookedUp(context)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        text: str | None = None
        try:
            body = await read_object(request, self._context.body_bytes_max)
            asked = statement_request(body, rights_of(scope), self._context.engine.settings.denied)
            await self._context.await_command(awaited_command(body))
            text = asked.text
            accept = request.headers.get("accept", "*/*")
            answer = await self._looked_up.answer(asked, self._format(accept))
            if answer is not None:
                await answer(scope, receive, send)
                return
            format = self._encoding(accept)
            client = PullClient()
            async with leaving(client.leave, lambda: disconnected(receive)):
                rows = await self._context.workers.run(lambda: start_rows(self._context, asked, format, client))
            opened = await OpenedRows.of(rows, self._context, asked.session.rights.name, _connection(scope))
        except Exception as error:
            await error_response(error, text)(scope, receive, send)
            return
        telling = asyncio.create_task(_tell_progress(opened.stream, rows.progress, self._context))
        try:
            opened.start()
            opened.sent(await _send_all(opened.stream, rows.media_type, receive, send))
        except TimeoutError:
            _log.warning("client takes no rows", query_id=rows.query_id)  # returning closes the client's connection
        finally:
            telling.cancel()
            opened.close()

    def _encoding(self, accept: str) -> Encoding:
        format = self._format(accept)
        if format is None:
            return Encoding(ARROW_TYPE, arrow_stream)
        asked = isinstance(format, MillstreamRows) and ";progress=1" in accept.replace(" ", "")
        return Encoding(format.media_type, lambda result: encoded(result, format), asked, format)

    def _format(self, accept: str) -> RowFormat | None:
        """The row format; None is Arrow. Raises `RequestRefused` if the client accepts only unsupported types."""
        check_acceptable(accept, _OFFERED)
        for wanted in (*accepted_types(accept), self._default_type):
            match wanted:
                case "application/vnd.millstream.rows.v1":
                    return MillstreamRows()
                case "application/vnd.ksqlapi.delimited.v1":
                    return DelimitedRows()
                case "application/vnd.ksql.v1+json":
                    return StreamedRows()
                case "application/vnd.apache.arrow.stream":
                    return None
                case "application/x-ndjson" | "application/jsonl":
                    return NdJson()
                case "application/json":
                    # /query answers in its format under any name; on /query-stream, application/json is a separate
                    # format.
                    return StreamedRows(JSON_TYPE) if self._default_type == KSQL_TYPE else JsonArray()
                case _:
                    continue
        return DelimitedRows()


def query_route(context: HttpContext) -> QueryRoute:
    """/query."""
    return QueryRoute(context, KSQL_TYPE)


def query_stream_route(context: HttpContext) -> QueryRoute:
    """/query-stream."""
    return QueryRoute(context, DELIMITED_TYPE)


class OpenedRows:
    """Rows being sent to a client, within the server's limits; they count as an open query until `close`."""

    def __init__(
        self, rows: StartedRows, stream: RowStream | SharedStream, admitted: contextlib.ExitStack, context: HttpContext
    ) -> None:
        """In: `admitted`: closed with the rows."""
        self.stream = stream
        self._rows = rows
        self._context = context
        self._admitted = admitted
        self._ending = _end_in_time(rows, stream, context.settings.push_seconds_max)

    @staticmethod
    async def of(
        rows: StartedRows, context: HttpContext, user: str | None, connection: asyncio.WriteTransport | None = None
    ) -> OpenedRows:
        """In: `connection`: where chunks of a response can be written directly, bypassing the HTTP layers. Raises
        `RequestRefused` beyond a limit."""
        stream = rows.open()
        admitted = contextlib.ExitStack()
        try:
            if rows.kind == "PULL":
                admitted.enter_context(context.pulls.admitted())
            if isinstance(stream, SharedStream):
                stream.write_through = connection
                await context.workers.run(stream.begin)
            context.open_queries.add(rows.query_id, rows.kind, stream, user, rows.push)
            admitted.callback(context.open_queries.remove, rows.query_id)
        except BaseException:
            admitted.close()
            stream.close()
            raise
        return OpenedRows(rows, stream, admitted, context)

    def start(self) -> None:
        self.stream.start()

    def sent(self, count: int) -> None:
        """Records the size of the answer in bytes."""
        if self._rows.kind == "PULL":
            self._context.pulls.sent(count)

    def close(self) -> None:
        if self._ending is not None:
            self._ending.cancel()
        self.stream.close()
        self._admitted.close()


def start_rows(
    context: HttpContext, asked: StatementRequest, format: Encoding, client: PullClient | None = None
) -> StartedRows:
    """Starts a SELECT or PRINT. Raises before any row. It blocks, so it is not for the event loop. A pull query is
    computed here, until the client disconnects."""
    with serving(client or PullClient()):
        return _start_rows(context, asked, format)


def _start_rows(context: HttpContext, asked: StatementRequest, format: Encoding) -> StartedRows:
    first = tokenize(asked.text, limit=1)
    if first and first[0].type == "PRINT":
        return _start_print(context, asked, format.media_type)
    shares = format.rows is not None and not format.progress and context.settings.push_rows_max is None
    open_feed = context.shared_feeds.open if shares else None
    result = context.engine.query(asked.text, asked.session, open_feed, context.settings.push_rows_max)

    def open_rows() -> RowStream | SharedStream:
        push = result.push
        if push is not None and isinstance(push.feed, Share) and format.rows is not None:
            return SharedStream(result, push, push.feed, format.rows)
        return RowStream(result.query_id, format.chunks(result), result.close)

    progress = (lambda: progress_line(result)) if format.progress and result.kind == "PUSH" else None
    about = None if result.push is None else result.push.about
    return StartedRows(result.query_id, result.kind, format.media_type, open_rows, progress, result, about)


def _start_print(context: HttpContext, asked: StatementRequest, media_type: str) -> StartedRows:
    statements = context.engine.parse(asked.text, asked.session)
    if len(statements) != 1 or not isinstance(statements[0], PrintTopic):
        found = len(statements)
        raise InvalidStatement(f"Expected exactly one KSQL statement; found {found} instead", text=asked.text)
    feed = context.engine.print_topic(statements[0], asked.session)
    query_id = f"print_{statements[0].topic}_{uuid.uuid4().hex}"

    def open_lines() -> RowStream:
        return RowStream(query_id, encoded_lines(feed, media_type), feed.close)

    media_type = media_type if media_type == MILLSTREAM_TYPE else PRINT_TYPE
    about = OpenPush(query_id, statements[0].text)
    return StartedRows(query_id, "PUSH", media_type, open_lines, push=about)


def _connection(scope: Scope) -> asyncio.WriteTransport | None:
    """The transport to which chunks of HTTP/1.1 can be written directly, bypassing the layers above it."""
    return scope.get("state", {}).get(TRANSPORT) if scope.get("http_version") == "1.1" else None


def _end_in_time(
    rows: StartedRows, stream: RowStream | SharedStream, seconds: float | None
) -> asyncio.TimerHandle | None:
    if seconds is None or rows.kind == "PULL":
        return None

    def end() -> None:
        if rows.result is not None:
            rows.result.stop(PushLimitExceeded(f"the push query has run for {seconds:g} seconds, its limit"))
        stream.close()

    return asyncio.get_running_loop().call_later(seconds, end)


async def _tell_progress(
    stream: RowStream | SharedStream, progress: Callable[[], bytes] | None, context: HttpContext
) -> None:
    with contextlib.suppress(MillstreamError, RuntimeError):  # a topic was deleted, or the workers are closed
        while progress is not None:
            await asyncio.sleep(PROGRESS_SECONDS)
            stream.interject(await context.workers.run(progress))


async def _send_all(stream: RowStream | SharedStream, media_type: str, receive: Receive, send: Send) -> int:
    """Returns how many bytes of the body were sent; rows of shared feeds do not count."""
    sent = 0
    gone = asyncio.create_task(disconnected(receive))
    try:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", media_type.encode())]})
        while True:
            taking = asyncio.create_task(stream.take())
            await asyncio.wait({taking, gone}, return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                taking.cancel()
                return sent
            data = taking.result()
            sent += len(data)
            async with asyncio.timeout(STALL_SECONDS_MAX):
                await send({"type": "http.response.body", "body": data, "more_body": bool(data)})
            if not data:
                return sent
    finally:
        gone.cancel()
