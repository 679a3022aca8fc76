"""Frames come out of a stream of bytes as they went in, however the stream is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.logcore.protocol.wire.frames import LENGTH
from millstream.logcore.protocol.wire.primitives import MalformedMessage
from millstream.logcore.protocol.wire.receiving import FrameReceiver


def fed(receiver: FrameReceiver, content: bytes, piece: int) -> list[bytes]:
    frames: list[bytes] = []
    while content:
        room = receiver.room()
        count = min(len(room), len(content), piece)
        room[:count] = content[:count]
        frames += map(bytes, receiver.take(count))
        content = content[count:]
    return frames


@given(
    sizes=st.lists(st.one_of(st.integers(1, 40), st.integers(16_370, 16_390), st.integers(1, 60_000)), max_size=12),
    piece=st.one_of(st.integers(1, 20), st.integers(1, 100_000)),
)
def test_frames_are_found_however_the_bytes_come(sizes: list[int], piece: int) -> None:
    frames = [bytes([number % 256]) * size for number, size in enumerate(sizes)]
    stream = b"".join(LENGTH.pack(len(frame)) + frame for frame in frames)
    assert fed(FrameReceiver(), stream, piece) == frames


def test_a_frame_may_be_written_to_and_is_nobody_elses() -> None:
    receiver = FrameReceiver()
    room = receiver.room()
    room[:10] = LENGTH.pack(1) + b"a" + LENGTH.pack(1) + b"b"
    first, second = receiver.take(10)
    first[0] = ord("c")
    assert bytes(second) == b"b"
    fed(receiver, LENGTH.pack(3) + b"new", 7)
    assert bytes(first) == b"c"


@pytest.mark.parametrize("length", [-1, 0, 2**31 - 1])
def test_a_length_that_no_frame_has_is_refused(length: int) -> None:
    with pytest.raises(MalformedMessage):
        fed(FrameReceiver(), LENGTH.pack(length), 4)
