"""Splits a stream of bytes into frames. Several small ones may arrive together; a large one is received in place."""

from __future__ import annotations

from typing import Final

from .frames import LENGTH, frame_length
from .primitives import MalformedMessage

_SMALL_BYTES: Final = 16 * 1024


class FrameReceiver:
    """State: the bytes of an incomplete frame: in `_small`, or in the frame's own buffer once its length is known."""

    def __init__(self) -> None:
        self._small = memoryview(bytearray(_SMALL_BYTES))
        self._frame: memoryview | None = None
        self._filled = 0

    def room(self) -> memoryview:
        """The buffer for the next bytes."""
        return (self._small if self._frame is None else self._frame)[self._filled :]

    def take(self, count: int) -> list[memoryview]:
        """Takes `count` received bytes. Returns the frames that are now complete, writable, each in its own memory.

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
