# pyrefly: ignore-errors[unannotated-return]
"""Converts spans of text (see `scan.py`) into Arrow's buffers, with compiled code.

Each function sets `valid`. If it is uncertain whether a span fits the type, it sets `bad`: then the reference decoder
reads the row again. A span of kind TEXT is accepted as a number or word only if the reference accepts it, too.

numba caches compiled code in __pycache__ and only checks a function's own file: after a change to `scan.py` or
`words.py`, delete the cached code of this file.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....sql.compiling.loops import AHEAD, loop, prefetch
from .scan import ESCAPED_TEXT, FALSE, INTEGER_NUMBER, NULL, REAL_NUMBER, TEXT, TRUE, skip_number
from .words import HIGH_BITS, NO_DIGITS, ZEROS, Vector, load_word, store_word

_POWERS_OF_TEN = np.array([10**i for i in range(19)], np.int64)
_EXACT_POWERS = np.array([float(10**i) for i in range(23)], np.float64)  # the powers of ten that a double holds exactly
_EXACT_INTEGERS = 1 << 53

_BASE64 = np.full(256, 255, np.uint8)
for _value, _letter in enumerate(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"):
    _BASE64[_letter] = _value

_BACKSLASH = 92
_EIGHT = np.uint64(8)


@loop
def _all_digits(word: np.uint64):
    """Whether each byte is from 0 to 9, the value of a digit."""
    return (word | (word + NO_DIGITS)) & HIGH_BITS == np.uint64(0)


@loop
def _eight_digits(word: np.uint64):
    """The number of eight digits. Each byte is the value of a digit; the lowest byte is the first digit. One
    multiplication each combines the digits into pairs, groups of four, and all eight."""
    word = word * np.uint64(10 << 8 | 1) >> np.uint64(8) & np.uint64(0x00FF00FF00FF00FF)
    word = word * np.uint64(100 << 16 | 1) >> np.uint64(16) & np.uint64(0x0000FFFF0000FFFF)
    return word * np.uint64(10000 << 32 | 1) >> np.uint64(32)


@loop
def parse_integers(
    data: Vector,
    starts: Vector,
    ends: Vector,
    kinds: Vector,
    low: int,
    high: int,
    factor: int,
    out: Vector,
    valid: Vector,
    bad: Vector,
):
    """Integers from `low` to `high`, times `factor`. Digits are read eight at a time, if enough bytes follow."""
    limit = data.shape[0] - 16
    last = starts.shape[0] - 1
    for row in range(starts.shape[0]):
        prefetch(data, starts[min(row + AHEAD, last)])
        kind = kinds[row]
        out[row] = 0
        valid[row] = 0
        if kind == NULL:
            continue
        i = starts[row]
        end = ends[row]
        if kind != INTEGER_NUMBER and kind != TEXT:
            bad[row] = 1
            continue
        negative = i < end and data[np.uintp(i)] == 45
        if negative or (kind == TEXT and i < end and data[np.uintp(i)] == 43):
            i += 1
        if i >= end or end - i > 19:
            bad[row] = 1
            continue
        length = end - i
        magnitude = np.uint64(0)  # holds all of 19 digits
        good = True
        if length <= 16 and i <= limit:
            digits = (load_word(data, i) ^ ZEROS) << (_EIGHT * np.uint64(max(8 - length, 0)))
            good = _all_digits(digits)
            magnitude = _eight_digits(digits)
            if length > 8:
                digits = (load_word(data, i + 8) ^ ZEROS) << (_EIGHT * np.uint64(16 - length))
                good &= _all_digits(digits)
                magnitude = magnitude * np.uint64(_POWERS_OF_TEN[length - 8]) + _eight_digits(digits)
        else:
            for j in range(i, end):
                digit = np.uint64(data[np.uintp(j)]) - np.uint64(48)
                good &= digit <= np.uint64(9)
                magnitude = magnitude * np.uint64(10) + digit
            good &= magnitude <= np.uint64(0x7FFFFFFFFFFFFFFF)
        value = np.int64(magnitude)
        if negative:
            value = -value
        if not good or value < low or value > high:
            bad[row] = 1
            continue
        out[row] = value * factor
        valid[row] = 1


@loop
def _number(data: Vector, i: int, end: int):
    """The sign, the digits as an integer, the power of ten, and the number of significant digits (99: too many) of a
    JSON number."""
    negative = data[np.uintp(i)] == 45
    if negative:
        i += 1
    mantissa = 0
    digits = 0
    exponent = 0
    point = False
    while i < end:
        c = data[np.uintp(i)]
        if c == 46:
            point = True
        elif 48 <= c <= 57:
            if digits > 0 or c != 48:
                digits += 1
                if digits > 18:
                    return negative, mantissa, exponent, 99
            mantissa = mantissa * 10 + (np.int64(c) - 48)
            if point:
                exponent -= 1
        else:
            break
        i += 1
    if i < end:  # the exponent
        i += 1
        sign = 1
        if data[np.uintp(i)] == 43 or data[np.uintp(i)] == 45:
            sign = -1 if data[np.uintp(i)] == 45 else 1
            i += 1
        if end - i > 6:
            return negative, mantissa, exponent, 99
        shift = 0
        while i < end:
            shift = shift * 10 + (np.int64(data[np.uintp(i)]) - 48)
            i += 1
        exponent += sign * shift
    return negative, mantissa, exponent, digits


@loop
def _is_number(data: Vector, i: int, end: int, kind: int):
    if kind == INTEGER_NUMBER or kind == REAL_NUMBER:
        return True
    if kind != TEXT:
        return False
    behind, _ = skip_number(data, i, end)
    return behind == end


@loop
def parse_doubles(
    data: Vector, starts: Vector, ends: Vector, kinds: Vector, out: Vector, valid: Vector, bad: Vector, slow: Vector
):
    """Doubles whose digits and exponent are small enough for one exact operation; the others are marked `slow`."""
    slow_count = 0
    last = starts.shape[0] - 1
    for row in range(starts.shape[0]):
        prefetch(data, starts[min(row + AHEAD, last)])
        kind = kinds[row]
        out[row] = 0.0
        valid[row] = 0
        slow[row] = 0
        if kind == NULL:
            continue
        i: Any = np.int64(starts[row])
        end: Any = np.int64(ends[row])
        if not _is_number(data, i, end, kind):
            bad[row] = 1
            continue
        negative, mantissa, exponent, digits = _number(data, i, end)
        valid[row] = 1
        if digits > 18 or mantissa > _EXACT_INTEGERS or exponent < -22 or exponent > 22:
            slow[row] = 1
            slow_count += 1
            continue
        value = np.float64(mantissa)
        value = value * _EXACT_POWERS[exponent] if exponent >= 0 else value / _EXACT_POWERS[-exponent]
        # The integer -0 is zero; a real -0.0 (or text) keeps its sign.
        out[row] = -value if negative and (mantissa != 0 or kind != INTEGER_NUMBER) else value
    return slow_count


@loop
def parse_decimals(
    data: Vector,
    starts: Vector,
    ends: Vector,
    kinds: Vector,
    precision: int,
    scale: int,
    out: Vector,
    valid: Vector,
    bad: Vector,
):
    """Decimals of up to 18 digits, as the two words of a 128-bit integer."""
    for row in range(starts.shape[0]):
        kind = kinds[row]
        out[2 * row] = 0
        out[2 * row + 1] = 0
        valid[row] = 0
        if kind == NULL:
            continue
        i: Any = np.int64(starts[row])
        end: Any = np.int64(ends[row])
        if not _is_number(data, i, end, kind):
            bad[row] = 1
            continue
        negative, mantissa, exponent, digits = _number(data, i, end)
        shift = scale + exponent
        if digits > 18 or (mantissa != 0 and digits + shift > 18) or shift < -18:
            bad[row] = 1
            continue
        if mantissa != 0:
            if shift >= 0:
                mantissa *= _POWERS_OF_TEN[shift]
            else:
                power = _POWERS_OF_TEN[-shift]
                if mantissa % power != 0:
                    bad[row] = 1
                    continue
                mantissa //= power
        if precision <= 18 and mantissa >= _POWERS_OF_TEN[precision]:
            bad[row] = 1
            continue
        out[2 * row] = -mantissa if negative else mantissa
        out[2 * row + 1] = -1 if negative and mantissa != 0 else 0
        valid[row] = 1


@loop
def _is_word(data: Vector, i: int, end: int, word: Vector):
    """Whether the span is `word`, in any case. In: `word`: in lower case."""
    if end - i != word.shape[0]:
        return False
    for j in range(word.shape[0]):
        if data[np.uintp(i + j)] | 32 != word[j]:
            return False
    return True


_TRUE_WORD = np.frombuffer(b"true", np.uint8)
_FALSE_WORD = np.frombuffer(b"false", np.uint8)


@loop
def parse_booleans(
    data: Vector, starts: Vector, ends: Vector, kinds: Vector, words: bool, out: Vector, valid: Vector, bad: Vector
):
    """Booleans; with `words`, also the texts true and false."""
    for row in range(starts.shape[0]):
        kind = kinds[row]
        out[row] = 0
        valid[row] = 0
        if kind == NULL:
            continue
        if kind == TRUE or (words and kind == TEXT and _is_word(data, starts[row], ends[row], _TRUE_WORD)):
            out[row] = 1
            valid[row] = 1
        elif kind == FALSE or (words and kind == TEXT and _is_word(data, starts[row], ends[row], _FALSE_WORD)):
            valid[row] = 1
        else:
            bad[row] = 1


@loop
def _hex4(data: Vector, i: int):
    value = 0
    for j in range(i, i + 4):
        c = np.int64(data[np.uintp(j)])
        value = value * 16 + (c - 48 if c <= 57 else (c | 32) - 87)
    return value


@loop
def _unescape(data: Vector, i: int, end: int, out: Vector, at: int):
    """Writes the text of a valid JSON string. Out: the position after it in `out`; -1 for half a surrogate pair."""
    while i < end:
        c = data[np.uintp(i)]
        if c != _BACKSLASH:
            out[at] = c
            at += 1
            i += 1
            continue
        c = data[np.uintp(i + 1)]
        i += 2
        if c != 117:
            if c == 98:
                c = 8
            elif c == 102:
                c = 12
            elif c == 110:
                c = 10
            elif c == 114:
                c = 13
            elif c == 116:
                c = 9
            out[at] = c
            at += 1
            continue
        point = _hex4(data, i)
        i += 4
        if 0xD800 <= point < 0xE000:
            if point >= 0xDC00 or i + 6 > end or data[np.uintp(i)] != _BACKSLASH or data[np.uintp(i + 1)] != 117:
                return -1
            low = _hex4(data, i + 2)
            if low < 0xDC00 or low >= 0xE000:
                return -1
            point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00)
            i += 6
        if point < 0x80:
            out[at] = point
            at += 1
        elif point < 0x800:
            out[at] = 0xC0 | point >> 6
            out[at + 1] = 0x80 | point & 0x3F
            at += 2
        elif point < 0x10000:
            out[at] = 0xE0 | point >> 12
            out[at + 1] = 0x80 | point >> 6 & 0x3F
            out[at + 2] = 0x80 | point & 0x3F
            at += 3
        else:
            out[at] = 0xF0 | point >> 18
            out[at + 1] = 0x80 | point >> 12 & 0x3F
            out[at + 2] = 0x80 | point >> 6 & 0x3F
            out[at + 3] = 0x80 | point & 0x3F
            at += 4
    return at


@loop
def parse_strings(
    data: Vector, starts: Vector, ends: Vector, kinds: Vector, offsets: Vector, out: Vector, valid: Vector, bad: Vector
):
    """Strings; integers and booleans as they are written. They are copied in words, so `out` has room for one more
    word."""
    at: Any = np.int64(0)
    offsets[0] = 0
    for row in range(starts.shape[0]):
        kind = kinds[row]
        i: Any = np.int64(starts[row])
        end: Any = np.int64(ends[row])
        valid[row] = 0
        if kind == ESCAPED_TEXT:
            behind = _unescape(data, i, end, out, at)
            if behind < 0:
                bad[row] = 1
            else:
                at = behind
                valid[row] = 1
        elif kind == TEXT or kind == TRUE or kind == FALSE or kind == INTEGER_NUMBER:
            if kind == INTEGER_NUMBER and end - i == 2 and data[np.uintp(i)] == 45 and data[np.uintp(i + 1)] == 48:
                bad[row] = 1  # -0 is written 0
            else:
                if i + (end - i + 7 & ~7) <= data.shape[0]:
                    for j in range(0, end - i, 8):
                        store_word(out, at + j, load_word(data, i + j))
                    at += end - i
                else:
                    for j in range(i, end):
                        out[at] = data[np.uintp(j)]
                        at += 1
                valid[row] = 1
        elif kind != NULL:
            bad[row] = 1
        offsets[row + 1] = at
    return at


@loop
def parse_base64(
    data: Vector, starts: Vector, ends: Vector, kinds: Vector, offsets: Vector, out: Vector, valid: Vector, bad: Vector
):
    """Bytes from padded standard base64."""
    at = 0
    offsets[0] = 0
    for row in range(starts.shape[0]):
        kind = kinds[row]
        i = starts[row]
        end = ends[row]
        valid[row] = 0
        if kind == TEXT and (end - i) % 4 == 0:
            first = at
            stop = end
            while stop > i and stop > end - 2 and data[np.uintp(stop - 1)] == 61:
                stop -= 1
            bits = 0
            count = 0
            good = True
            for j in range(i, stop):
                six = np.int64(_BASE64[data[np.uintp(j)]])
                good &= six < 64
                bits = bits << 6 | six & 63
                count += 1
                if count == 4:
                    out[at] = bits >> 16
                    out[at + 1] = bits >> 8 & 255
                    out[at + 2] = bits & 255
                    at += 3
                    bits = 0
                    count = 0
            if count == 2:
                good &= bits & 15 == 0
                out[at] = bits >> 4
                at += 1
            elif count == 3:
                good &= bits & 3 == 0
                out[at] = bits >> 10
                out[at + 1] = bits >> 2 & 255
                at += 2
            if good:
                valid[row] = 1
            else:
                bad[row] = 1
                at = first
        elif kind != NULL:
            bad[row] = 1
        offsets[row + 1] = at
    return at
