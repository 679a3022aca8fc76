"""The window at the end of a windowed key: its start, or its end and start (if `KeyWindow.holds_end`). Each has 8
bytes, big-endian, as Kafka Streams writes them."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ...planner.specs import KeyWindow
from ...sql.compiling.loops import read_only
from ..window_times import window_ends
from .codec import Decoded, Decoder, Encoder, RowError, boolean_array, byte_view, one_array, valid_flags
from .compiled import write
from .text_encoder import SMALL_BATCH

_TIME_BYTES = 8
_TIMES = {1: struct.Struct(">q"), 2: struct.Struct(">qq")}


def suffix_bytes(window: KeyWindow) -> int:
    return 2 * _TIME_BYTES if window.holds_end else _TIME_BYTES


class WindowedDecoder:
    """Removes the window from each key; `inner` decodes the rest."""

    def __init__(self, inner: Decoder, window: KeyWindow) -> None:
        self._inner = inner
        self._window = window

    def decode(self, data: pa.Array | pa.ChunkedArray) -> Decoded:
        rows = one_array(data)
        bytes_, offsets = byte_view(rows)
        suffix = suffix_bytes(self._window)
        valid = valid_flags(rows) != 0
        lengths = np.diff(offsets)
        good = valid & (lengths >= suffix)
        starts = offsets[:-1].astype(np.int64)
        ends = offsets[1:].astype(np.int64)

        # The keys without their windows, as contiguous bytes.
        kept = np.where(good, lengths - suffix, 0)
        new_offsets = np.zeros(len(rows) + 1, np.int32)
        np.cumsum(kept, out=new_offsets[1:])
        moved = np.repeat(starts - new_offsets[:-1], kept) + np.arange(new_offsets[-1])
        bitmap = pa.py_buffer(np.packbits(good, bitorder="little"))
        keys = pa.Array.from_buffers(
            pa.binary(), len(rows), [bitmap, pa.py_buffer(new_offsets), pa.py_buffer(bytes_[moved])]
        )

        decoded = self._inner.decode(keys)
        short = [
            RowError(int(row), f"a windowed key has at least {suffix} bytes, {int(lengths[row])} came")
            for row in np.flatnonzero(valid & ~good)
        ]
        last = self._times(bytes_, ends, good, _TIME_BYTES)
        if self._window.holds_end:
            start, end = last, self._times(bytes_, ends, good, 2 * _TIME_BYTES)
        else:
            size = self._window.size_ms
            start, end = last, None if size is None else window_ends(last, size, self._window.timezone)
        mask = None if good.all() else ~good
        return Decoded(
            decoded.columns,
            boolean_array(decoded.null_rows.to_numpy(zero_copy_only=False) & ~(valid & ~good)),
            sorted(decoded.errors + short, key=lambda error: error.row),
            pa.array(start, pa.int64(), mask=mask),
            pa.nulls(len(rows), pa.int64()) if end is None else pa.array(end, pa.int64(), mask=mask),
        )

    @staticmethod
    def _times(bytes_: np.ndarray, ends: np.ndarray, good: np.ndarray, back: int) -> np.ndarray:
        values = np.zeros(len(ends), np.int64)
        places = (ends[good] - back)[:, None] + np.arange(_TIME_BYTES)
        values[good] = bytes_[places].reshape(-1).view(">i8")
        return values


class WindowedEncoder:
    """Appends the window to each key that `inner` writes. Null keys stay null."""

    def __init__(self, inner: Encoder, window: KeyWindow) -> None:
        self._inner = inner
        self._window = window

    def encode(
        self,
        columns: Sequence[pa.Array],
        *,
        null_rows: pa.BooleanArray | None = None,
        window_start: pa.Array | None = None,
        window_end: pa.Array | None = None,
    ) -> pa.BinaryArray:
        keys = self._inner.encode(columns, null_rows=null_rows)
        assert window_start is not None, "the key is windowed"
        times = [window_start]
        if self._window.holds_end:
            assert window_end is not None, "keys hold the end too"
            times = [window_end, window_start]
        if len(keys) < SMALL_BATCH:
            rows = zip(keys.to_pylist(), *(time.fill_null(0).to_pylist() for time in times), strict=True)
            return pa.array(
                [None if key is None else key + _TIMES[len(at)].pack(*at) for key, *at in rows], pa.binary()
            )
        bytes_, offsets = byte_view(keys)
        valid = valid_flags(keys)
        tails = np.empty((len(keys), len(times)), ">i8")
        for i, time in enumerate(times):
            tails[:, i] = time.fill_null(0).to_numpy()
        new_offsets, out = write.append_to_each(offsets, bytes_, read_only(valid), read_only(tails.view(np.uint8)))
        bitmap = None if valid.all() else pa.py_buffer(np.packbits(valid != 0, bitorder="little"))
        return pa.Array.from_buffers(pa.binary(), len(keys), [bitmap, pa.py_buffer(new_offsets), pa.py_buffer(out)])


def window_end(start: int, window: KeyWindow) -> int | None:
    """The end of a time window; None if its size is not known."""
    if window.size_ms is None:
        return None
    return int(window_ends(np.array([start], dtype=np.int64), window.size_ms, window.timezone)[0])


def add_window(key: bytes, window: KeyWindow, start: int, end: int) -> bytes:
    """One key's bytes with the window appended."""
    return key + (struct.pack(">qq", end, start) if window.holds_end else struct.pack(">q", start))


def take_window(data: bytes, window: KeyWindow) -> tuple[bytes, int, int | None]:
    """Out: a windowed key's bytes without the window; the window's start; its end (None if the size is not known).

    Raises: struct.error if there are too few bytes.
    """
    if window.holds_end:
        end, start = struct.unpack(">qq", data[-2 * _TIME_BYTES :])
        return data[: -2 * _TIME_BYTES], start, end
    (start,) = struct.unpack(">q", data[-_TIME_BYTES:])
    return data[:-_TIME_BYTES], start, window_end(start, window)
