"""The rows of a shared feed for one client. To the caller it is a `RowStream`.

First come the rows that the client reads alone, then those of the feed. The feed's rows are written to the connection
immediately if possible; a client that falls behind by more than the buffer leaves the feed and reads alone again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from ..http.row_formats import RowFormat
from .queries import PushRows, QueryResult, rows_of
from .row_stream import BUFFER_BYTES_MAX, RowStream
from .shared_feeds import Offsets, Share

_WRITTEN_AHEAD_MAX: Final = 64 * 1024  # bytes that the operating system has not yet accepted


class SharedStream:
    """Implements `ClientSink`. Only the event loop may use it, except `encode` and `close`.

    `write_through`: the connection, if rows may be written to it directly as HTTP/1.1 chunks.
    """

    def __init__(self, result: QueryResult, push: PushRows, share: Share, format: RowFormat) -> None:
        self.write_through: asyncio.WriteTransport | None = None
        self._result = result
        self._push = push
        self._share = share
        self._format = format
        self._loop = asyncio.get_running_loop()
        self._filled = asyncio.Event()
        self._pending = bytearray()
        self._before: RowStream | None = None  # the rows that it reads alone, before the pending ones
        self._after: RowStream | None = None  # the rows that it reads alone, after the pending ones
        self._waits = False  # the caller has sent everything and waits
        self._ended = False
        self._broken = False

    @property
    def group(self) -> object:
        return type(self._format), self._format.media_type, self._push.keyed_only

    def begin(self) -> None:
        """Joins the feed. Blocks briefly: call it before `start`, in any thread except the loop's."""
        head = self._format.head(self._result)  # before any row: some formats take names from it
        behind = self._share.join(self, self._loop)
        self._before = RowStream(self._result.query_id, self._first(head, behind), lambda: None, loop=self._loop)

    def start(self) -> None:
        assert self._before is not None
        self._before.start()

    async def take(self) -> bytes:
        """All available bytes; waits until there are some. Empty bytes mean the end."""
        if self._before is not None:
            data = await self._before.take()
            if data:
                return data
            self._before = None
        if self._broken:
            return b""
        while not self._pending and not self._ended and self._after is None:
            self._filled.clear()
            self._waits = True
            await self._filled.wait()
            self._waits = False
        if self._pending:
            data = bytes(self._pending)
            self._pending.clear()
            return data
        return b"" if self._after is None else await self._after.take()

    def encode(self, rows: pa.Table) -> bytes:
        return b"".join(self._encoded(rows))

    def _encoded(self, rows: pa.Table) -> Iterator[bytes]:
        for piece in self._push.shape(rows).pieces():
            yield b"".join(map(self._format.row, rows_of(piece, self._result.schema)))

    def deliver(self, chunk: bytes, begin: Offsets) -> None:
        if not chunk or self._after is not None or self._ended:
            return
        connection, at_once = self.write_through, self._waits and not self._pending
        if at_once and connection is not None:
            at_once = not connection.is_closing() and connection.get_write_buffer_size() < _WRITTEN_AHEAD_MAX
            if at_once:
                connection.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                return
        if at_once or len(self._pending) + len(chunk) <= BUFFER_BYTES_MAX:
            self._pending += chunk
        else:
            self._go_alone(begin)
        self._filled.set()

    def finish(self, error: Exception | None) -> None:
        if not self._ended and self._after is None:
            self._ended = True
            self._pending += self._format.end(self._result, error or self._result.stopped)
            self._filled.set()

    def interject(self, chunk: bytes) -> None:
        """Inserts bytes between the chunks."""
        if self._waits:
            self._pending += chunk
            self._filled.set()

    def close(self) -> None:
        """Ends the query; `take` returns what is left and then the end. Any thread may call it, repeatedly."""
        self._share.close()
        for stream in (self._before, self._after):
            if stream is not None:
                stream.close()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self.finish, None)

    @property
    def runs(self) -> bool:
        """Whether one of its own threads is still running."""
        return any(stream is not None and stream.runs for stream in (self._before, self._after))

    def join(self, timeout_s: float) -> None:
        """Waits for the threads."""
        for stream in (self._before, self._after):
            if stream is not None:
                stream.join(timeout_s)

    def _go_alone(self, begin: Offsets) -> None:
        self._share.leave(begin)
        self._after = RowStream(self._result.query_id, self._alone(), lambda: None)
        self._after.start()

    def _first(self, head: bytes, behind: Iterator[pa.Table]) -> Iterator[bytes]:
        yield head
        try:
            for rows in behind:
                yield from self._encoded(rows)
        except Exception as error:
            self._broken = True
            self._share.leave()
            yield self._format.end(self._result, error)

    def _alone(self) -> Iterator[bytes]:
        failure: Exception | None = None
        try:
            for rows in self._share.alone():
                yield from self._encoded(rows)
        except Exception as error:
            failure = error
        yield self._format.end(self._result, failure or self._result.stopped)
