"""TCP connections of the HTTP API: their limits, and timeouts for sending a request.

hypercorn implements HTTP on them. Its classes are extended for missing features: the reason in the status line of
HTTP/1.1 (RFC 9112 allows it to be empty, but old clients do not), the client's certificate, limits.
"""

from __future__ import annotations

import asyncio
import contextlib
import http
import socket
from collections.abc import Mapping
from itertools import chain
from types import MappingProxyType
from typing import Any, Final

import h2.errors
import h2.events
import h2.exceptions
import h11
from hypercorn.asyncio.tcp_server import TCPServer
from hypercorn.asyncio.worker_context import WorkerContext
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol import H2Protocol, H11Protocol, ProtocolWrapper
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.events import Response
from hypercorn.protocol.h11 import H2CProtocolRequiredError, H2ProtocolAssumedError
from hypercorn.utils import wrap_app
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...logcore.accepting import AT_A_TIME, let_wait
from ...logcore.protocol.admission import ConnectionLimits, Places, counted_as
from ..security.access import CERTIFICATE
from .connection_places import PLACE, ConnectionPlace
from .errors import ENDS, SHUTTING_DOWN, TOO_MANY_REQUESTS, RequestRefused, error_body
from .routes import PROBES
from .socket_frames import with_goodbyes
from .statements import error_response, json_response

TRANSPORT: Final = "millstream.transport"
"""In the state of a request's scope: the connection. Writing to it directly requires knowledge of the state of the HTTP
protocol."""

HEADER_SECONDS_MAX: Final = 10.0  # from the first byte of a request line to the end of the headers
_RESETS_MAX: Final = 200  # resets of streams of one HTTP/2 connection, in addition to half of its streams
_UNREAD_BYTES_MAX: Final = 1 << 16  # of a body whose request is answered; beyond it the client is told to stop
_RECEIVE_BYTES: Final = 1 << 16
_LAST_ANSWERS_S: Final = 1.0
_PROBE_S: Final = 2.0  # how long a connection beyond the limits may take to send a health probe and read the answer
_PROBES_MAX: Final = 64  # such connections at a time; a new one closes the oldest


