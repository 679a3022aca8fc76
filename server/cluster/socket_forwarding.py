"""Forwards web sockets to another node: messages in both directions until either side closes. It uses wsproto."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from typing import Final, assert_never, cast

from starlette.types import Receive, Scope, Send
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Ping,
    Pong,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)
from wsproto.utilities import ProtocolError

from ..config.configuration import ListenAddress
from .forwarding import CLIENT, FORWARDED, NOT_HERE, Headers, NotThere, settle, until_moved

_CONNECT_S: Final = 3.0
_READ_BYTES: Final = 64 * 1024
_WENT_AWAY: Final = 1012  # service restart
_OF_THE_HANDSHAKE: Final = (b"host", b"connection", b"upgrade", FORWARDED, CLIENT)

_Event = (
    AcceptConnection
    | BytesMessage
    | CloseConnection
    | Ping
    | Pong
    | RejectConnection
    | RejectData
    | Request
    | TextMessage
)
"""All events of wsproto."""


async def forward_socket(
    scope: Scope,
    receive: Receive,
    send: Send,
    to: ListenAddress,
    tls: ssl.SSLContext | None,
    said: Headers,
    runs_there: Callable[[], bool],
) -> None:
    """Like `forward`. Raises `NotThere`; in that case the client's socket is not accepted yet."""
    try:
        async with asyncio.timeout(_CONNECT_S):
            reader, writer = await asyncio.open_connection(to.host, to.port, ssl=tls)
    except OSError as error:  # a timeout, too
        raise NotThere(str(error)) from error
    there = _Socket(reader, writer, send)
    try:
        writer.write(there.protocol.send(_handshake(scope, to, said)))
        leaving = asyncio.create_task(_until_gone(receive, there))
        moving = asyncio.create_task(until_moved(runs_there, writer))
        try:
            await there.pass_on()
        finally:
            leaving.cancel()
            moving.cancel()
            await settle(leaving, moving)
    finally:
        writer.close()


class _Socket:
    """The connection to the other node. State: whether the client's socket was accepted."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, send: Send) -> None:
        self.protocol = WSConnection(ConnectionType.CLIENT)
        self._reader, self._writer, self._send = reader, writer, send
        self._accepted = False
        self._text = ""

    async def pass_on(self) -> None:
        """Forwards messages until the other node closes."""
        while True:
            try:
                data = await self._reader.read(_READ_BYTES)
                self.protocol.receive_data(data or None)
                events = cast(list[_Event], list(self.protocol.events()))
            except (OSError, ProtocolError):
                events = [CloseConnection(_WENT_AWAY, "the node that runs the engine failed")]
            for event in events:
                if await self._take(event):
                    return

    async def _take(self, event: _Event) -> bool:
        """True when the socket has ended."""
        match event:
            case AcceptConnection():
                self._accepted = True
                await self._send({"type": "websocket.accept"})
            case RejectConnection():
                if NOT_HERE in [bytes(name).lower() for name, _ in event.headers]:
                    raise NotThere("the engine is not there")
                await self._send({"type": "websocket.close", "code": _POLICY_VIOLATION, "reason": ""})
                return True
            case TextMessage():
                self._text += event.data
                if event.message_finished:
                    await self._send({"type": "websocket.send", "text": self._text})
                    self._text = ""
            case Ping():
                self._writer.write(self.protocol.send(event.response()))
            case CloseConnection():
                if not self._accepted:
                    raise NotThere("the connection broke before the socket was open")
                code = _WENT_AWAY if event.code == _ABNORMAL else event.code
                await self._send({"type": "websocket.close", "code": code, "reason": event.reason or ""})
                return True
            case BytesMessage() | Pong() | RejectData() | Request():
                pass  # our sockets use none of them
            case _:
                assert_never(event)
        return False

    def leave(self) -> None:
        """Closes the connection because the client has disconnected."""
        with contextlib.suppress(ProtocolError):
            self._writer.write(self.protocol.send(CloseConnection(1000)))
        self._writer.close()


_ABNORMAL: Final = 1006
_POLICY_VIOLATION: Final = 1008


def _handshake(scope: Scope, to: ListenAddress, said: Headers) -> Request:
    target = scope["raw_path"].decode("latin-1")
    if scope["query_string"]:
        target += "?" + scope["query_string"].decode("latin-1")
    kept = [
        (name, value)
        for name, value in scope["headers"]
        if name.lower() not in _OF_THE_HANDSHAKE and not name.lower().startswith(b"sec-websocket")
    ]
    return Request(host=str(to), target=target, extra_headers=[*kept, *said])


async def _until_gone(receive: Receive, there: _Socket) -> None:
    """Waits until the client closes; its messages are ignored, as by our sockets."""
    while (await receive())["type"] != "websocket.disconnect":
        pass
    there.leave()
