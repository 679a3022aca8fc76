"""Forwards requests to another node. Request and response are streamed unchanged, in both directions at once, so that
push queries and insert streams work through any node. It uses h11 for HTTP, with one connection per request."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, assert_never, cast

import h11
import orjson
from starlette.types import Message, Receive, Scope, Send

from ..config.configuration import ListenAddress
from ..http.errors import ENGINE_MOVED, RequestRefused, error_body
from ..http.row_formats import DELIMITED_TYPE, JSON_TYPE, KSQL_TYPE, MILLSTREAM_TYPE, NDJSON_TYPE
from ..http.statements import error_response

FORWARDED: Final = b"x-millstream-forwarded"
"""Names the node that forwarded the request. The receiving node answers it, or reports that it cannot."""
CLIENT: Final = b"x-millstream-client"
"""The address of the client that sent the request to that node, and a proof: see `forwarded_clients.py`."""
NOT_HERE: Final = b"x-millstream-no-engine"
"""In an answer: the node did nothing with the request."""

LAST_WORDS_S: Final = 10.0
"""How long a node that no longer runs the engine has to end its answers itself."""

_CONNECT_S: Final = 3.0
_LOOK_S: Final = 0.2
_READ_BYTES: Final = 64 * 1024
_OF_THE_CONNECTION: Final = frozenset(
    b"connection keep-alive proxy-connection te trailer transfer-encoding upgrade http2-settings date".split()
) | {b"content-length", FORWARDED, CLIENT}

Headers = list[tuple[bytes, bytes]]


_BETWEEN_ROWS: Final = b",\n"  # of an array


class NotThere(Exception):
    """The other node did nothing with the request: it may be sent again."""


_Received = h11.Request | h11.InformationalResponse | h11.Response | h11.Data | h11.EndOfMessage


class _Broken(Exception):
    """The connection to the other node ended before the answer did."""


@dataclass(slots=True)
class Incoming:
    """A client's request whose first message can be sent again. State: that message, once it was read."""

    receive: Receive
    first: Message | None = None
    gone_on: bool = field(default=False)

    async def begin(self) -> None:
        if self.first is None:
            self.first = await self.receive()

    async def again(self) -> Message:
        """Like `receive`, but starts at the first message."""
        if self.first is not None and not self.gone_on:
            self.gone_on = True
            return self.first
        return await self.receive()

    @property
    def whole(self) -> bool:
        return self.first is not None and not self.first.get("more_body", False)

    async def rest(self) -> AsyncIterator[bytes]:
        """The parts of the body after the first one. Raises `ConnectionError` if the client disconnects."""
        while not self.whole:
            self.gone_on = True
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ConnectionAbortedError("the client has disconnected")
            yield message.get("body", b"")
            if not message.get("more_body", False):
                return


async def forward(
    scope: Scope,
    incoming: Incoming,
    send: Send,
    to: ListenAddress,
    tls: ssl.SSLContext | None,
    said: Headers,
    runs_there: Callable[[], bool],
) -> None:
    """Forwards the request to the node at `to`, and its answer to the client. Raises `NotThere`; in that case nothing
    was sent to the client.

    In: `said`: our own headers, which identify the forwarding node; `runs_there`: whether the engine is there.
    """
    await incoming.begin()
    try:
        async with asyncio.timeout(_CONNECT_S):
            reader, writer = await asyncio.open_connection(to.host, to.port, ssl=tls)
    except OSError as error:  # a timeout, too
        raise NotThere(str(error)) from error
    upstream = _Upstream(reader, writer)
    asking = asyncio.create_task(upstream.ask(scope, incoming, said))
    answering = asyncio.create_task(_pass_on(scope, upstream, incoming, send))
    moving = asyncio.create_task(until_moved(runs_there, writer))
    try:
        await asyncio.wait({asking, answering}, return_when=asyncio.FIRST_COMPLETED)
        if answering.done() or not isinstance(asking.exception(), ConnectionAbortedError):
            await answering  # reports a broken connection
    finally:
        asking.cancel()
        answering.cancel()
        moving.cancel()
        await settle(asking, answering, moving)
        writer.close()


async def until_moved(runs_there: Callable[[], bool], writer: asyncio.StreamWriter) -> None:
    """Breaks the connection when its node has not run the engine for `LAST_WORDS_S`: a machine without power, or a
    process that is suspended, never closes it."""
    looks = 0
    while looks * _LOOK_S < LAST_WORDS_S:
        await asyncio.sleep(_LOOK_S)
        looks = 0 if runs_there() else looks + 1
    writer.transport.abort()


