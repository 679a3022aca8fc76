"""The gate before every route: header size, authentication, request id, access log, counts."""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from collections.abc import Collection, MutableMapping
from typing import Any, Final, Protocol

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..cluster.forwarding import FORWARDED
from ..security.access import CERTIFICATE, FORWARDED_CERTIFICATE, Authenticator, User
from .context import Workers, set_user
from .errors import FORBIDDEN, HEADERS_TOO_LARGE, UNAUTHORIZED, RequestRefused
from .metrics import Metrics
from .routes import OPEN_PATHS, route_of
from .statements import error_response

HEADERS_MAX: Final = 100
HEADER_BYTES_MAX: Final = 16 * 1024
_REFUSED_PAUSE_S: Final = 0.5  # after a wrong password
_CHECKS_MAX: Final = 4  # scrypts at a time: each takes 16 MB
_POLICY_VIOLATION: Final = 1008
_REST_BYTES_MAX: Final = 64 * 1024
_REST_S_MAX: Final = 0.5
_REFUSALS_FROM: Final = 300
_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9._:/+=-]{1,128}")

_log = structlog.get_logger("millstream.http")


class GateContext(Protocol):
    """The part of the server behind it that the gate needs."""

    @property
    def workers(self) -> Workers: ...

    @property
    def metrics(self) -> Metrics: ...


class Gate:
    """An ASGI application around another one. In: `authenticator`: None if everybody may do everything; `open_paths`:
    paths of the table that need no authentication."""

    def __init__(
        self,
        app: ASGIApp,
        context: GateContext,
        authenticator: Authenticator | None,
        open_paths: Collection[str] = OPEN_PATHS,
    ) -> None:
        self._open_paths = open_paths
        self._app = app
        self._context = context
        self._authenticator = authenticator
        self._checks = asyncio.Semaphore(_CHECKS_MAX)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        _leave_out_host(scope)
        number = _request_id(scope)
        status = 0
        began = time.perf_counter()

        async def numbered(message: Message) -> None:
            nonlocal status
            if message["type"] in ("http.response.start", "websocket.accept"):
                status = message.get("status", 101)
                message = {**message, "headers": [*message.get("headers", ()), (b"x-request-id", number.encode())]}
            await send(message)

        answer: Send = numbered
        if scope["type"] == "http":
            request = _WholeRequest(scope, receive, numbered)
            receive, answer = request.receive, request.send
        with structlog.contextvars.bound_contextvars(request_id=number):
            try:
                await self._admitted(scope, receive, answer)
            finally:
                self._record(scope, status, time.perf_counter() - began)

    async def _admitted(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            _check_headers(scope)
            if self._authenticator is not None and route_of(scope["path"]) not in self._open_paths:
                set_user(scope, await self._user(scope, self._authenticator))
        except RequestRefused as refusal:
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": _POLICY_VIOLATION, "reason": refusal.message[:100]})
                return
            response = error_response(refusal)
            if refusal.error_code == UNAUTHORIZED:
                response.headers["www-authenticate"] = 'Basic realm="millstream", charset="UTF-8"'
            await response(scope, receive, send)
            return
        await self._app(scope, receive, send)

    async def _user(self, scope: Scope, authenticator: Authenticator) -> User:
        headers = [value for name, value in scope["headers"] if name.lower() == b"authorization"]
        forwarded = any(name.lower() == FORWARDED for name, _ in scope["headers"])
        # The certificate of a connection between nodes is the node's, not that of the user who sent the request.
        shown = scope.get("state", {}).get(FORWARDED_CERTIFICATE if forwarded else CERTIFICATE, ())
        certified = authenticator.certified(shown)
        if certified is not None and not headers:
            return _with_role(certified)
        if len(headers) != 1:
            hint = "Send a header `authorization`: Basic with name and password, or Bearer with a token."
            raise RequestRefused(UNAUTHORIZED, "this server requires authentication", hint=hint)
        header = headers[0].decode("utf-8", "surrogateescape")
        found = authenticator.known(header)
        if found is None:
            async with self._checks:
                found = await self._context.workers.run(lambda: authenticator.identify(header))
        if found is None:
            await asyncio.sleep(_REFUSED_PAUSE_S)
            raise RequestRefused(UNAUTHORIZED, "the name, the password or the token is wrong")
        return _with_role(found)

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        method = scope.get("method", "GET")
        self._context.metrics.record(route_of(scope["path"]), method, status, seconds)
        # Contents of requests are never logged: statements and headers contain secrets.
        tell = _log.info if status >= 400 else _log.debug
        tell("request", method=method, path=scope["path"][:200], status=status, milliseconds=round(seconds * 1000, 1))


class _WholeRequest:
    """A request and its answer. `receive` and `send` replace the original two.

    hypercorn closes an HTTP/1 connection whose request was not read to its end, and does not announce it: a client that
    keeps its connections sends its next request into a closed one. So the rest of a short body is read first; in most
    cases it is already on its way. If a long body is not read to its end, the answer announces that the connection
    closes (RFC 9112, 9.6). A successful answer to a request that is still being read begins at once: inserted rows are
    acknowledged while more rows arrive.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._open = scope["http_version"].startswith("1") and any(
            name == b"transfer-encoding" or (name == b"content-length" and value != b"0")
            for name, value in scope["headers"]
        )
        self._read = False  # whether the route has begun to read the body

    async def receive(self) -> Message:
        self._read = True
        message = await self._receive()
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            self._open = False
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start" and self._open:
            if message["status"] >= _REFUSALS_FROM or not self._read:
                await self._read_rest()
                if self._open:
                    message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
        await self._send(message)

    async def _read_rest(self) -> None:
        read = 0
        try:
            async with asyncio.timeout(_REST_S_MAX):
                while self._open and read <= _REST_BYTES_MAX:
                    read += len((await self.receive()).get("body", b""))
        except TimeoutError:
            return


def _with_role(user: User) -> User:
    if not user.roles:
        raise RequestRefused(FORBIDDEN, f"{user.name} has no role")
    return user


def _check_headers(scope: Scope) -> None:
    """Limits all headers together. hypercorn limits only the incomplete request line and headers that it buffers."""
    headers = scope["headers"]
    size = len(scope["raw_path"]) + len(scope["query_string"]) + sum(len(n) + len(v) for n, v in headers)
    if len(headers) > HEADERS_MAX or size > HEADER_BYTES_MAX:
        most = f"{HEADERS_MAX} headers or {HEADER_BYTES_MAX} bytes of headers"
        raise RequestRefused(HEADERS_TOO_LARGE, f"the request has more than {most}")


def _leave_out_host(scope: MutableMapping[str, Any]) -> None:
    """Reduces an absolute URL to its path: some clients request `http://host/path`, as from a proxy (RFC 9112,
    3.2.2)."""
    if not scope["path"].startswith(("http://", "https://")):
        return
    for name, slash in (("path", "/"), ("raw_path", b"/")):
        whole = scope[name]
        at = whole.find(slash, whole.find(slash * 2) + 2)
        scope[name] = whole[at:] if at >= 0 else slash


def _request_id(scope: dict[str, Any] | Scope) -> str:
    """The client's own id if it is valid, else a new one."""
    for name, value in scope["headers"]:
        if name.lower() == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return value.decode()
    return uuid.uuid4().hex
