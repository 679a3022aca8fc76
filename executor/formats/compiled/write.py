# pyrefly: ignore-errors[unannotated-return]
"""Quotes, reformats and joins columns of text (offsets and bytes) into records, with compiled code.

Offsets in and out are int64. A row without a value has length 0 in the output.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....sql.compiling.loops import loop
from .words import BACKSLASHES, HIGH_BITS, ONES, QUOTES, SPACES, Vector, load_word, store_word

WORD = 8  # bytes
_BACKSLASH = 92

_BASE64 = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)

# The byte that follows the backslash in a JSON string: 0 for no escape, 117 (u) for the long form.
_JSON_ESCAPE = np.zeros(256, np.uint8)
_JSON_ESCAPE[:32] = 117
for _byte, _letter in ((8, "b"), (9, "t"), (10, "n"), (12, "f"), (13, "r"), (34, '"'), (92, "\\")):
    _JSON_ESCAPE[_byte] = ord(_letter)


_NAN = np.frombuffer(b"NaN", np.uint8)
_INFINITY = np.frombuffer(b"Infinity", np.uint8)
_DOUBLE_LENGTH_MAX = 32
_PLAIN_DIGITS_MAX = 48  # of a decimal: sign, point, leading zero, 38 digits


@loop
def _escaped(word: np.uint64):
    """Sets the high bit of the first of eight bytes that JSON escapes. The bits of bytes after it may be set, too."""
    quote = word ^ QUOTES
    backslash = word ^ BACKSLASHES
    return (word - SPACES & ~word | quote - ONES & ~quote | backslash - ONES & ~backslash) & HIGH_BITS


@loop
def _put_in_json(c: int, out: Vector, at: int):
    escape = _JSON_ESCAPE[c]
    if escape == 0:
        out[at] = c
        return at + 1
    out[at] = _BACKSLASH
    out[at + 1] = escape
    if escape != 117:
        return at + 2
    out[at + 2] = out[at + 3] = 48
    out[at + 4] = _HEX[c >> 4]
    out[at + 5] = _HEX[c & 15]
    return at + 6


@loop
def quote_json(offsets: Vector, data: Vector, valid: Vector):
    """Each text as a JSON string."""
    count = valid.shape[0]
    out_offsets = np.zeros(count + 1, np.int64)
    escapes = 0
    for i in range(offsets[0], offsets[count]):
        c = data[np.uintp(i)]
        escapes += (c == 34) | (c == 92) | (c < 32)
    out = np.empty(offsets[count] - offsets[0] + 5 * escapes + 2 * count + WORD, np.uint8)
    at = 0
    for row in range(count):
        if valid[row]:
            out[at] = 34
            at += 1
            i = offsets[row]
            end = offsets[row + 1]
            while i < end:
                stop = min(i + WORD, end)
                word = load_word(data, i) if i + WORD <= data.shape[0] else QUOTES
                if _escaped(word) & (HIGH_BITS >> np.uint64(8 * (i + WORD - stop))) == np.uint64(0):
                    store_word(out, at, word)
                    at += stop - i
                else:
                    for j in range(i, stop):
                        at = _put_in_json(data[np.uintp(j)], out, at)
                i = stop
            out[at] = 34
            at += 1
        out_offsets[row + 1] = at
    return out_offsets, out[:at]


@loop
def write_base64(offsets: Vector, data: Vector, valid: Vector, quoted: bool):
    """Each byte string as base64, in quotes if `quoted`."""
    count = valid.shape[0]
    out_offsets = np.zeros(count + 1, np.int64)
    total = 0
    for row in range(count):
        if valid[row]:
            total += (offsets[row + 1] - offsets[row] + 2) // 3 * 4 + (2 if quoted else 0)
        out_offsets[row + 1] = total
    out = np.empty(total, np.uint8)
    at = 0
    for row in range(count):
        if not valid[row]:
            continue
        if quoted:
            out[at] = 34
            at += 1
        end = offsets[row + 1]
        for i in range(offsets[row], end, 3):
            bits = np.int64(data[i]) << 16
            if i + 1 < end:
                bits |= np.int64(data[i + 1]) << 8
            if i + 2 < end:
                bits |= np.int64(data[i + 2])
            out[at] = _BASE64[bits >> 18]
            out[at + 1] = _BASE64[bits >> 12 & 63]
            out[at + 2] = _BASE64[bits >> 6 & 63] if i + 1 < end else 61
            out[at + 3] = _BASE64[bits & 63] if i + 2 < end else 61
            at += 4
        if quoted:
            out[at] = 34
            at += 1
    return out_offsets, out


@loop
def _copy(text: Vector, out: Vector, at: int):
    for j in range(text.shape[0]):
        out[at + j] = text[j]
    return at + text.shape[0]


@loop
def _digits_of(data: Vector, i: int, end: int, digits: Vector):
    """Writes the significant digits of a number's text. Out: how many there are, and the power of ten of the first."""
    count = 0
    power = 0  # number of digits before the point; negative: zeros after the point before the first digit
    point = False
    leading = True
    exponent = 0
    while i < end:
        c = data[np.uintp(i)]
        if c == 46:
            point = True
        elif c == 101 or c == 69:
            i += 1
            negative = data[np.uintp(i)] == 45
            if negative or data[np.uintp(i)] == 43:
                i += 1
            while i < end:
                exponent = exponent * 10 + (np.int64(data[np.uintp(i)]) - 48)
                i += 1
            if negative:
                exponent = -exponent
            break
        else:
            leading = leading and c == 48
            if not leading:
                digits[count] = c
                count += 1
                if not point:
                    power += 1
            elif point:
                power -= 1
        i += 1
    return count, power - 1 + exponent


