# pyrefly: ignore-errors[unannotated-return]
"""Writes numbers as text with compiled code: twice as fast as Arrow's cast, in the form that `join_fields` takes."""

from __future__ import annotations

import numpy as np

from ....sql.compiling.loops import inlined_loop, loop
from .words import Vector, load_word, store_word

SCALE_MAX = 18
_LENGTH_MAX = 24  # of a number's text, in whole words: 19 digits, or one more than the scale, with sign and point
_TENS = np.frombuffer("".join(str(n // 10) for n in range(100)).encode(), np.uint8)
_ONES = np.frombuffer("".join(str(n % 10) for n in range(100)).encode(), np.uint8)
_TEN, _HUNDRED = np.uint64(10), np.uint64(100)


@loop
def write_integers(values: Vector, valid: Vector):
    """The text of each int64; nothing if it is not valid."""
    return _write(values, valid, 0)


@loop
def write_fixed_point(values: Vector, valid: Vector, scale: int):
    """Like `write_integers`, with a point before the last `scale` digits and at least one digit before the point."""
    return _write(values, valid, scale)


@inlined_loop
def _write(values: Vector, valid: Vector, scale: int):
    count = values.shape[0]
    offsets = np.zeros(count + 1, np.int64)
    out = np.empty((count + 1) * _LENGTH_MAX, np.uint8)
    text = np.zeros(2 * _LENGTH_MAX, np.uint8)  # written from the end of its first half
    at = 0
    for row in range(count):
        if valid[row]:
            value = values[row]
            negative = value < 0
            left = np.uint64(0) - np.uint64(value) if negative else np.uint64(value)
            i = _LENGTH_MAX
            for _ in range(scale):
                rest = left // _TEN
                i -= 1
                text[i] = np.int64(left - rest * _TEN) + 48
                left = rest
            if scale:
                i -= 1
                text[i] = 46
            while left >= _HUNDRED:
                rest = left // _HUNDRED
                pair = np.int64(left - rest * _HUNDRED)
                left = rest
                i -= 2
                text[i] = _TENS[pair]
                text[i + 1] = _ONES[pair]
            pair = np.int64(left)
            i -= 1
            text[i] = _ONES[pair]
            if left >= _TEN:
                i -= 1
                text[i] = _TENS[pair]
            if negative:
                i -= 1
                text[i] = 45
            length = _LENGTH_MAX - i
            for j in range(0, length, 8):
                store_word(out, at + j, load_word(text, i + j))
            at += length
        offsets[row + 1] = at
    return offsets, out[:at]
