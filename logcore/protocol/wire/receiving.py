"""Frames out of a stream of bytes. Small ones come several at a time; a large one is received where it stays."""

from __future__ import annotations

from typing import Final

from .frames import LENGTH, frame_length
from .primitives import MalformedMessage

_SMALL_BYTES: Final = 16 * 1024


class FrameReceiver:
    """State: bytes that came and are no whole frame yet: in `_small`, or in a buffer of the frame's own once its length
    is known."""

    def __init__(self) -> None:
        self._small = memoryview(bytearray(_SMALL_BYTES))
        self._frame: memoryview | None = None
        self._filled = 0

    def room(self) -> memoryview:
        """Where the next bytes go."""
        return (self._small if self._frame is None else self._frame)[self._filled :]

    def take(self, count: int) -> list[memoryview]:
        """So many bytes have come: the frames that are whole now, writable, each in memory of its own.

        Raises `MalformedMessage` for a length that no frame has.
        """
        self._filled += count
        if self._frame is None:
            return self._take_small()
        if self._filled < len(self._frame):
            return []
        frame, self._frame, self._filled = self._frame, None, 0
        return [frame]

    def _take_small(self) -> list[memoryview]:
        frames: list[memoryview] = []
        start, end = 0, self._filled
        while end - start >= LENGTH.size:
            length = frame_length(self._small[start : start + LENGTH.size])
            if not length:
                raise MalformedMessage("an empty frame")
            start += LENGTH.size
            frame = memoryview(bytearray(length))
            came = min(end - start, length)
            frame[:came] = self._small[start : start + came]
            if came < length:
                self._frame, self._filled = frame, came
                return frames
            frames.append(frame)
            start += length
        self._filled = end - start
        self._small[: self._filled] = bytes(self._small[start:end])
        return frames