@loop
def write_doubles(offsets: Vector, data: Vector, valid: Vector, quoted: bool):
    """Shortest texts of doubles in Java's notation: 1.0, 1.0E10, NaN. NaN and Infinity are in quotes if `quoted`."""
    count = valid.shape[0]
    out_offsets = np.zeros(count + 1, np.int64)
    out = np.empty(count * _DOUBLE_LENGTH_MAX, np.uint8)
    digits = np.empty(400, np.uint8)
    at = 0
    for row in range(count):
        if valid[row]:
            i = offsets[row]
            end = offsets[row + 1]
            negative = data[i] == 45
            if negative:
                i += 1
            strange = data[i] > 57
            if strange and quoted:
                out[at] = 34
                at += 1
            if negative:
                out[at] = 45
                at += 1
            if strange:
                at = _copy(_NAN if data[i] == 110 else _INFINITY, out, at)
                if quoted:
                    out[at] = 34
                    at += 1
            else:
                length, power = _digits_of(data, i, end, digits)
                while length > 1 and digits[length - 1] == 48:
                    length -= 1
                if length == 0:
                    digits[0] = 48
                    length = 1
                    power = 0
                scientific = power < -3 or power >= 7
                whole = 1 if scientific else power + 1  # digits before the point
                if whole <= 0:
                    out[at] = 48
                    out[at + 1] = 46
                    at += 2
                    for _ in range(-whole):
                        out[at] = 48
                        at += 1
                    for j in range(length):
                        out[at] = digits[j]
                        at += 1
                else:
                    for j in range(max(whole, length)):
                        if j == whole:
                            out[at] = 46
                            at += 1
                        out[at] = digits[j] if j < length else 48
                        at += 1
                    if length <= whole:
                        out[at] = 46
                        out[at + 1] = 48
                        at += 2
                if scientific:
                    out[at] = 69
                    at += 1
                    if power < 0:
                        out[at] = 45
                        at += 1
                        power = -power
                    if power >= 100:
                        out[at] = 48 + power // 100
                        at += 1
                    if power >= 10:
                        out[at] = 48 + power // 10 % 10
                        at += 1
                    out[at] = 48 + power % 10
                    at += 1
        out_offsets[row + 1] = at
    return out_offsets, out[:at].copy()


@loop
def write_decimals(offsets: Vector, data: Vector, valid: Vector, scale: int):
    """Texts of decimals without an exponent, with `scale` digits after the point."""
    count = valid.shape[0]
    out_offsets = np.zeros(count + 1, np.int64)
    out = np.empty(count * _PLAIN_DIGITS_MAX, np.uint8)
    digits = np.empty(400, np.uint8)
    at = 0
    for row in range(count):
        if valid[row]:
            i = offsets[row]
            negative = data[i] == 45
            if negative:
                out[at] = 45
                at += 1
                i += 1
            length, power = _digits_of(data, i, offsets[row + 1], digits)
            if length == 0:
                power = -1
            for place in range(max(power, 0), -scale - 1, -1):
                if place == -1:
                    out[at] = 46
                    at += 1
                index = power - place
                out[at] = digits[index] if 0 <= index < length else 48
                at += 1
        out_offsets[row + 1] = at
    return out_offsets, out[:at].copy()


@loop
def _is_letter_or_digit(c: Any):
    return 48 <= c <= 57 or 65 <= c <= 90 or 97 <= c <= 122


