"""One client's connection, as the server sees it: frames in, answers out in the order of the requests.

Reading pauses while a client has too much under way or does not take its answers, so that nobody fills our memory.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, cast

import structlog

from ..records.batch import Buffer
from .frames import LENGTH, RequestHeader, frame_length, read_request_header, write_response_frame
from .peer import Peer
from .wire import MalformedMessage

IN_FLIGHT_MAX: Final = 16
"""Answers that a client may wait for at once."""

_FRAMES_WAITING_MAX: Final = 2
_UNSENT_BYTES_MAX: Final = 64 * 1024
_PIECE_BYTES: Final = 256 * 1024

_log = structlog.get_logger("millstream.logcore")

Answer = Awaitable[list[Buffer] | None]
"""The body of a response; None where the client wants none."""


class Request(NamedTuple):
    """The body begins at `position` of `message`, which the handler may keep."""

    header: RequestHeader
    message: memoryview
    position: int
    peer: Peer


Handler = Callable[[Request], Awaitable[Answer]]
"""Returns once the next request of the connection may start; what it returns may take longer."""


class HangUp(Exception):
    """There is nothing sensible to answer: the connection is closed. The message goes to our own log."""


class Connection(asyncio.BufferedProtocol):
    """State: the frame that is being received, frames that wait, and answers under way.

    A frame is received into a buffer of its own, which handlers may keep.
    """

    def __init__(self, handle: Handler, connections: set[Connection], connections_max: int) -> None:
        self._handle = handle
        self._connections_max = connections_max
        self._connections = connections
        self._prefix = bytearray(LENGTH.size)
        self._buffer = memoryview(self._prefix)
        self._filled = 0
        self._in_prefix = True
        self._frames: deque[memoryview] = deque()
        self._frame_came = asyncio.Event()
        self._answers: asyncio.Queue[tuple[RequestHeader, asyncio.Future[list[Buffer] | None]]] = asyncio.Queue(
            IN_FLIGHT_MAX
        )
        self._writable = asyncio.Event()
        self._writable.set()
        self._tasks: list[asyncio.Task[None]] = []

    # Called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_UNSENT_BYTES_MAX)
        self._peer = Peer(
            _address(transport.get_extra_info("sockname")), _address(transport.get_extra_info("peername"))
        )
        if len(self._connections) >= self._connections_max:
            self._hang_up("too many connections")
            return
        self._connections.add(self)
        self._tasks = [asyncio.create_task(self._run(part)) for part in (self._serve, self._send)]

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        for task in self._tasks:
            task.cancel()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        if self._filled < len(self._buffer):
            return
        if self._in_prefix:
            try:
                length = frame_length(self._prefix)
            except MalformedMessage as error:
                self._hang_up(str(error))
                return
            if length:
                self._expect(memoryview(bytearray(length)), in_prefix=False)
                return
            self._hang_up("an empty frame")
        else:
            self._frames.append(self._buffer)
            self._frame_came.set()
            if len(self._frames) >= _FRAMES_WAITING_MAX:
                self._transport.pause_reading()
            self._expect(memoryview(self._prefix), in_prefix=True)

    def _expect(self, buffer: memoryview, *, in_prefix: bool) -> None:
        self._buffer, self._filled, self._in_prefix = buffer, 0, in_prefix

    # Our tasks

    async def _run(self, part: Callable[[], Awaitable[None]]) -> None:
        """Whatever goes wrong in a connection ends that connection and nothing else."""
        try:
            await part()
        except (HangUp, MalformedMessage) as error:
            self._hang_up(str(error))
        except Exception:
            _log.exception("kafka request failed", peer=str(self._peer))
            self._transport.abort()

    async def _serve(self) -> None:
        while True:
            message = await self._next_frame()
            await self._wait_while_muted()
            header, position = read_request_header(message)
            self._peer.client_id = header.client_id or ""
            answer = asyncio.ensure_future(await self._handle(Request(header, message, position, self._peer)))
            del message  # its memory is free once the handler lets go of it
            await self._answers.put((header, answer))

    async def _wait_while_muted(self) -> None:
        left_s = self._peer.muted_until_s - asyncio.get_running_loop().time()
        if left_s > 0:
            await asyncio.sleep(left_s)

    async def _next_frame(self) -> memoryview:
        while not self._frames:
            self._frame_came.clear()
            await self._frame_came.wait()
        message = self._frames.popleft()
        if len(self._frames) < _FRAMES_WAITING_MAX and not self._transport.is_closing():
            self._transport.resume_reading()
        return message

    async def _send(self) -> None:
        while True:
            header, answer = await self._answers.get()
            body = await asyncio.shield(answer)
            if body is None:
                continue
            for buffer in write_response_frame(header, body):
                await self._write(memoryview(buffer))

    async def _write(self, buffer: memoryview) -> None:
        """In pieces: what the socket does not take at once, asyncio copies."""
        for start in range(0, len(buffer), _PIECE_BYTES):
            await self._writable.wait()
            if self._transport.is_closing():
                return  # nobody reads it any more
            self._transport.write(buffer[start : start + _PIECE_BYTES])

    def _hang_up(self, reason: str) -> None:
        _log.warning("kafka connection closed", peer=str(self._peer), reason=reason)
        self._transport.abort()

    def close(self) -> None:
        self._transport.close()


def _address(name: object) -> tuple[str, int]:
    """Of whatever kind of socket: host and port."""
    return cast("tuple[str, int]", name[:2]) if isinstance(name, tuple) and len(name) >= 2 else ("?", 0)
