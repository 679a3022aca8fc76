# pyrefly: ignore-errors[unannotated-return]
"""Finds the end of one JSON value, and whether it is valid: compiled.

Positions are int32 into the batch's data, which Arrow keeps below 2 GiB.
"""

from __future__ import annotations

import numpy as np

from ....sql.compiling.loops import inlined_loop, loop
from .words import BACKSLASHES, HIGH_BITS, ONES, QUOTES, SPACES, Vector, load_word, trailing_zeros

# The kinds of spans of bytes. A missing field is NULL. The span of a string is between the quotes.
NULL, TEXT, ESCAPED_TEXT, INTEGER_NUMBER, REAL_NUMBER, TRUE, FALSE, OBJECT, ARRAY = range(9)

# The status of a row.
OK, REDO, NULL_ROW = range(3)

DEPTH_MAX = 64  # deeper rows are left to the reference

QUOTE, BACKSLASH, COMMA, COLON = 34, 92, 44, 58
OPEN_OBJECT, CLOSE_OBJECT, OPEN_ARRAY, CLOSE_ARRAY = 123, 125, 91, 93

ESCAPES, WIDE = 1, 2  # flags of a string: has a backslash, has a byte outside ASCII

# Classes of bytes inside a string: 0 plain, 1 the quote, 2 backslash, 3 control character, 4 outside ASCII.
_CLASS = np.zeros(256, np.uint8)
_CLASS[:32] = 3
_CLASS[QUOTE] = 1
_CLASS[BACKSLASH] = 2
_CLASS[128:] = 4


@inlined_loop
def skip_space(data: Vector, i: int, end: int):
    while i < end and (
        data[np.uintp(i)] == 32 or data[np.uintp(i)] == 10 or data[np.uintp(i)] == 13 or data[np.uintp(i)] == 9
    ):
        i += 1
    return i


@loop
def _is_hex(c: int):
    return 48 <= c <= 57 or 65 <= c <= 70 or 97 <= c <= 102


@loop
def skip_string(data: Vector, i: int, end: int):
    """In: the position after the opening quote. Out: the position after the closing one (-1: invalid), and flags."""
    flags = 0
    while i < end:
        if i + 8 <= end:  # eight plain bytes at once: the high bit of a byte is set if it is not plain
            word = load_word(data, i)
            quote = word ^ QUOTES
            backslash = word ^ BACKSLASHES
            special = word | (word - SPACES) & ~word
            special |= (quote - ONES) & ~quote | (backslash - ONES) & ~backslash
            special &= HIGH_BITS
            if special == 0:
                i += 8
                continue
            i += np.int64(trailing_zeros(special) >> np.uint64(3))  # pyrefly: ignore[bad-assignment]
        kind = _CLASS[data[np.uintp(i)]]
        if kind == 0:
            i += 1
        elif kind == 1:
            return i + 1, flags
        elif kind == 4:
            flags |= WIDE
            i += 1
        elif kind == 3:
            return -1, flags
        else:
            flags |= ESCAPES
            if i + 1 >= end:
                return -1, flags
            c = data[np.uintp(i + 1)]
            if c == 117:
                if i + 6 > end:
                    return -1, flags
                for k in range(i + 2, i + 6):
                    if not _is_hex(data[np.uintp(k)]):
                        return -1, flags
                i += 6
            elif c == 34 or c == 92 or c == 47 or c == 98 or c == 102 or c == 110 or c == 114 or c == 116:
                i += 2
            else:
                return -1, flags
    return -1, flags


@loop
def skip_number(data: Vector, i: int, end: int):
    """In: the position of the first byte. Out: the position after the number (-1: there is none), and its kind."""
    kind = INTEGER_NUMBER
    if i < end and data[np.uintp(i)] == 45:
        i += 1
    if i >= end:
        return -1, kind
    if data[np.uintp(i)] == 48:
        i += 1
    elif 49 <= data[np.uintp(i)] <= 57:
        while i < end and 48 <= data[np.uintp(i)] <= 57:
            i += 1
    else:
        return -1, kind
    if i < end and data[np.uintp(i)] == 46:
        kind = REAL_NUMBER
        i += 1
        first = i
        while i < end and 48 <= data[np.uintp(i)] <= 57:
            i += 1
        if i == first:
            return -1, kind
    if i < end and (data[np.uintp(i)] == 101 or data[np.uintp(i)] == 69):
        kind = REAL_NUMBER
        i += 1
        if i < end and (data[np.uintp(i)] == 43 or data[np.uintp(i)] == 45):
            i += 1
        first = i
        while i < end and 48 <= data[np.uintp(i)] <= 57:
            i += 1
        if i == first:
            return -1, kind
    return i, kind


