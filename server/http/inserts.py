"""POST /inserts-stream: JSON rows in, acknowledgements out, both at the same time.

The first line names the target (`{"target": "NAME"}`), each further line is a row, and each row gets one line of
response once it is durable. Rows that arrive together, or while others are written, are written together. If a row
cannot be written, its response is an error, and the stream continues; a line that is not a JSON object ends the stream.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import Any, Final

import orjson
import structlog
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from millstream.errors import MillstreamError, StatementError

from ..engine.json_rows import JsonRows, column_name
from ..engine.session import Session
from .context import HttpContext, rights_of
from .errors import BAD_REQUEST, BAD_STATEMENT, TIMEOUT, TOO_LARGE, RequestRefused, error_code_of, message_of
from .requests import BODY_SECONDS_MAX, refuse_foreign, set_properties
from .row_formats import DELIMITED_TYPE, JSON_TYPE
from .statements import error_response

ROWS_MAX: Final = 10_000  # in one append
AHEAD_BYTES_MAX: Final = 1 << 18  # of lines that have arrived, while those before them are written
STALL_SECONDS_MAX: Final = 60.0  # a client that accepts no acknowledgement for this long is considered gone

_log = structlog.get_logger("millstream.server")


class InsertsRoute:
    """An ASGI application."""

    def __init__(self, context: HttpContext) -> None:
        self._context = context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        lines = _Lines(receive, self._context.body_bytes_max)
        try:
            request = Request(scope, receive)
            refuse_foreign(request)
            array = _wants_array(request.headers.get("accept", "*/*"))
            target = await self._target(lines, scope)
        except _Gone:
            return
        except Exception as error:
            await error_response(error)(scope, receive, send)
            return
        try:
            with self._context.insert_streams:
                await self._answer(target, lines, _Acknowledgements(send, array=array))
        except TimeoutError:
            _log.warning("client takes no acknowledgements", target=target.name)
        except RequestRefused as error:  # too many streams of inserts are open
            await error_response(error)(scope, receive, send)

    async def _target(self, lines: _Lines, scope: Scope) -> _Target:
        try:
            async with asyncio.timeout(BODY_SECONDS_MAX):
                first = await lines.first()
        except TimeoutError:
            raise RequestRefused(TIMEOUT, f"no line arrived within {BODY_SECONDS_MAX:.0f} seconds") from None
        asked = _object(first)
        if asked is None or not isinstance(asked.get("target"), str):
            hint = 'Start with a line such as {"target": "CLICKS"}.'
            raise RequestRefused(BAD_REQUEST, 'the first line is not a JSON object with "target"', hint=hint)
        session = Session(rights=rights_of(scope))
        set_properties(asked, session, self._context.engine.settings.denied)
        name = column_name(asked["target"])
        self._context.engine.check_insert(name, session)
        source = self._context.engine.catalog.sources.get(name)
        if source is None:
            raise RequestRefused(BAD_STATEMENT, f"Cannot insert values into an unknown stream/table: `{name}`")
        return _Target(self._context, name, JsonRows(source), session)

    async def _answer(self, target: _Target, lines: _Lines, answers: _Acknowledgements) -> None:
        await answers.begin()
        try:
            async with lines.reading():
                async for batch in lines.batches():
                    results, is_end = await target.write(batch)
                    await answers.send(results)
                    if is_end:
                        break
        except _Gone:
            return
        except MillstreamError as error:
            await answers.send([_failure(target.next_number, error)])
        await answers.end()


class _Gone(Exception):
    """The client disconnected."""


class _Lines:
    """The lines of a request's body as they arrive."""

    def __init__(self, receive: Receive, line_bytes_max: int) -> None:
        self._receive = receive
        self._line_bytes_max = line_bytes_max
        self._rest = b""
        self._ended = False
        self._refused: Exception | None = None  # why nothing more is read
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()

    async def first(self) -> bytes:
        while True:
            line, found, rest = self._rest.partition(b"\n")
            if found or self._ended:
                self._rest = rest
                return line
            await self._more()

    @contextlib.asynccontextmanager
    async def reading(self) -> AsyncGenerator[None]:
        """Meanwhile the body is read, also while rows are written: a client that sends each row by itself would else
        wait for the disk once for each."""
        self._room.set()
        reader = asyncio.create_task(self._read())
        try:
            yield
        finally:
            reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reader

    async def _read(self) -> None:
        try:
            while not self._ended:
                await self._room.wait()
                await self._more()
                self._arrived.set()
                if len(self._rest) > AHEAD_BYTES_MAX and b"\n" in self._rest:
                    self._room.clear()
        except (_Gone, RequestRefused) as error:
            self._refused = error
            self._arrived.set()

    async def batches(self) -> AsyncIterator[list[bytes]]:
        """All lines that have arrived, as soon as there are any. Only while `reading`."""
        while True:
            self._arrived.clear()
            ended, refused = self._ended, self._refused
            whole, found, self._rest = self._rest.rpartition(b"\n")
            if ended and self._rest:
                whole, found, self._rest = (whole + b"\n" if found else b"") + self._rest, b"\n", b""
            self._room.set()
            lines = [line for line in whole.split(b"\n") if line.strip()] if found else []
            for begin in range(0, len(lines), ROWS_MAX):
                yield lines[begin : begin + ROWS_MAX]
            if refused is not None:
                raise refused
            if ended:
                return
            await self._arrived.wait()

    async def _more(self) -> None:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise _Gone
        self._rest += message.get("body", b"")
        self._ended = not message.get("more_body", False)
        if len(self._rest) - (self._rest.rfind(b"\n") + 1) > self._line_bytes_max:
            raise RequestRefused(TOO_LARGE, f"a line is larger than {self._line_bytes_max} bytes")


