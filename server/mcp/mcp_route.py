"""POST /mcp: MCP's streamable HTTP transport without sessions, with the users and rights of the API.

Each request has one JSON answer, so there is no stream that a GET could open. A client's disconnect ends its call.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
from typing import Any, Final

import orjson
import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from millstream.errors import MillstreamError

from ..engine.queries import QueryResult
from ..engine.session import Session
from ..http.context import HttpContext, Slots, disconnected, leaving, rights_of
from ..http.errors import NOT_ACCEPTABLE, RequestRefused
from ..http.requests import read_bytes
from ..http.statements import error_response
from .messages import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MODERN,
    VERSION_HEADER,
    VERSIONS,
    McpRefusal,
    McpRequest,
    agreed_version,
    answer_of,
    id_of,
    read_message,
    refusal_of,
    request_of,
    status_of,
)
from .tool_rows import CallStop, CallTookTooLong
from .tools import INSTRUCTIONS, TOOLS, BadArguments, Tool, ToolCall, error_object

BODY_BYTES_MAX: Final = 1 << 20
QUERIES_MAX: Final = 8  # each occupies a thread of the server while it runs
_TYPE: Final = "application/json"
_CACHED_MS: Final = 3_600_000

_log = structlog.get_logger("millstream.mcp")


class McpRoute:
    """An ASGI application."""

    def __init__(self, context: HttpContext) -> None:
        self._context = context
        self._queries = Slots(QUERIES_MAX, "queries of MCP clients")
        self._tools = {tool.name: tool for tool in TOOLS}
        self._server = {
            "name": "millstream",
            "title": "Millstream",
            "version": importlib.metadata.version("millstream"),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            _check_accept(request)
            body = await read_bytes(request, _TYPE, min(BODY_BYTES_MAX, self._context.body_bytes_max))
            response = await self._response(request, body, receive)
        except Exception as error:
            response = error_response(error)
        await response(scope, receive, send)

    async def _response(self, request: Request, body: bytes, receive: Receive) -> Response:
        message: dict[str, Any] = {}
        modern = request.headers.get(VERSION_HEADER) in MODERN
        try:
            message = read_message(body)
            asked = request_of(message, {name: request.headers.getlist(name) for name in request.headers})
            modern = asked.modern
            if asked.id is None:
                return Response(status_code=202)  # the server needs no client notification
            result = await self._result(asked, request.scope, receive)
        except McpRefusal as refusal:
            return _json(refusal_of(refusal, id_of(message)), status_of(refusal, modern=modern))
        return _json(answer_of(asked, result, self._server), 200)

    async def _result(self, asked: McpRequest, scope: Scope, receive: Receive) -> dict[str, Any]:
        capabilities = {"tools": {}}
        match asked.method:
            case "initialize" if not asked.modern:
                about = {"serverInfo": self._server, "instructions": INSTRUCTIONS, "capabilities": capabilities}
                return {"protocolVersion": agreed_version(asked.params), **about}
            case "server/discover" if asked.modern:
                about = {"instructions": INSTRUCTIONS, "capabilities": capabilities}
                return _cached({"supportedVersions": list(VERSIONS), **about})
            case "ping":
                return {}
            case "tools/list":
                tools = {"tools": [tool.declaration() for tool in TOOLS]}
                return _cached(tools) if asked.modern else tools
            case "tools/call":
                tool = self._tools.get(str(asked.params.get("name")))
                if tool is None:
                    raise McpRefusal(INVALID_PARAMS, "there is no such tool")
                return await self._call(tool, asked.params.get("arguments"), scope, receive)
            case _:
                raise McpRefusal(METHOD_NOT_FOUND, "there is no such method")

    async def _call(self, tool: Tool, arguments: object, scope: Scope, receive: Receive) -> dict[str, Any]:
        stop = CallStop()
        rights = rights_of(scope)
        opened: list[str] = []

        def open_query(result: QueryResult) -> None:
            about = None if result.push is None else result.push.about
            self._context.open_queries.add(result.query_id, result.kind, _OpenCall(stop), rights.name, about)
            opened.append(result.query_id)

        try:
            checked = tool.checked(arguments)
            call = ToolCall(self._context.engine, Session(rights=rights), checked, stop, open_query)
            with self._queries if tool.runs_query else contextlib.nullcontext():
                async with leaving(stop.stop, lambda: disconnected(receive)):
                    return _tool_result(await self._context.workers.run(lambda: tool.answer(call)))
        except MillstreamError as error:
            return _tool_result(error_object(error), failed=True)
        except (BadArguments, CallTookTooLong) as error:
            return _tool_result({"error": {"message": str(error)}}, failed=True)
        except Exception as error:
            _log.exception("a tool failed", tool=tool.name)
            raise McpRefusal(INTERNAL_ERROR, "the tool failed; the server's log says why") from error
        finally:
            for query_id in opened:
                self._context.open_queries.remove(query_id)


class _OpenCall:
    """Implements `OpenRows`: one call with a query, which ends in its worker thread."""

    def __init__(self, stop: CallStop) -> None:
        self._stop = stop

    @property
    def runs(self) -> bool:
        return not self._stop.stopped

    def close(self) -> None:
        self._stop.stop()

    def join(self, timeout_s: float) -> None:
        del timeout_s  # the code that closes the workers waits for it


def _tool_result(value: dict[str, Any], *, failed: bool = False) -> dict[str, Any]:
    """The result as structured content, and as JSON for clients that know only text. The JSON is ASCII, so invisible
    characters become visible."""
    plain = orjson.loads(orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS))
    text = json.dumps(plain, ensure_ascii=True, separators=(",", ":"))
    return {"content": [{"type": "text", "text": text}], "structuredContent": plain, "isError": failed}


def _cached(result: dict[str, Any]) -> dict[str, Any]:
    """The result is the same for all users, until the server is upgraded."""
    return {**result, "ttlMs": _CACHED_MS, "cacheScope": "public"}


def _json(value: dict[str, Any], status: int) -> Response:
    return Response(orjson.dumps(value), status, media_type=_TYPE)


def _check_accept(request: Request) -> None:
    """Raises `RequestRefused`."""
    accepted = {part.partition(";")[0].strip().lower() for part in request.headers.get("accept", "*/*").split(",")}
    if not accepted & {"*/*", "application/*", _TYPE}:
        raise RequestRefused(NOT_ACCEPTABLE, f"answers are {_TYPE}, and the client does not accept it")
