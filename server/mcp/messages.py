"""JSON-RPC messages of MCP over HTTP, without I/O: parses requests and writes answers.

Two generations of the protocol are served, both without sessions, each request with one JSON answer:

- 2026-07-28: a request names its version in `params._meta`, and headers repeat version, method and tool. Clients begin
  with `server/discover`.
- 2025-03-26 to 2025-11-25: clients begin with `initialize`; a header may name the version.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

MODERN: Final = ("2026-07-28",)
HANDSHAKE: Final = ("2025-03-26", "2025-06-18", "2025-11-25")
VERSIONS: Final = HANDSHAKE + MODERN

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
HEADER_MISMATCH: Final = -32020
UNSUPPORTED_VERSION: Final = -32022

VERSION_HEADER: Final = "mcp-protocol-version"
_METHOD_HEADER: Final = "mcp-method"
_NAME_HEADER: Final = "mcp-name"
_VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"
_CAPABILITIES_KEY: Final = "io.modelcontextprotocol/clientCapabilities"
_SERVER_KEY: Final = "io.modelcontextprotocol/serverInfo"
_STATUSES: Final = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    METHOD_NOT_FOUND: 404,
    HEADER_MISMATCH: 400,
    UNSUPPORTED_VERSION: 400,
}

Headers = Mapping[str, Sequence[str]]
"""The values of each header, by its name in lower case."""


class McpRefusal(Exception):
    """A request that gets a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


@dataclass(frozen=True, slots=True)
class McpRequest:
    """`id`: None for a notification, which gets no answer. `modern`: a version without a handshake."""

    method: str
    params: Mapping[str, Any]
    id: str | int | None
    modern: bool


def read_message(body: bytes) -> dict[str, Any]:
    """Raises `McpRefusal`."""
    try:
        message = orjson.loads(body)
    except ValueError:
        raise McpRefusal(PARSE_ERROR, "the body is not valid JSON") from None
    if not isinstance(message, dict):
        raise McpRefusal(INVALID_REQUEST, "the body is not a single JSON-RPC message")
    return message


def id_of(message: Mapping[str, Any]) -> str | int | None:
    """The id for the answer; None if the message has no valid id."""
    found = message.get("id")
    return found if isinstance(found, str | int) and not isinstance(found, bool) else None


def request_of(message: Mapping[str, Any], headers: Headers) -> McpRequest:
    """Raises `McpRefusal`."""
    method, params = message.get("method"), message.get("params", {})
    if message.get("jsonrpc") != "2.0" or not isinstance(method, str) or not isinstance(params, dict):
        raise McpRefusal(INVALID_REQUEST, "the body is not a JSON-RPC 2.0 request or notification")
    if "id" in message and id_of(message) is None:
        raise McpRefusal(INVALID_REQUEST, "the id of a request is a text or a whole number")
    named = headers.get(VERSION_HEADER, ())
    for version in named:
        if version not in VERSIONS:
            raise _unsupported(version)
    meta = params.get("_meta")
    modern = any(version in MODERN for version in named) or (isinstance(meta, dict) and _VERSION_KEY in meta)
    if modern and "id" in message:
        _check_modern(method, params, headers)
    return McpRequest(method, params, id_of(message), modern)


def _check_modern(method: str, params: Mapping[str, Any], headers: Headers) -> None:
    """Raises `McpRefusal` if headers and body differ: proxies use the headers, so both have to agree."""
    meta = params.get("_meta")
    if not isinstance(meta, dict) or not {_VERSION_KEY, _CAPABILITIES_KEY} <= meta.keys():
        raise McpRefusal(INVALID_PARAMS, f"params._meta needs {_VERSION_KEY} and {_CAPABILITIES_KEY}")
    expected = [(VERSION_HEADER, meta[_VERSION_KEY]), (_METHOD_HEADER, method)]
    if method == "tools/call":
        expected.append((_NAME_HEADER, params.get("name")))
    for header, value in expected:
        if [_decoded(found) for found in headers.get(header, ())] != [value]:
            raise McpRefusal(HEADER_MISMATCH, f"the header {header} does not say what the body says")
    if meta[_VERSION_KEY] not in MODERN:
        raise _unsupported(meta[_VERSION_KEY])


def _decoded(value: str) -> str | None:
    """
    >>> _decoded("query"), _decoded("=?base64?cXVlcnk=?="), _decoded("=?base64?!?=")
    ('query', 'query', None)
    """
    if not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    try:
        return base64.b64decode(value[9:-2], validate=True).decode()
    except (binascii.Error, UnicodeError):
        return None


def _unsupported(version: str) -> McpRefusal:
    data = {"supported": list(VERSIONS), "requested": version}
    return McpRefusal(UNSUPPORTED_VERSION, "this version of the protocol is not supported", data)


def agreed_version(params: Mapping[str, Any]) -> str:
    """The version for a client that sends `initialize`: its own, else the newest one that has this handshake."""
    wanted = params.get("protocolVersion")
    return wanted if isinstance(wanted, str) and wanted in HANDSHAKE else HANDSHAKE[-1]


def answer_of(request: McpRequest, result: Mapping[str, Any], server: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON-RPC answer. In: `server`: name and version of this server."""
    if request.modern:
        result = {**result, "resultType": "complete", "_meta": {_SERVER_KEY: server}}
    return {"jsonrpc": "2.0", "id": request.id, "result": result}


def refusal_of(refusal: McpRefusal, id: str | int | None) -> dict[str, Any]:
    error = {"code": refusal.code, "message": refusal.message}
    if refusal.data is not None:
        error["data"] = refusal.data
    return {"jsonrpc": "2.0", "id": id, "error": error}


def status_of(refusal: McpRefusal, *, modern: bool) -> int:
    """The HTTP status. Before 2026-07-28, a request that is understood but fails gets status 200."""
    if not modern and refusal.code in (METHOD_NOT_FOUND, INVALID_PARAMS):
        return 200
    return _STATUSES.get(refusal.code, 200)