@loop
def quote_delimited(offsets: Vector, data: Vector, valid: Vector, delimiter: Vector, first: bool):
    """Each text, with quotes if Commons CSV would put them; see `delimited.quote_field`. In: `delimiter`: as UTF-8."""
    count = valid.shape[0]
    out_offsets = np.zeros(count + 1, np.int64)
    out = np.empty(2 * data.shape[0] + 2 * count, np.uint8)
    at = 0
    for row in range(count):
        if valid[row]:
            start = offsets[row]
            end = offsets[row + 1]
            if start == end:
                quoted = first
            else:
                head = data[start]
                quoted = (first and not _is_letter_or_digit(head)) or head <= 35 or data[end - 1] <= 32
                for i in range(start, end):
                    c = data[np.uintp(i)]
                    if c == 34 or c == 10 or c == 13:
                        quoted = True
                    elif c == delimiter[0] and i + delimiter.shape[0] <= end:
                        same = True
                        for j in range(1, delimiter.shape[0]):
                            same &= data[i + j] == delimiter[j]
                        quoted |= same
            if quoted:
                out[at] = 34
                at += 1
            for i in range(start, end):
                c = data[np.uintp(i)]
                out[at] = c
                at += 1
                if c == 34:
                    out[at] = 34
                    at += 1
            if quoted:
                out[at] = 34
                at += 1
        out_offsets[row + 1] = at
    return out_offsets, out[:at].copy()


@loop
def join_fields(
    between: Vector, between_ends: Vector, data: Vector, offsets: Vector, valid: Vector, null: Vector, present: Vector
):
    """One record per row: between[0] field[0] between[1] … field[n-1] between[n]; a field without a value is `null`.

    `offsets` is [field, row] into `data`. Rows that are not `present` are empty. Bytes are copied eight at a time, so
    `between`, `data` and `null` must have `WORD` more bytes after their content, and the result has them, too.
    """
    fields = valid.shape[0]
    null_length = null.shape[0] - WORD
    count = present.shape[0]
    out_offsets = np.zeros(count + 1, np.int64)
    total = 0
    for row in range(count):
        if present[row]:
            total += between_ends[fields + 1]
            for field in range(fields):
                if valid[field, row]:
                    total += offsets[field, row + 1] - offsets[field, row]
                else:
                    total += null_length
        out_offsets[row + 1] = total
    out = np.empty(total + WORD, np.uint8)
    at = 0
    for row in range(count):
        if not present[row]:
            continue
        for field in range(fields + 1):
            start = between_ends[field]
            length = between_ends[field + 1] - start
            for j in range(0, length, WORD):
                store_word(out, at + j, load_word(between, start + j))
            at += length
            if field < fields:
                if valid[field, row]:
                    start = offsets[field, row]
                    length = offsets[field, row + 1] - start
                    for j in range(0, length, WORD):
                        store_word(out, at + j, load_word(data, start + j))
                else:
                    length = null_length
                    for j in range(0, length, WORD):
                        store_word(out, at + j, load_word(null, j))
                at += length
    return out_offsets, out


@loop
def join_members(
    list_offsets: Vector,
    list_valid: Vector,
    offsets: Vector,
    data: Vector,
    valid: Vector,
    opening: int,
    closing: int,
    null: Vector,
):
    """One container per row: its members between brackets, with commas."""
    count = list_valid.shape[0]
    out_offsets = np.zeros(count + 1, np.int64)
    total = 0
    for row in range(count):
        if list_valid[row]:
            total += 2 + max(list_offsets[row + 1] - list_offsets[row] - 1, 0)
            for i in range(list_offsets[row], list_offsets[row + 1]):
                total += offsets[i + 1] - offsets[i] if valid[i] else null.shape[0]
        out_offsets[row + 1] = total
    out = np.empty(total, np.uint8)
    at = 0
    for row in range(count):
        if not list_valid[row]:
            continue
        out[at] = opening
        at += 1
        for i in range(list_offsets[row], list_offsets[row + 1]):
            if i > list_offsets[row]:
                out[at] = 44
                at += 1
            if valid[i]:
                for j in range(offsets[i], offsets[i + 1]):
                    out[at] = data[np.uintp(j)]
                    at += 1
            else:
                at = _copy(null, out, at)
        out[at] = closing
        at += 1
    return out_offsets, out


@loop
def append_to_each(offsets: Vector, data: Vector, valid: Vector, tails: Vector):
    """Each text with its row of `tails` appended; nothing if it is not valid."""
    count = valid.shape[0]
    width = tails.shape[1]
    out_offsets = np.zeros(count + 1, np.int32)
    total = 0
    for row in range(count):
        if valid[row]:
            total += offsets[row + 1] - offsets[row] + width
        out_offsets[row + 1] = total
    out = np.empty(total, np.uint8)
    at = 0
    for row in range(count):
        if not valid[row]:
            continue
        for j in range(offsets[row], offsets[row + 1]):
            out[at] = data[np.uintp(j)]
            at += 1
        for j in range(width):
            out[at] = tails[row, j]
            at += 1
    return out_offsets, out
