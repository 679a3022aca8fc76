"""Responses that use memory until their clients have read them, with a limit on their total size."""

from __future__ import annotations

import asyncio
from typing import Final

import structlog
from starlette.types import Receive, Scope, Send

from ..http.errors import TOO_MANY_REQUESTS, RequestRefused

_SLICE_BYTES: Final = 64 * 1024
STALL_SECONDS_MAX: Final = 60.0  # a client that accepts nothing for this long is considered gone

_log = structlog.get_logger("millstream.server")


class Room:
    """The memory that responses may use, in bytes. Only for the event loop."""

    def __init__(self, bytes_max: int) -> None:
        self.taken = 0
        self._bytes_max = bytes_max

    def check(self, size: int) -> None:
        """A single response is always allowed. Raises `RequestRefused`."""
        if self.taken and self.taken + size > self._bytes_max:
            raise RequestRefused(TOO_MANY_REQUESTS, "clients have not read the responses that are under way")


class BoundedBody:
    """An ASGI application that sends one body. The body counts against the room from now on, until it is sent."""

    def __init__(self, body: bytes, media_type: str, room: Room) -> None:
        room.check(len(body))
        room.taken += len(body)
        self._body, self._media_type, self._room = body, media_type, room

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        headers = [
            (b"content-type", self._media_type.encode()),
            (b"content-length", str(len(self._body)).encode()),
        ]
        try:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            for begin in range(0, max(1, len(self._body)), _SLICE_BYTES):
                part = self._body[begin : begin + _SLICE_BYTES]
                more = begin + _SLICE_BYTES < len(self._body)
                async with asyncio.timeout(STALL_SECONDS_MAX):
                    await send({"type": "http.response.body", "body": part, "more_body": more})
        except TimeoutError:
            _log.warning("client does not read its response")
        finally:
            self._room.taken -= len(self._body)
