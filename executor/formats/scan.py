"""Compiled scanners: where the fields of JSON and of delimited rows are, in one pass over the bytes of a batch.

A scanner never decides a hard case. It marks such a row `REDO`, and the reference decoder (`json_reference.py`,
`delimited.py`) reads that row again; so every row that a scanner accepts must mean the same to the reference.
Positions are int32 into the batch's data, which Arrow keeps below 2 GiB.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from .words import Vector, load_word, trailing_zeros

# What a span of bytes is. A missing field is a null. For a string, the span is between the quotes.
NULL, TEXT, ESCAPED_TEXT, INTEGER_NUMBER, REAL_NUMBER, TRUE, FALSE, OBJECT, ARRAY = range(9)

# What became of a row.
OK, REDO, NULL_ROW = range(3)

_DEPTH_MAX = 64  # deeper rows are left to the reference
_CACHED_KEYS = 64

_QUOTE, _BACKSLASH, _COMMA, _COLON = 34, 92, 44, 58
_OPEN_OBJECT, _CLOSE_OBJECT, _OPEN_ARRAY, _CLOSE_ARRAY = 123, 125, 91, 93

_ESCAPES, _WIDE = 1, 2  # flags of a string: has a backslash, has a byte outside ASCII

# Classes of bytes inside a string: 0 plain, 1 the quote, 2 backslash, 3 control character, 4 outside ASCII.
_CLASS = np.zeros(256, np.uint8)
_CLASS[:32] = 3
_CLASS[_QUOTE] = 1
_CLASS[_BACKSLASH] = 2
_CLASS[128:] = 4

_ONES = np.uint64(0x0101010101010101)
_SPACES = np.uint64(0x2020202020202020)
_QUOTES = np.uint64(0x2222222222222222)
_BACKSLASHES = np.uint64(0x5C5C5C5C5C5C5C5C)
_HIGH_BITS = np.uint64(0x8080808080808080)

_UPPER = np.arange(256, dtype=np.uint8)
_UPPER[97:123] -= 32


@njit(cache=True, nogil=True, inline="always")
def _skip_space(data: Vector, i: int, end: int):
    while i < end and (
        data[np.uintp(i)] == 32 or data[np.uintp(i)] == 10 or data[np.uintp(i)] == 13 or data[np.uintp(i)] == 9
    ):
        i += 1
    return i


@njit(cache=True, nogil=True)
def _is_hex(c: int):
    return 48 <= c <= 57 or 65 <= c <= 70 or 97 <= c <= 102


@njit(cache=True, nogil=True)
def _skip_string(data: Vector, i: int, end: int):
    """From behind the opening quote: the position behind the closing one (-1: invalid), and flags."""
    flags = 0
    while i < end:
        if i + 8 <= end:  # eight plain bytes at once: a byte's high bit is set where it is not plain
            word = load_word(data, i)
            quote = word ^ _QUOTES
            backslash = word ^ _BACKSLASHES
            special = word | (word - _SPACES) & ~word
            special |= (quote - _ONES) & ~quote | (backslash - _ONES) & ~backslash
            special &= _HIGH_BITS
            if special == 0:
                i += 8
                continue
            i += np.int64(trailing_zeros(special) >> np.uint64(3))  # pyright: ignore[reportAssignmentType]
        kind = _CLASS[data[np.uintp(i)]]
        if kind == 0:
            i += 1
        elif kind == 1:
            return i + 1, flags
        elif kind == 4:
            flags |= _WIDE
            i += 1
        elif kind == 3:
            return -1, flags
        else:
            flags |= _ESCAPES
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


@njit(cache=True, nogil=True)
def skip_number(data: Vector, i: int, end: int):
    """From its first byte: the position behind the number (-1: none is here), and its kind."""
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


@njit(cache=True, nogil=True)
def _skip_scalar(data: Vector, i: int, end: int):
    """A string, number or word: its start and end as a span, its kind, the position behind it (-1: invalid), wide."""
    c = data[np.uintp(i)]
    if c == _QUOTE:
        behind, flags = _skip_string(data, i + 1, end)
        kind = ESCAPED_TEXT if flags & _ESCAPES else TEXT
        return i + 1, behind - 1, kind, behind, (flags & _WIDE) != 0
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


@njit(cache=True, nogil=True)
def _skip_key(data: Vector, i: int, end: int):
    """From a key's opening quote to the value behind its colon (-1: invalid), and whether the key is wide."""
    if i >= end or data[np.uintp(i)] != _QUOTE:
        return -1, False
    i, flags = _skip_string(data, i + 1, end)
    if i < 0:
        return -1, False
    i = _skip_space(data, i, end)
    if i >= end or data[np.uintp(i)] != _COLON:
        return -1, False
    return _skip_space(data, i + 1, end), (flags & _WIDE) != 0


