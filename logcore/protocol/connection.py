"""One client's connection, as the server sees it: frames in, answers out in the order of the requests.

Reading pauses while a client has too much under way or does not take its answers, so that no client fills the memory.
Complete requests are handled even if the client has closed the connection after them, as in Apache Kafka: a client that
wants no acknowledgement does not wait. Until they are handled, the connection counts as open.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, cast

import structlog

from ..records.batch import Buffer
from .admission import HeldConnections
from .security.peer import Peer
from .wire.apis import Api
from .wire.frames import RequestHeader, read_request_header, write_response_frame
from .wire.primitives import MalformedMessage
from .wire.receiving import FrameReceiver

IN_FLIGHT_MAX: Final = 16
"""The number of answers that a client may wait for at the same time."""

_FRAMES_WAITING_MAX: Final = 64
_WAITING_BYTES_MAX: Final = 64 * 1024  # or two frames, whatever their size
_UNSENT_BYTES_MAX: Final = 64 * 1024
_SHORT_BYTES: Final = 16 * 1024
_BUFFERS_MAX: Final = 64
_PIECE_BYTES: Final = 256 * 1024
_TOO_MANY: Final = "too many connections: see kafka_connections_max and kafka_connections_per_address_max"
_SHOWING_WHO: Final = frozenset({Api.API_VERSIONS, Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE})

_log = structlog.get_logger("millstream.logcore")

Answer = Awaitable[list[Buffer] | None]
"""The body of a response; None if the client wants none."""


class KafkaRequest(NamedTuple):
    """The body begins at `position` of `message`, which the handler may keep."""

    header: RequestHeader
    message: memoryview
    position: int
    peer: Peer


Handler = Callable[[KafkaRequest], Awaitable[Answer]]
"""Returns once the next request of the connection may start; the returned answer may take longer."""


class HangUp(Exception):
    """There is no sensible answer, so the connection is closed. The message is logged."""


class KafkaConnection(asyncio.BufferedProtocol):
    """State: the frame that is being received, waiting frames, and answers under way; the time of the last traffic;
    whether the client is gone; and whether the server has given up the connection: then it handles nothing more.

    Each frame is received into a buffer of its own, which handlers may keep.
    """

    def __init__(
        self,
        handle: Handler,
        connections: HeldConnections[KafkaConnection],
        ended: Callable[[Peer], None] = lambda peer: None,
    ) -> None:
        """In: `ended`: called when the connection is closed."""
        self._handle = handle
        self._ended = ended
        self._connections = connections
        self._receiver = FrameReceiver()
        self._frames: deque[memoryview] = deque()
        self._waiting_bytes = 0
        self._frame_came = asyncio.Event()
        self._answers: asyncio.Queue[tuple[RequestHeader, asyncio.Future[list[Buffer] | None]]] = asyncio.Queue(
            IN_FLIGHT_MAX
        )
        self._writable = asyncio.Event()
        self._writable.set()
        self._serving: asyncio.Task[None] | None = None
        self._sending: asyncio.Task[None] | None = None
        self._fetching = self._gone = self._given_up = False
        self._under_way = 0  # requests that have begun and are not answered
        self._used_s = time.monotonic()

    # Called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_UNSENT_BYTES_MAX)
        self.peer = Peer(
            _address(transport.get_extra_info("sockname")),
            _address(transport.get_extra_info("peername")),
            _names(transport.get_extra_info("peercert")),
        )
        self._serving, self._sending = (asyncio.create_task(self._run(part)) for part in (self._serve, self._send))
        self._connections.enter(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone = self.peer.gone = True
        self._ended(self.peer)
        if self._serving is None or self._sending is None:
            return
        self._sending.cancel()
        self._sending = None  # a cancelled task refers to its coroutine, and so to itself: see `_leave`
        while not self._answers.empty():
            self._answers.get_nowait()  # no client takes them, and the queue needs space for the next ones
        if self._fetching or self._given_up:
            self._serving.cancel()
        if self._fetching and not self._given_up:
            self._serving = asyncio.create_task(self._run(self._serve))
        self._frame_came.set()
        self._serving.add_done_callback(self._leave)

    def _leave(self, done: asyncio.Task[None]) -> None:
        """Breaks reference cycles: memory in cycles, such as that of frames, is only freed when the garbage collector
        runs, which is seldom."""
        self._connections.leave(self)
        if self._serving is done:
            self._serving = None

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._receiver.room()

    def buffer_updated(self, nbytes: int) -> None:
        self._used_s = time.monotonic()
        try:
            frames = self._receiver.take(nbytes)
        except MalformedMessage as error:
            self._hang_up(str(error))
            return
        if frames:
            self._frames.extend(frames)
            self._waiting_bytes += sum(map(len, frames))
            self._frame_came.set()
            if self._has_enough_waiting():
                self._transport.pause_reading()

    def _has_enough_waiting(self) -> bool:
        return len(self._frames) >= _FRAMES_WAITING_MAX or (
            len(self._frames) > 1 and self._waiting_bytes > _WAITING_BYTES_MAX
        )

    def is_idle_since(self, before_s: float) -> bool:
        """Whether the connection is idle: no traffic since then (monotonic time), and the client does not wait for an
        answer, or does not take its answers."""
        waits = self._writable.is_set() and (self._under_way or self._frames)
        return self._used_s < before_s and not waits

    # Our tasks

    async def _run(self, part: Callable[[], Awaitable[None]]) -> None:
        """An error in a connection ends that connection and nothing else."""
        try:
            await part()
        except (HangUp, MalformedMessage) as error:
            self._hang_up(str(error))
        except Exception:
            _log.exception("kafka request failed", peer=str(self.peer))
            self.give_up()

    async def _serve(self) -> None:
        while (message := await self._next_frame()) is not None:
            self._under_way += 1
            await self._wait_while_muted()
            header, position = read_request_header(message)
            self.peer.client_id = header.client_id or ""
            if header.api not in _SHOWING_WHO and not self._connections.admits(self):
                raise HangUp(_TOO_MANY)
            self._fetching = header.api == Api.FETCH
            if self._fetching and self._gone:
                continue  # a fetch may wait long, and changes nothing
            answer = asyncio.ensure_future(await self._handle(KafkaRequest(header, message, position, self.peer)))
            self._fetching = False
            del message  # so that its memory is freed when the handler drops it
            if not self._gone:
                await self._answers.put((header, answer))

    async def _wait_while_muted(self) -> None:
        if not self.peer.muted_until_s:
            return
        left_s = self.peer.muted_until_s - asyncio.get_running_loop().time()
        if left_s > 0:
            await asyncio.sleep(left_s)

    async def _next_frame(self) -> memoryview | None:
        """None if the server gave up the connection, or the client is gone and no frames are left."""
        while not self._frames and not self._given_up:
            if self._gone:
                return None
            self._frame_came.clear()
            await self._frame_came.wait()
        if self._given_up:
            return None
        message = self._frames.popleft()
        self._waiting_bytes -= len(message)
        if not self._has_enough_waiting() and not self._transport.is_closing():
            self._transport.resume_reading()
        return message

    async def _send(self) -> None:
        """Sends answers that are ready together."""
        ready: list[Buffer] = []
        while True:
            if self._answers.empty() or len(ready) > _BUFFERS_MAX:
                await self._flush(ready)
            header, answer = await self._answers.get()
            if not answer.done():
                await self._flush(ready)
            body = answer.result() if answer.done() else await asyncio.shield(answer)
            if body is not None:
                ready += write_response_frame(header, body)
            self._under_way -= 1
            self._used_s = time.monotonic()

    async def _flush(self, ready: list[Buffer]) -> None:
        buffers = _joined(ready)
        ready.clear()
        for buffer in buffers:
            await self._write(memoryview(buffer))

    async def _write(self, buffer: memoryview) -> None:
        """Writes in pieces, because asyncio copies what the socket does not take immediately."""
        for start in range(0, len(buffer), _PIECE_BYTES):
            await self._writable.wait()
            self._used_s = time.monotonic()
            if self._transport.is_closing():
                return  # the client no longer reads it
            self._transport.write(buffer[start : start + _PIECE_BYTES])

    def _hang_up(self, reason: str) -> None:
        """Clients come again at once, twenty times a second. Each reason is logged once a minute for each address."""
        left_out = self._connections.complaints.note(f"{self.peer.remote[0]}: {reason}", time.monotonic())
        if left_out is not None:
            _log.warning("kafka connection closed", peer=str(self.peer), reason=reason, left_out=left_out)
        self.give_up()

    def turn_away(self) -> None:
        self._hang_up(_TOO_MANY)

    def give_up(self) -> None:
        """Closes the connection immediately, even if data is unsent."""
        self._given_up = True
        self._transport.abort()

    def close(self) -> None:
        self._given_up = True
        self._transport.close()
        if self._gone and self._serving is not None:
            self._serving.cancel()


def _names(certificate: Any) -> tuple[str, ...]:
    """The names in a certificate, in the form of the ssl module; none if there is no certificate."""
    given = certificate or {}
    subject = [f"CN={value}" for part in given.get("subject", ()) for key, value in part if key == "commonName"]
    return (*subject, *(f"{kind}:{value}" for kind, value in given.get("subjectAltName", ())))


def _joined(buffers: list[Buffer]) -> list[Buffer]:
    """Joins short buffers, because each buffer is a system call, and may be a packet."""
    if sum(map(len, buffers)) <= _SHORT_BYTES:
        return [b"".join(buffers)] if buffers else []
    joined: list[Buffer] = []
    short: list[Buffer] = []
    for buffer in buffers:
        if len(buffer) <= _SHORT_BYTES:
            short.append(buffer)
        else:
            joined += [b"".join(short), buffer]
            short = []
    return [*joined, b"".join(short)] if short else joined


def _address(name: object) -> tuple[str, int]:
    """Host and port, for any kind of socket."""
    return cast("tuple[str, int]", name[:2]) if isinstance(name, tuple) and len(name) >= 2 else ("?", 0)