class _Target:
    """Writes the rows of one request. Rows are numbered from 0."""

    def __init__(self, context: HttpContext, name: str, rows: JsonRows, session: Session) -> None:
        self.name = name
        self.next_number = 0
        self._context = context
        self._rows = rows
        self._session = session

    async def write(self, lines: list[bytes]) -> tuple[list[dict[str, Any]], bool]:
        """An answer per line, and whether the stream ends here. The rows are written together."""
        answers: list[dict[str, Any]] = []
        good: list[dict[str, Any]] = []
        is_end = False
        for line in lines:
            number, self.next_number = self.next_number, self.next_number + 1
            row = _object(line)
            if row is None:
                answers.append(_failure(number, RequestRefused(BAD_REQUEST, "Invalid JSON in inserts stream")))
                is_end = True
                break
            try:
                good.append(self._rows.values(row))
            except StatementError as error:
                answers.append(_failure(number, RequestRefused(BAD_REQUEST, error.message)))
            else:
                answers.append({"status": "ok", "seq": number})
        failure = await self._append(good)
        if failure is not None:
            answers = [
                answer if answer["status"] == "error" else _failure(answer["seq"], failure) for answer in answers
            ]
        return answers, is_end

    async def _append(self, rows: list[dict[str, Any]]) -> Exception | None:
        """The error; None if the rows are written."""
        if not rows:
            return None
        table = self._rows.table(rows)
        try:
            await self._context.workers.run(lambda: self._context.engine.insert(self.name, table, self._session))
        except Exception as error:
            return error
        return None


class _Acknowledgements:
    """The response: a line per row, or, if the client asks for JSON, an array."""

    def __init__(self, send: Send, *, array: bool) -> None:
        self._send = send
        self._array = array
        self._count = 0

    async def begin(self) -> None:
        media_type = JSON_TYPE if self._array else DELIMITED_TYPE
        headers = [(b"content-type", media_type.encode())]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._body(b"[" if self._array else b"")

    async def send(self, answers: list[dict[str, Any]]) -> None:
        if answers:
            await self._body(b"".join(self._written(answers)))

    async def end(self) -> None:
        await self._body(b"]\n" if self._array else b"", more=False)

    def _written(self, answers: list[dict[str, Any]]) -> Iterator[bytes]:
        for answer in answers:
            text = orjson.dumps(answer)
            yield (b",\n" + text if self._count else text) if self._array else text + b"\n"
            self._count += 1

    async def _body(self, data: bytes, *, more: bool = True) -> None:
        async with asyncio.timeout(STALL_SECONDS_MAX):
            await self._send({"type": "http.response.body", "body": data, "more_body": more})


def _failure(number: int, error: BaseException) -> dict[str, Any]:
    return {"status": "error", "seq": number, "error_code": error_code_of(error), "message": message_of(error)}


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        value = orjson.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _wants_array(accept: str) -> bool:
    types = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
    return JSON_TYPE in types and DELIMITED_TYPE not in types