@njit(cache=True, nogil=True)
def _skip_container(data: Vector, i: int, end: int, stack: Vector):
    """From the opening bracket: the position behind the closing one (-1: invalid or too deep), wide."""
    depth = 0
    wide = False
    while True:
        if i >= end:
            return -1, wide
        c = data[np.uintp(i)]
        if c == _OPEN_OBJECT or c == _OPEN_ARRAY:
            if depth >= _DEPTH_MAX:
                return -1, wide
            stack[depth] = c
            depth += 1
            i = _skip_space(data, i + 1, end)
            if i >= end:
                return -1, wide
            if data[np.uintp(i)] == c + 2:  # the closing bracket: both pairs are two apart in ASCII
                depth -= 1
                i += 1
            else:
                if c == _OPEN_OBJECT:
                    i, key_wide = _skip_key(data, i, end)
                    wide |= key_wide
                    if i < 0:
                        return -1, wide
                continue
        else:
            _, _, _, i, value_wide = _skip_scalar(data, i, end)
            wide |= value_wide
            if i < 0:
                return -1, wide
        while True:  # behind a value
            if depth == 0:
                return i, wide
            i = _skip_space(data, i, end)
            if i >= end:
                return -1, wide
            c = data[np.uintp(i)]
            if c == _COMMA:
                i = _skip_space(data, i + 1, end)
                if stack[depth - 1] == _OPEN_OBJECT:
                    i, key_wide = _skip_key(data, i, end)
                    wide |= key_wide
                    if i < 0:
                        return -1, wide
                break
            if c != stack[depth - 1] + 2:
                return -1, wide
            depth -= 1
            i += 1


@njit(cache=True, nogil=True)
def _scan_one(data: Vector, i: int, end: int, stack: Vector):
    """The value that begins at i: span start, span end, kind, the position behind it (-1: invalid), wide."""
    if i >= end:
        return i, i, NULL, -1, False
    c = data[np.uintp(i)]
    if c == _OPEN_OBJECT or c == _OPEN_ARRAY:
        behind, wide = _skip_container(data, i, end, stack)
        return i, behind, (OBJECT if c == _OPEN_OBJECT else ARRAY), behind, wide
    return _skip_scalar(data, i, end)


@njit(cache=True, nogil=True)
def scan_values(
    data: Vector,
    starts: Vector,
    ends: Vector,
    out_start: Vector,
    out_end: Vector,
    out_kind: Vector,
    status: Vector,
    wide: Vector,
):
    """One JSON value per row. Rows whose status is not OK on entry are left alone."""
    stack = np.empty(_DEPTH_MAX, np.uint8)
    for row in range(starts.shape[0]):
        out_kind[row] = NULL
        out_start[row] = out_end[row] = 0
        if status[row] != OK:
            continue
        end = ends[row]
        start, stop, kind, i, row_wide = _scan_one(data, _skip_space(data, starts[row], end), end, stack)
        if i < 0 or _skip_space(data, i, end) != end:
            status[row] = REDO
            continue
        wide[row] = row_wide
        out_start[row] = start
        out_end[row] = stop
        out_kind[row] = kind


@njit(cache=True, nogil=True)
def _equal(data: Vector, i: int, names: Vector, k: int, length: int):
    j = 0
    while j + 8 <= length:
        if load_word(data, i + j) != load_word(names, k + j):
            return False
        j += 8
    while j < length:
        if data[np.uintp(i + j)] != names[np.uintp(k + j)]:
            return False
        j += 1
    return True


@njit(cache=True, nogil=True)
def _equal_without_case(data: Vector, i: int, names: Vector, k: int, length: int):
    for j in range(length):
        if _UPPER[data[np.uintp(i + j)]] != _UPPER[names[np.uintp(k + j)]]:
            return False
    return True