class Connections:
    """The open connections of one listener. Only for the event loop."""

    def __init__(self, app: ASGIApp, config: Config, limits: ConnectionLimits) -> None:
        self._under_way = _UnderWay(app)
        self._app = wrap_app(self._under_way, config.wsgi_max_body_size, "asgi")  # pyrefly: ignore[bad-argument-type]
        self._config = config
        self._places = Places(limits)
        self._context = WorkerContext(None)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._beyond: dict[asyncio.Task[Any], None] = {}  # connections beyond the limits, the oldest first

    def __len__(self) -> int:
        return len(self._places)

    async def serve(self, listening: socket.socket, stop: asyncio.Event) -> None:
        """Accepts connections until `stop`, then waits for running requests for the time that the configuration
        allows."""
        tls = self._config.create_ssl_context() if self._config.ssl_enabled else None
        options: dict[str, Any] = {} if tls is None else {"ssl": tls, "ssl_handshake_timeout": HEADER_SECONDS_MAX}
        server = await asyncio.start_server(self._accepted, sock=listening, backlog=AT_A_TIME, **options)
        let_wait(server, "http")
        try:
            await stop.wait()
        finally:
            await self._context.terminated.set()
            server.close()
            await self._end(self._config.graceful_timeout)
            self._under_way.cut_off()
            await self._end(_LAST_ANSWERS_S)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _end(self, seconds: float) -> None:
        """Waits until all connections have ended, but at most this many seconds."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        address = str((writer.get_extra_info("peername") or ("",))[0])
        if not self._places.has_room(counted_as(address)):
            await self._answer_probe(task, reader, writer)
            return
        place = ConnectionPlace(self._places, address)
        try:
            await self._run(_state(writer, place), reader, writer)
        except asyncio.CancelledError:
            pass  # the server is stopping, and this connection did not end in time; asyncio would report it as an error
        finally:
            place.leave()

    async def _run(self, state: dict[str, Any], reader: Any, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        given: Any = state
        connection = HttpConnection(self._app, loop, self._config, self._context, given, reader, writer)
        try:
            await connection.run()
        finally:
            connection.let_go()

    async def _answer_probe(
        self, task: asyncio.Task[Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Handles a connection beyond the limits: answers a health probe and refuses anything else."""
        self._beyond[task] = None
        if len(self._beyond) > _PROBES_MAX:
            next(iter(self._beyond)).cancel()
        try:
            async with asyncio.timeout(_PROBE_S):
                head = await _read_head(reader)
                if _is_probe(head):
                    closing = head.removesuffix(b"\r\n") + b"connection: close\r\n\r\n"
                    await self._run({TRANSPORT: writer.transport}, _Begun(reader, closing), writer)
                else:
                    await _turn_away(writer)
        except (TimeoutError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            del self._beyond[task]


class _UnderWay:
    """An ASGI application around another one: a request that is cut off when the server stops gets an answer that asks
    the client to retry. Without it, hypercorn answers 500, which clients do not retry. What the application does not
    read of a body is read here: hypercorn stops reading a connection with ten unread parts. State: the requests whose
    answer has not begun, and whether they were cut off."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._unanswered: set[asyncio.Task[Any]] = set()
        self._over = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        task = asyncio.current_task()
        if scope["type"] != "http" or task is None:
            await self._app(scope, receive, send)
            return

        body = _Body(receive)

        async def noted(message: Message) -> None:
            self._unanswered.discard(task)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                body.leave()
            await send(message)

        self._unanswered.add(task)
        try:
            await self._app(scope, body.receive, noted)
        except asyncio.CancelledError:
            if not self._over or task not in self._unanswered:
                raise  # its client has gone
            task.uncancel()
            await error_response(RequestRefused(SHUTTING_DOWN, ENDS))(scope, receive, noted)
        finally:
            self._unanswered.discard(task)
            body.leave()

    def cut_off(self) -> None:
        """Cancels all unanswered requests. Their connections are still open, so the answers can be sent."""
        self._over = True
        for task in self._unanswered:
            task.cancel()


class _Body:
    """The body of a request. `receive` replaces the original one."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._ended = False
        self._rest: asyncio.Task[None] | None = None  # the task is kept by this object, and this object by the task

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            self._ended = True
        return message

    def leave(self) -> None:
        """The application needs no more of it. Called before the last part of the answer, and when the application has
        ended."""
        if self._ended:
            if self._rest is not None:
                self._rest.cancel()  # the application has received the end itself
        elif self._rest is None:
            self._rest = asyncio.create_task(self._read_rest())

    async def _read_rest(self) -> None:
        """Ends with the request: hypercorn reports the end of each."""
        while not self._ended:
            await self.receive()


class _Begun:
    """A stream whose beginning was already read; it has the methods that hypercorn uses."""

    def __init__(self, reader: asyncio.StreamReader, head: bytes) -> None:
        self._reader = reader
        self._head = head

    async def read(self, size: int) -> bytes:
        head, self._head = self._head, b""
        return head or await self._reader.read(size)

    def at_eof(self) -> bool:
        return not self._head and self._reader.at_eof()


async def _read_head(reader: asyncio.StreamReader) -> bytes:
    """The request line and the headers; empty if the client sends something else."""
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
        return b""


def _is_probe(head: bytes) -> bool:
    """
    >>> [_is_probe(head) for head in (b"GET /livez HTTP/1.1\\r\\n\\r\\n", b"GET /metrics HTTP/1.1\\r\\n\\r\\n", b"")]
    [True, False, False]
    """
    words = head.partition(b"\r\n")[0].split(b" ")
    return len(words) == 3 and words[0] in (b"GET", b"HEAD") and words[1].partition(b"?")[0].decode("latin-1") in PROBES


class HttpConnection(TCPServer):
    """hypercorn's connection with a timeout: a request that has begun has to continue."""

    _headers_due: asyncio.TimerHandle | None = None
    _idle = True
    _all_read = False  # the client has closed its half: only answers remain to be sent

    async def protocol_send(self, event: Event) -> None:
        if isinstance(event, Updated):
            self._idle = event.idle
            self._forget_due()
            if event.idle and self._all_read:
                self.writer.close()  # hypercorn would wait for the next request until the keep-alive timeout
                return
        await super().protocol_send(event)

    async def _read_data(self) -> None:
        self.protocol = _extended(self.protocol)
        self.protocol.protocol = _extended(self.protocol.protocol)
        try:
            while not self.reader.at_eof():
                try:
                    data = await self.reader.read(_RECEIVE_BYTES)
                except OSError:  # ssl.SSLError is one
                    break
                await self.protocol.handle(RawData(data))
                self._expect_headers(data)
            self._all_read = True
            await self.protocol.handle(Closed())
        finally:
            self._forget_due()
            await self.idle_task.stop()  # it would keep the socket of a client that disconnected

    def let_go(self) -> None:
        """Removes the connection's references to itself after it has ended. Memory in reference cycles, such as that of
        buffers, is freed only when the garbage collector runs, which is rare."""
        wrapper = getattr(self, "protocol", None)
        if wrapper is not None:
            wrapper.send = wrapper.protocol.send = _nowhere

    def _expect_headers(self, data: bytes) -> None:
        if self._idle and data and self._headers_due is None and isinstance(self.protocol.protocol, H11Protocol):
            self._headers_due = self.loop.call_later(HEADER_SECONDS_MAX, self.writer.close)

    def _forget_due(self) -> None:
        if self._headers_due is not None:
            self._headers_due.cancel()
            self._headers_due = None


async def _nowhere(event: Event) -> None:
    """Replaces `send` of an ended connection."""


class _Http1(H11Protocol):
    """Sends the reason in the status line: `200 OK`."""

    async def _create_stream(self, request: h11.Request) -> None:
        await super()._create_stream(request)
        with_goodbyes(self.stream)

    async def stream_send(self, event: StreamEvent) -> None:
        if not isinstance(event, Response) or event.status_code < 200:
            await super().stream_send(event)
            return
        headers = list(chain(event.headers, self.config.response_headers("h11")))
        response = h11.Response(headers=headers, status_code=event.status_code, reason=_reason(event.status_code))
        await self._send_h11_event(response)


class _Http2(H2Protocol):
    """Closes a connection whose client resets most of its requests. Drops what arrives of a body after the answer:
    hypercorn would end the connection, and all its other requests. State: `_unread`: the dropped bytes of each such
    request that goes on."""

    _resets = 0
    _unread: Mapping[int, int] = MappingProxyType({})

    async def _create_stream(self, request: h2.events.RequestReceived) -> None:
        await super()._create_stream(request)
        with_goodbyes(self.streams.get(request.stream_id))

    async def _handle_events(self, events: list[h2.events.Event]) -> None:
        self._resets += sum(isinstance(event, h2.events.StreamReset) for event in events)
        if self._resets > _RESETS_MAX + self.keep_alive_requests // 2:
            self.connection.close_connection()
            await self._flush()
            await self.send(Closed())
            return
        for event in events:
            if isinstance(event, h2.events.DataReceived) and event.stream_id not in self.streams:
                self._drop(event)
            else:
                await super()._handle_events([event])
        await self._flush()

    def _drop(self, event: h2.events.DataReceived) -> None:
        stream, size = event.stream_id, event.flow_controlled_length or 0
        self.connection.acknowledge_received_data(size, stream)
        unread = self._unread.get(stream, 0) + size
        self._unread = {other: dropped for other, dropped in self._unread.items() if other != stream}
        if unread > _UNREAD_BYTES_MAX and stream not in self.stream_buffers:  # all of the answer is sent
            with contextlib.suppress(h2.exceptions.ProtocolError):  # it has ended
                self.connection.reset_stream(stream, h2.errors.ErrorCodes.NO_ERROR)  # RFC 9113, 8.1
        elif event.stream_ended is None:
            self._unread = {**self._unread, stream: unread}


class _Protocols(ProtocolWrapper):
    """Changes from HTTP/1.1 to our HTTP/2."""

    async def handle(self, event: Event) -> None:
        try:
            await self.protocol.handle(event)
        except (H2ProtocolAssumedError, H2CProtocolRequiredError) as change:
            given = (self.app, self.config, self.context, self.task_group, self.state, self.ssl)
            self.protocol = _Http2(*given, self.client, self.server, self.send)
            if isinstance(change, H2CProtocolRequiredError):
                await self.protocol.initiate(change.headers, change.settings)
            else:
                await self.protocol.initiate()
            if change.data:
                await self.protocol.handle(RawData(data=change.data))


_EXTENDED: Final[Mapping[type, type]] = {
    H11Protocol: _Http1, H2Protocol: _Http2, ProtocolWrapper: _Protocols,
}  # fmt: skip


def _extended(protocol: Any) -> Any:
    """The same object with our class: hypercorn creates its own."""
    protocol.__class__ = _EXTENDED.get(type(protocol), type(protocol))
    return protocol


def _reason(status: int) -> bytes:
    try:
        return http.HTTPStatus(status).phrase.encode()
    except ValueError:
        return b"Unknown"


def _state(writer: asyncio.StreamWriter, place: ConnectionPlace) -> dict[str, Any]:
    found = writer.get_extra_info("ssl_object")
    names = () if found is None else certificate_names(found.getpeercert() or {})
    return {TRANSPORT: writer.transport, PLACE: place, **({CERTIFICATE: names} if names else {})}


def certificate_names(certificate: Mapping[str, Any]) -> tuple[str, ...]:
    """The names in a checked certificate, which is given in the form of the `ssl` module.

    >>> certificate_names({"subject": ((("commonName", "ana"),),), "subjectAltName": (("DNS", "a.example"),)})
    ('CN=ana', 'DNS:a.example')
    """
    subject = [f"CN={value}" for part in certificate.get("subject", ()) for name, value in part if name == "commonName"]
    return (*subject, *(f"{kind}:{value}" for kind, value in certificate.get("subjectAltName", ())))


async def _turn_away(writer: asyncio.StreamWriter) -> None:
    tls = writer.get_extra_info("ssl_object")
    if tls is None or tls.selected_alpn_protocol() != "h2":
        response = json_response(error_body(RequestRefused(TOO_MANY_REQUESTS, "too many connections are open")), 429)
        head = f"HTTP/1.1 429 {http.HTTPStatus(429).phrase}\r\nconnection: close\r\ncontent-type: application/json\r\n"
        writer.write(f"{head}content-length: {len(response.body)}\r\n\r\n".encode() + bytes(response.body))
    with contextlib.suppress(OSError):
        await asyncio.wait_for(writer.drain(), 1.0)
    writer.close()