class _Upstream:
    """One exchange with the other node."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._h11 = h11.Connection(h11.CLIENT)
        self.begun = False  # the client was sent the head of an answer
        self.media_type = ""
        self.streamed = False
        self.last = b""  # the last bytes of the answer so far

    async def ask(self, scope: Scope, incoming: Incoming, said: Headers) -> None:
        """Sends the request. Then it waits until the client disconnects, which raises `ConnectionAbortedError`."""
        assert incoming.first is not None
        body = incoming.first.get("body", b"")
        length = (b"content-length", str(len(body)).encode()) if incoming.whole else (b"transfer-encoding", b"chunked")
        headers = [*_end_to_end(scope["headers"]), (b"connection", b"close"), *said, length]
        target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
        head = h11.Request(method=scope["method"], target=target, headers=headers)
        first = [head, h11.Data(data=body)] if body else [head]
        if incoming.whole:
            await self._send(*first, h11.EndOfMessage())
        else:
            await self._send(*first)
            async for part in incoming.rest():
                if part:
                    await self._send(h11.Data(data=part))
            await self._send(h11.EndOfMessage())
        while (await incoming.receive())["type"] != "http.disconnect":
            pass
        raise ConnectionAbortedError("the client has disconnected")

    async def _send(self, *events: h11.Event) -> None:
        """Sends all events at once. A node that refuses a request before it has received all of it resets the
        connection, and its answer would be lost."""
        data = b"".join(self._h11.send(event) or b"" for event in events)
        if data:
            self._writer.write(data)
            await self._writer.drain()

    async def events(self) -> AsyncIterator[_Received]:
        """Responses, data and the end. Raises `_Broken`."""
        while True:
            try:
                event = self._h11.next_event()
                if event is h11.NEED_DATA:
                    self._h11.receive_data(await self._reader.read(_READ_BYTES))
                    continue
            except (h11.RemoteProtocolError, OSError) as error:
                raise _Broken(str(error)) from error
            if isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
                raise _Broken("it was closed")
            yield cast(_Received, event)
            if isinstance(event, h11.EndOfMessage):
                return


async def _pass_on(scope: Scope, upstream: _Upstream, incoming: Incoming, send: Send) -> None:
    try:
        async for event in upstream.events():
            match event:
                case h11.Response():
                    headers: Headers = [(bytes(name), bytes(value)) for name, value in event.headers]
                    if NOT_HERE in dict(headers) and not incoming.gone_on:
                        raise NotThere("the engine is not there")
                    names = dict(headers)
                    upstream.begun = True
                    upstream.media_type = names.get(b"content-type", b"").decode("latin-1").partition(";")[0].strip()
                    upstream.streamed = b"content-length" not in names
                    kept = _end_to_end(headers, also=() if upstream.streamed else (b"content-length",))
                    await send({"type": "http.response.start", "status": event.status_code, "headers": kept})
                case h11.Data():
                    data = bytes(event.data)
                    upstream.last = (upstream.last + data)[-len(_BETWEEN_ROWS) :]
                    await send({"type": "http.response.body", "body": data, "more_body": True})
                case h11.InformationalResponse() | h11.EndOfMessage() | h11.Request():
                    pass
                case _:
                    assert_never(event)
        await send({"type": "http.response.body", "body": b"", "more_body": False})
    except _Broken:
        await _say_broken(upstream, scope, send)


async def _say_broken(upstream: _Upstream, scope: Scope, send: Send) -> None:
    """Reports in the answer's format that the answer was cut off; if the format cannot express it, the connection
    ends."""
    error = RequestRefused(
        ENGINE_MOVED,
        "the node that runs the engine failed during the request",
        hint="A change may have been applied: check before you send it again. Queries can be sent again.",
    )
    if not upstream.begun:
        await error_response(error)(scope, _nothing, send)
        return
    words = last_words(upstream.media_type, error) if upstream.streamed else None
    if words is None:
        raise error  # an incomplete answer is the only way left to report it
    await send({"type": "http.response.body", "body": _after(upstream.last, words), "more_body": False})


def _after(last: bytes, words: bytes) -> bytes:
    """What follows `last` so that the words are a line of their own, with one comma before them in an array.

    >>> [_after(last, b",\\n{}]") for last in (b"}}", b"},", b",\\n")]
    [b',\\n{}]', b'\\n{}]', b'{}]']
    >>> [_after(last, b"{}") for last in (b"", b"]\\n", b"2]")]
    [b'{}', b'{}', b'\\n{}']
    """
    if words.startswith(_BETWEEN_ROWS):
        there = next((n for n in (2, 1) if last.endswith(_BETWEEN_ROWS[:n])), 0)
        return words[there:]
    return words if not last or last.endswith(b"\n") else b"\n" + words


def last_words(media_type: str, error: BaseException) -> bytes | None:
    """The end of rows of this type after an error; None if the type cannot express errors."""
    body = error_body(error)
    match media_type:
        case _ if media_type in (DELIMITED_TYPE, NDJSON_TYPE):
            return orjson.dumps(body) + b"\n"
        case _ if media_type == MILLSTREAM_TYPE:
            return orjson.dumps({"errorMessage": body}) + b"\n"
        case _ if media_type == KSQL_TYPE:
            return b",\n" + orjson.dumps({"errorMessage": body}) + b"]\n"
        case _ if media_type == JSON_TYPE:
            return b",\n" + orjson.dumps(body) + b"]\n"
        case _:
            return None


def _end_to_end(headers: Iterable[tuple[bytes, bytes]], also: tuple[bytes, ...] = ()) -> Headers:
    """The headers without those that concern one connection only."""
    return [(name, value) for name, value in headers if name.lower() in also or name.lower() not in _OF_THE_CONNECTION]


async def settle(*tasks: asyncio.Task[None]) -> None:
    """Returns when the tasks have ended, in any way."""
    await asyncio.gather(*tasks, return_exceptions=True)


async def _nothing() -> Message:
    return {"type": "http.disconnect"}