@njit(cache=True, nogil=True)
def scan_objects(
    data: Vector,
    starts: Vector,
    ends: Vector,
    names: Vector,
    name_ends: Vector,
    unique: bool,
    names_wide: bool,
    out_start: Vector,
    out_end: Vector,
    out_kind: Vector,
    status: Vector,
    wide: Vector,
):
    """The spans of the named fields of one JSON object per row; a JSON null becomes a NULL_ROW.

    A key in a field's exact spelling beats one in another case; among equals the last one counts.
    `unique`: no two names are equal without case. `names_wide`: a name has letters outside ASCII, whose case is not
    known here, so a row with such a key is left to the reference unless it is spelled exactly.
    """
    field_count = name_ends.shape[0] - 1
    stack = np.empty(_DEPTH_MAX, np.uint8)
    exact_seen = np.empty(field_count, np.uint8)
    # Rows tend to have the same keys in the same order: what the key at each position meant in the row before.
    cached_start = np.zeros(_CACHED_KEYS, np.int64)
    cached_length = np.full(_CACHED_KEYS, -1, np.int64)
    cached_field = np.zeros(_CACHED_KEYS, np.int64)
    cached_exact = np.zeros(_CACHED_KEYS, np.uint8)
    for row in range(starts.shape[0]):
        for field in range(field_count):
            out_kind[field, row] = NULL
            out_start[field, row] = out_end[field, row] = 0
            exact_seen[field] = 0
        if status[row] != OK:
            continue
        end = ends[row]
        i = _skip_space(data, starts[row], end)
        if i >= end or data[np.uintp(i)] != _OPEN_OBJECT:
            _, _, kind, i, _ = _scan_one(data, i, end, stack)
            null = kind == NULL and i >= 0 and _skip_space(data, i, end) == end
            status[row] = NULL_ROW if null else REDO
            continue
        status[row] = REDO  # until the object turns out to be whole
        i = _skip_space(data, i + 1, end)
        row_wide = False
        position = 0
        whole = False
        if i < end and data[np.uintp(i)] == _CLOSE_OBJECT:
            i += 1
            whole = True
        while not whole:
            if i >= end or data[np.uintp(i)] != _QUOTE:
                break
            key = i + 1
            length = cached_length[position] if position < _CACHED_KEYS else -1
            known = (
                length >= 0
                and key + length < end
                and data[np.uintp(key + length)] == _QUOTE
                and _equal(data, key, data, cached_start[position], length)
            )
            flags = 0
            if known:
                i = key + length + 1
            else:
                i, flags = _skip_string(data, key, end)
                if i < 0 or flags & _ESCAPES:
                    break
                length = i - 1 - key
                row_wide |= (flags & _WIDE) != 0
            i = _skip_space(data, i, end)
            if i >= end or data[np.uintp(i)] != _COLON:
                break
            i = _skip_space(data, i + 1, end)
            start, stop, kind, i, value_wide = _scan_one(data, i, end, stack)
            if i < 0:
                break
            row_wide |= value_wide

            if known:
                field = cached_field[position]
                if field >= 0 and (cached_exact[position] or not exact_seen[field]):
                    exact_seen[field] = cached_exact[position]
                    out_start[field, row] = start
                    out_end[field, row] = stop
                    out_kind[field, row] = kind
            else:
                found = -1
                found_exact = False
                for field in range(field_count):
                    if name_ends[field + 1] - name_ends[field] != length:
                        continue
                    exact = _equal(data, key, names, name_ends[field], length)
                    if exact or _equal_without_case(data, key, names, name_ends[field], length):
                        found = field
                        found_exact |= exact
                        if exact or not exact_seen[field]:
                            exact_seen[field] = exact
                            out_start[field, row] = start
                            out_end[field, row] = stop
                            out_kind[field, row] = kind
                if names_wide and flags & _WIDE and not found_exact:
                    break
                if unique and position < _CACHED_KEYS and not flags & _WIDE:
                    cached_start[position] = key
                    cached_length[position] = length
                    cached_field[position] = found
                    cached_exact[position] = found_exact
            position += 1

            i = _skip_space(data, i, end)
            if i >= end:
                break
            if data[np.uintp(i)] == _COMMA:
                i = _skip_space(data, i + 1, end)
            elif data[np.uintp(i)] == _CLOSE_OBJECT:
                i += 1
                whole = True
            else:
                break
        if whole and _skip_space(data, i, end) == end:
            status[row] = OK
            wide[row] = row_wide


