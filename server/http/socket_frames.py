"""Adds to hypercorn's web sockets: a client that violates the protocol (RFC 6455) is told so before the connection
ends."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from hypercorn.protocol.ws_stream import WSStream
from wsproto.connection import Connection, ConnectionState
from wsproto.events import CloseConnection, Event


class _Frames(Connection):
    """Closes with the code of the error: 1002, 1007 for a text that is not UTF-8, 1009 for one that is too long."""

    def events(self) -> Generator[Event, None, None]:
        for event in super().events():
            if isinstance(event, CloseConnection) and self.state is ConnectionState.OPEN:
                self._state = ConnectionState.REMOTE_CLOSING  # hypercorn only answers a close frame of the client
            yield event


class _Socket(WSStream):
    async def _accept(self, message: Any) -> None:
        await super()._accept(message)
        self.connection.__class__ = _Frames


def with_goodbyes(stream: object) -> None:
    """In: a stream that hypercorn has just created, of any kind."""
    if type(stream) is WSStream:
        stream.__class__ = _Socket