@loop
def skip_scalar(data: Vector, i: int, end: int):
    """A string, number or word. Out: start and end of its span, its kind, the position after it (-1: invalid), wide."""
    c = data[np.uintp(i)]
    if c == QUOTE:
        behind, flags = skip_string(data, i + 1, end)
        kind = ESCAPED_TEXT if flags & ESCAPES else TEXT
        return i + 1, behind - 1, kind, behind, (flags & WIDE) != 0
    if c == 45 or 48 <= c <= 57:
        behind, kind = skip_number(data, i, end)
        return i, behind, kind, behind, False
    if c == 116:
        if (
            i + 4 <= end
            and data[np.uintp(i + 1)] == 114
            and data[np.uintp(i + 2)] == 117
            and data[np.uintp(i + 3)] == 101
        ):
            return i, i + 4, TRUE, i + 4, False
    elif c == 102:
        if (
            i + 5 <= end
            and data[np.uintp(i + 1)] == 97
            and data[np.uintp(i + 2)] == 108
            and data[np.uintp(i + 3)] == 115
            and data[np.uintp(i + 4)] == 101
        ):
            return i, i + 5, FALSE, i + 5, False
    elif (
        c == 110
        and i + 4 <= end
        and data[np.uintp(i + 1)] == 117
        and data[np.uintp(i + 2)] == 108
        and data[np.uintp(i + 3)] == 108
    ):
        return i, i + 4, NULL, i + 4, False
    return i, i, NULL, -1, False


@loop
def skip_key(data: Vector, i: int, end: int):
    """In: the position of a key's opening quote. Out: the position of its value (-1: invalid), and whether the key is
    wide."""
    if i >= end or data[np.uintp(i)] != QUOTE:
        return -1, False
    i, flags = skip_string(data, i + 1, end)
    if i < 0:
        return -1, False
    i = skip_space(data, i, end)
    if i >= end or data[np.uintp(i)] != COLON:
        return -1, False
    return skip_space(data, i + 1, end), (flags & WIDE) != 0


@loop
def skip_container(data: Vector, i: int, end: int, stack: Vector):
    """In: the position of the opening bracket. Out: the position after the closing one (-1: invalid, too deep),
    wide."""
    depth = 0
    wide = False
    while True:
        if i >= end:
            return -1, wide
        c = data[np.uintp(i)]
        if c == OPEN_OBJECT or c == OPEN_ARRAY:
            if depth >= DEPTH_MAX:
                return -1, wide
            stack[depth] = c
            depth += 1
            i = skip_space(data, i + 1, end)
            if i >= end:
                return -1, wide
            if data[np.uintp(i)] == c + 2:  # the closing bracket: both pairs are two apart in ASCII
                depth -= 1
                i += 1
            else:
                if c == OPEN_OBJECT:
                    i, key_wide = skip_key(data, i, end)
                    wide |= key_wide
                    if i < 0:
                        return -1, wide
                continue
        else:
            _, _, _, i, value_wide = skip_scalar(data, i, end)
            wide |= value_wide
            if i < 0:
                return -1, wide
        while True:  # after a value
            if depth == 0:
                return i, wide
            i = skip_space(data, i, end)
            if i >= end:
                return -1, wide
            c = data[np.uintp(i)]
            if c == COMMA:
                i = skip_space(data, i + 1, end)
                if stack[depth - 1] == OPEN_OBJECT:
                    i, key_wide = skip_key(data, i, end)
                    wide |= key_wide
                    if i < 0:
                        return -1, wide
                break
            if c != stack[depth - 1] + 2:
                return -1, wide
            depth -= 1
            i += 1


@loop
def scan_one(data: Vector, i: int, end: int, stack: Vector):
    """The value that begins at i. Out: start and end of its span, kind, the position after it (-1: invalid), wide."""
    if i >= end:
        return i, i, NULL, -1, False
    c = data[np.uintp(i)]
    if c == OPEN_OBJECT or c == OPEN_ARRAY:
        behind, wide = skip_container(data, i, end, stack)
        return i, behind, (OBJECT if c == OPEN_OBJECT else ARRAY), behind, wide
    return skip_scalar(data, i, end)
