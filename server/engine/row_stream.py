"""A bounded buffer between a query, which blocks a thread, and a client, which may be slow."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator, Iterator
from typing import Final

import structlog

BUFFER_BYTES_MAX: Final = 256 * 1024

_log = structlog.get_logger("millstream.server")


class RowStream:
    """Iterates `chunks` in its own thread, as far ahead of the reader as the buffer allows.

    In: `chunks`: handles its own errors. `close_source`: ends the iteration soon; callable from any thread, repeatedly.
    Invariant: the buffer holds at most BUFFER_BYTES_MAX plus one chunk.
    """

    def __init__(
        self, name: str, chunks: Iterator[bytes], close_source: Callable[[], None],
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:  # fmt: skip
        self._chunks = chunks
        self._close_source = close_source
        self._loop = loop or asyncio.get_running_loop()
        self._filled = asyncio.Event()
        self._room = threading.Condition()
        self._buffer = bytearray()
        self._begun = False
        self._told = False  # the event loop was told that there is something to take
        self._ended = False
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=f"millstream-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    async def take(self) -> bytes:
        """All buffered bytes; waits until there are some. Empty bytes mean the end."""
        while True:
            with self._room:
                self._filled.clear()
                self._told = False
                taken = bytes(self._buffer)
                self._buffer.clear()
                self._room.notify()
                if taken or self._ended:
                    return taken
            await self._filled.wait()

    def interject(self, chunk: bytes) -> None:
        """Inserts bytes between chunks. Does nothing before the first, after the last, or while the buffer is full."""
        with self._room:
            if self._begun and not self._ended and len(self._buffer) < BUFFER_BYTES_MAX:
                self._buffer += chunk
                self._tell()

    def close(self) -> None:
        """Ends the query; `take` returns what is left and then the end. Any thread may call it, repeatedly."""
        with self._room:
            self._closed = True
            self._room.notify()
        self._close_source()

    @property
    def runs(self) -> bool:
        """Whether its thread has not ended."""
        return self._thread.is_alive()

    def join(self, timeout_s: float) -> None:
        """Waits for the thread, if it was started."""
        if self.runs:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            for chunk in self._chunks:
                if not self._put(chunk):
                    break
        except Exception as error:
            _log.error("rows ended with an error", thread=self._thread.name, exc_info=error)
        finally:
            self._close_source()
            if isinstance(self._chunks, Generator):
                self._chunks.close()  # now, not at garbage collection
            with self._room:
                self._ended = True
                self._tell()

    def _put(self, chunk: bytes) -> bool:
        with self._room:
            while len(self._buffer) >= BUFFER_BYTES_MAX and not self._closed:
                self._room.wait()
            self._buffer += chunk
            self._begun = True
            self._tell()
            return not self._closed

    def _tell(self) -> None:
        if not self._told:
            self._told = True
            try:
                self._loop.call_soon_threadsafe(self._filled.set)
            except RuntimeError:  # the loop is closed, so there is no reader
                self._closed = True
