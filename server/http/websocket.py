"""GET /ws/query: a SELECT or PRINT over a web socket. The columns come first, then a message per row.

The parameter `request` is the JSON object that /query accepts. The socket closes with 1003 and the reason if the
statement cannot run, with 1011 after an error between rows, and with 1000 after the last row.
"""

from __future__ import annotations

import asyncio
from typing import Final

import orjson
import structlog
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from ...executor.answers.pull_limits import PullClient
from ..engine.row_stream import RowStream
from ..engine.shared_stream import SharedStream
from .context import HttpContext, leaving, rights_of
from .errors import BAD_REQUEST, COMMAND_TIMEOUT, RequestRefused, error_code_of, message_of
from .query_responses import Encoding, OpenedRows, StartedRows, start_rows
from .requests import StatementRequest, awaited_command, refuse_foreign, statement_request
from .row_formats import JSON_TYPE, SocketRows, encoded

_DONE: Final = 1000
_REFUSED: Final = 1003
_FAILED: Final = 1011
_LATER: Final = 1013
_REASON_BYTES_MAX: Final = 120  # a closing frame allows 123
_ERROR_LINE: Final = b'{"errorMessage":'
STALL_SECONDS_MAX: Final = 60.0

_log = structlog.get_logger("millstream.server")


class SocketRoute:
    """An ASGI application."""

    def __init__(self, context: HttpContext) -> None:
        self._context = context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        socket = WebSocket(scope, receive, send)
        try:
            refuse_foreign(socket)
        except RequestRefused as refusal:
            await socket.close(_REFUSED, _reason(refusal))
            return
        await socket.accept()
        try:
            client = PullClient()
            async with leaving(client.leave, lambda: _disconnected(socket)):
                rows = await self._started(socket, client)
            opened = await OpenedRows.of(rows, self._context, rights_of(scope).name)
        except Exception as error:
            code = _LATER if error_code_of(error) == COMMAND_TIMEOUT else _REFUSED
            await socket.close(code, _reason(error))
            return
        try:
            if not client.is_gone:
                opened.start()
                opened.sent(await _send_all(socket, opened.stream))
        except TimeoutError:
            _log.warning("client takes no rows", query_id=rows.query_id)
        finally:
            opened.close()

    async def _started(self, socket: WebSocket, client: PullClient) -> StartedRows:
        try:
            body = orjson.loads(socket.query_params.get("request", ""))
        except ValueError:
            body = None
        if not isinstance(body, dict):
            hint = 'Send one such as {"ksql": "SELECT …;"}.'
            raise RequestRefused(BAD_REQUEST, 'the parameter "request" is not a JSON object', hint=hint)
        asked: StatementRequest = statement_request(body, rights_of(socket.scope), self._context.engine.settings.denied)
        await self._context.await_command(awaited_command(body))
        format = Encoding(JSON_TYPE, lambda result: encoded(result, SocketRows()))
        return await self._context.workers.run(lambda: start_rows(self._context, asked, format, client))


async def _send_all(socket: WebSocket, stream: RowStream | SharedStream) -> int:
    """Returns how many bytes of rows were sent."""
    sent = 0
    gone = asyncio.create_task(_disconnected(socket))
    code, reason, rest = _DONE, "done", b""
    try:
        while True:
            taking = asyncio.create_task(stream.take())
            await asyncio.wait({taking, gone}, return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                taking.cancel()
                return sent
            data = taking.result()
            sent += len(data)
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            async with asyncio.timeout(STALL_SECONDS_MAX):
                for line in lines:
                    await socket.send_text(line.decode())
            if lines and lines[-1].startswith(_ERROR_LINE):
                code, reason = _FAILED, str(orjson.loads(lines[-1])["errorMessage"]["message"])
        await socket.close(code, _short(reason))
        return sent
    finally:
        gone.cancel()


async def _disconnected(socket: WebSocket) -> None:
    """Returns when the client closes; its messages are ignored."""
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass


def _reason(error: BaseException) -> str:
    return _short(message_of(error))


def _short(text: str) -> str:
    return text.encode("utf-8", "replace")[:_REASON_BYTES_MAX].decode("utf-8", "ignore")