@njit(cache=True, nogil=True)
def count_elements(data: Vector, starts: Vector, ends: Vector, kinds: Vector, container: int, counts: Vector):
    """How many members each ARRAY or OBJECT (`container`) has; -1 where the span is neither that nor null."""
    stack = np.empty(_DEPTH_MAX, np.uint8)
    total = 0
    for row in range(starts.shape[0]):
        counts[row] = 0
        if kinds[row] == NULL:
            continue
        if kinds[row] != container:
            counts[row] = -1
            continue
        end = ends[row]
        i = _skip_space(data, starts[row] + 1, end)
        if i >= end - 1:
            continue
        count = 0
        while i < end:
            if container == OBJECT:
                i, _ = _skip_key(data, i, end)
                if i < 0:
                    break
            _, _, _, i, _ = _scan_one(data, i, end, stack)
            if i < 0:
                break
            count += 1
            i = _skip_space(data, i, end)
            if data[np.uintp(i)] != _COMMA:
                break
            i = _skip_space(data, i + 1, end)
        counts[row] = count if i >= 0 else -1
        total += count
    return total


@njit(cache=True, nogil=True)
def split_elements(
    data: Vector,
    starts: Vector,
    ends: Vector,
    kinds: Vector,
    container: int,
    counts: Vector,
    offsets: Vector,
    key_start: Vector,
    key_end: Vector,
    key_kind: Vector,
    out_start: Vector,
    out_end: Vector,
    out_kind: Vector,
):
    """The spans of the members of containers that `count_elements` counted (and of their keys, for OBJECT).

    A key that is there twice makes its container's count -1: which one counts is left to the reference.
    """
    stack = np.empty(_DEPTH_MAX, np.uint8)
    for row in range(starts.shape[0]):
        at = offsets[row]
        first = at
        if counts[row] <= 0:
            continue
        end = ends[row]
        i = _skip_space(data, starts[row] + 1, end)
        for _ in range(counts[row]):
            if container == OBJECT:
                behind, flags = _skip_string(data, i + 1, end)
                key_start[at] = i + 1
                key_end[at] = behind - 1
                key_kind[at] = ESCAPED_TEXT if flags & _ESCAPES else TEXT
                if flags & _ESCAPES or at - first > 64:
                    counts[row] = -1
                    for other in range(at, offsets[row + 1]):
                        key_start[other] = key_end[other] = out_start[other] = out_end[other] = 0
                        key_kind[other] = TEXT
                        out_kind[other] = NULL
                    break
                length = behind - 1 - (i + 1)
                for other in range(first, at):
                    if key_end[other] - key_start[other] == length and _equal(
                        data, i + 1, data, key_start[other], length
                    ):
                        counts[row] = -1
                i, _ = _skip_key(data, i, end)
            out_start[at], out_end[at], out_kind[at], i, _ = _scan_one(data, i, end, stack)
            at += 1
            i = _skip_space(data, i, end)
            if data[np.uintp(i)] == _COMMA:
                i = _skip_space(data, i + 1, end)


@njit(cache=True, nogil=True)
def split_delimited(
    data: Vector,
    starts: Vector,
    ends: Vector,
    delimiter: int,
    out_start: Vector,
    out_end: Vector,
    out_kind: Vector,
    status: Vector,
    wide: Vector,
):
    """The fields of one delimited record per row; an empty field is NULL. Rows with a quote inside a quoted field,
    with line ends or with another number of fields are left to the reference."""
    field_count = out_start.shape[0]
    for row in range(starts.shape[0]):
        for field in range(field_count):
            out_kind[field, row] = NULL
            out_start[field, row] = out_end[field, row] = 0
        if status[row] != OK:
            continue
        i = starts[row]
        end = ends[row]
        field = 0
        good = True
        while True:
            if field >= field_count:
                good = False
                break
            quoted = i < end and data[np.uintp(i)] == _QUOTE
            if quoted:
                i += 1
            first = i
            while i < end:
                c = data[np.uintp(i)]
                if c == 10 or c == 13:
                    good = False
                if c >= 128:
                    wide[row] = 1
                if c == (_QUOTE if quoted else delimiter):
                    break
                i += 1
            if i > first:
                out_start[field, row] = first
                out_end[field, row] = i
                out_kind[field, row] = TEXT
            field += 1
            if quoted:
                if i >= end:
                    good = False
                    break
                i += 1
                if i < end and data[np.uintp(i)] != delimiter:
                    good = False
                    break
            if i >= end:
                break
            i += 1
        if not good or field != field_count:
            status[row] = REDO
