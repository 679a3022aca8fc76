# pyrefly: ignore-errors[unannotated-return]
"""Compiled scanners: they find the fields of JSON and delimited rows, in one pass over the bytes of a batch.

A scanner never decides a hard case. It marks such a row `REDO`, and the reference decoder (`json_text.py`,
`delimited.py`) decodes that row again. Therefore a scanner may accept a row only if the reference gives the same
result. Positions are int32 into the batch's data, which Arrow keeps below 2 GiB. Loops that call others widen them
first: otherwise numba compiles each of these several times.

How `scan_objects` reads a row, fastest first:

| path      | when                                                 | remaining work                                  |
| --------- | ---------------------------------------------------- | ----------------------------------------------- |
| alike     | the bytes between values equal the previous row's    | read the values (`alike.py`)                    |
| known key | the key at this position is that of an earlier row   | compare it, eight bytes at a time               |
| any key   | otherwise                                            | compare it with each name, exactly and any case |

A row's status is REDO until its object is complete, so each `break` leaves the row to the reference, which overwrites
whatever was written for it. A row becomes the pattern for later rows only if the bytes of each key identify its field:
no two names are equal ignoring case, and no key has letters outside ASCII. While a row is read key by key there is no
pattern, because the recorded gaps are then partly those of this row. A pattern knows the field of each position; if a
key is repeated, `_only_at` assigns the field to the occurrence that counts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....sql.compiling.loops import loop
from .alike import read_alike
from .json_values import (
    ARRAY,
    CLOSE_OBJECT,
    COLON,
    COMMA,
    DEPTH_MAX,
    ESCAPED_TEXT,
    ESCAPES,
    FALSE,
    INTEGER_NUMBER,
    NULL,
    NULL_ROW,
    OBJECT,
    OK,
    OPEN_OBJECT,
    QUOTE,
    REAL_NUMBER,
    REDO,
    TEXT,
    TRUE,
    WIDE,
    scan_one,
    skip_key,
    skip_number,
    skip_space,
    skip_string,
)
from .words import Vector, load_word

__all__ = [
    "ARRAY",
    "ESCAPED_TEXT",
    "FALSE",
    "INTEGER_NUMBER",
    "NULL",
    "NULL_ROW",
    "OBJECT",
    "OK",
    "REAL_NUMBER",
    "REDO",
    "TEXT",
    "TRUE",
    "count_elements",
    "scan_objects",
    "scan_values",
    "skip_number",
    "split_delimited",
    "split_elements",
]

_CACHED_KEYS = 64

_UPPER = np.arange(256, dtype=np.uint8)
_UPPER[97:123] -= 32


@loop
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
    """Finds one JSON value per row. Rows whose status is not OK on entry are left alone."""
    stack = np.empty(DEPTH_MAX, np.uint8)
    for row in range(starts.shape[0]):
        out_kind[row] = NULL
        out_start[row] = out_end[row] = 0
        if status[row] != OK:
            continue
        end: Any = np.int64(ends[row])
        first: Any = np.int64(starts[row])
        start, stop, kind, i, row_wide = scan_one(data, skip_space(data, first, end), end, stack)
        if i < 0 or skip_space(data, i, end) != end:
            status[row] = REDO
            continue
        wide[row] = row_wide
        out_start[row] = start
        out_end[row] = stop
        out_kind[row] = kind


@loop
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


@loop
def _equal_without_case(data: Vector, i: int, names: Vector, k: int, length: int):
    for j in range(length):
        if _UPPER[data[np.uintp(i + j)]] != _UPPER[names[np.uintp(k + j)]]:
            return False
    return True


@loop
def _only_at(field_at: Vector, position: int, field: int):
    """Assigns the field to the value at this position, and to no earlier one."""
    for before in range(position):
        if field_at[before] == field:
            field_at[before] = -1
    field_at[position] = field


@loop
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
    """Finds the spans of the named fields of one JSON object per row; a JSON null becomes a NULL_ROW.

    A key in a field's exact spelling takes precedence over one in another case; among equal keys the last one counts.
    In: `unique`: no two names are equal ignoring case. `names_wide`: a name has letters outside ASCII. Their case is
    not known here, so a row with such a key is left to the reference, unless the key is spelled exactly.
    """
    field_count = name_ends.shape[0] - 1
    stack = np.empty(DEPTH_MAX, np.uint8)
    exact_seen = np.empty(field_count, np.uint8)
    # Rows mostly have the same keys in the same order: for each position, the key of an earlier row and its field.
    cached_start = np.zeros(_CACHED_KEYS, np.int64)
    cached_length = np.full(_CACHED_KEYS, -1, np.int64)
    cached_field = np.zeros(_CACHED_KEYS, np.int64)
    cached_exact = np.zeros(_CACHED_KEYS, np.uint8)
    # The last row that was read key by key: the bytes between its values, and the field of each value.
    gap_start = np.zeros(_CACHED_KEYS + 1, np.int64)
    gap_length = np.zeros(_CACHED_KEYS + 1, np.int64)
    field_at = np.full(_CACHED_KEYS, -1, np.int64)
    value_count: Any = np.int64(-1)  # no such row
    row = -1
    while True:
        row += 1
        if value_count >= 0:
            row = read_alike(
                data, starts, ends, status, row, value_count, gap_start, gap_length, field_at,
                out_start, out_end, out_kind, stack,
            )  # fmt: skip
        if row >= starts.shape[0]:
            break
        for field in range(field_count):
            out_kind[field, row] = NULL
            out_start[field, row] = out_end[field, row] = 0
            exact_seen[field] = 0
        if status[row] != OK:
            continue
        behind: Any = np.int64(starts[row])
        end: Any = np.int64(ends[row])
        i = skip_space(data, behind, end)
        if i >= end or data[np.uintp(i)] != OPEN_OBJECT:
            _, _, kind, i, _ = scan_one(data, i, end, stack)
            null = kind == NULL and i >= 0 and skip_space(data, i, end) == end
            status[row] = NULL_ROW if null else REDO
            continue
        status[row] = REDO  # until the object is complete
        value_count = np.int64(-1)
        i = skip_space(data, i + 1, end)
        row_wide = keys_wide = False
        position: Any = np.int64(0)
        whole = False
        if i < end and data[np.uintp(i)] == CLOSE_OBJECT:
            i += 1
            whole = True
        while not whole:
            if i >= end or data[np.uintp(i)] != QUOTE:
                break
            key = i + 1
            length = cached_length[position] if position < _CACHED_KEYS else -1
            known = (
                length >= 0
                and key + length < end
                and data[np.uintp(key + length)] == QUOTE
                and _equal(data, key, data, cached_start[position], length)
            )
            flags = 0
            if known:
                i = key + length + 1
            else:
                i, flags = skip_string(data, key, end)
                if i < 0 or flags & ESCAPES:
                    break
                length = i - 1 - key
                keys_wide |= (flags & WIDE) != 0
                row_wide |= keys_wide
            i = skip_space(data, i, end)
            if i >= end or data[np.uintp(i)] != COLON:
                break
            i = skip_space(data, i + 1, end)
            if position < _CACHED_KEYS:
                gap_start[position] = behind
                gap_length[position] = i - behind
                field_at[position] = -1
            start, stop, kind, i, value_wide = scan_one(data, i, end, stack)
            if i < 0:
                break
            behind = i
            row_wide |= value_wide

            if known:
                field = cached_field[position]
                if field >= 0 and (cached_exact[position] or not exact_seen[field]):
                    exact_seen[field] = cached_exact[position]
                    _only_at(field_at, position, field)
                    out_start[field, row] = start
                    out_end[field, row] = stop
                    out_kind[field, row] = kind
            else:
                found = -1
                found_exact = False
                for field in range(field_count):
                    name: Any = np.int64(name_ends[field])
                    if name_ends[field + 1] - name != length:
                        continue
                    exact = _equal(data, key, names, name, length)
                    if exact or _equal_without_case(data, key, names, name, length):
                        found = field
                        found_exact |= exact
                        if exact or not exact_seen[field]:
                            exact_seen[field] = exact
                            if position < _CACHED_KEYS:
                                _only_at(field_at, position, field)
                            out_start[field, row] = start
                            out_end[field, row] = stop
                            out_kind[field, row] = kind
                if names_wide and flags & WIDE and not found_exact:
                    break
                if unique and position < _CACHED_KEYS and not flags & WIDE:
                    cached_start[position] = key
                    cached_length[position] = length
                    cached_field[position] = found
                    cached_exact[position] = found_exact
            position += 1

            i = skip_space(data, i, end)
            if i >= end:
                break
            if data[np.uintp(i)] == COMMA:
                i = skip_space(data, i + 1, end)
            elif data[np.uintp(i)] == CLOSE_OBJECT:
                i += 1
                whole = True
            else:
                break
        if whole and skip_space(data, i, end) == end:
            status[row] = OK
            wide[row] = row_wide
            if unique and position <= _CACHED_KEYS and not keys_wide:
                value_count = position
                gap_start[position] = behind
                gap_length[position] = end - behind


@loop
def count_elements(data: Vector, starts: Vector, ends: Vector, kinds: Vector, container: int, counts: Vector):
    """Counts the members of each ARRAY or OBJECT (`container`); -1 if the span is neither such a container nor null."""
    stack = np.empty(DEPTH_MAX, np.uint8)
    total = 0
    for row in range(starts.shape[0]):
        counts[row] = 0
        if kinds[row] == NULL:
            continue
        if kinds[row] != container:
            counts[row] = -1
            continue
        end: Any = np.int64(ends[row])
        i: Any = skip_space(data, np.int64(starts[row]) + 1, end)
        if i >= end - 1:
            continue
        count = 0
        while i < end:
            if container == OBJECT:
                i, _ = skip_key(data, i, end)
                if i < 0:
                    break
            _, _, _, i, _ = scan_one(data, i, end, stack)
            if i < 0:
                break
            count += 1
            i = skip_space(data, i, end)
            if data[np.uintp(i)] != COMMA:
                break
            i = skip_space(data, i + 1, end)
        counts[row] = count if i >= 0 else -1
        total += count
    return total


@loop
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
    """Finds the spans of the members of containers that `count_elements` counted (and of their keys, for OBJECT).

    If a key occurs twice, its container's count becomes -1: the reference decides which one counts.
    """
    stack = np.empty(DEPTH_MAX, np.uint8)
    for row in range(starts.shape[0]):
        at = offsets[row]
        first = at
        if counts[row] <= 0:
            continue
        end: Any = np.int64(ends[row])
        i: Any = skip_space(data, np.int64(starts[row]) + 1, end)
        for _ in range(counts[row]):
            if container == OBJECT:
                behind, flags = skip_string(data, i + 1, end)
                key_start[at] = i + 1
                key_end[at] = behind - 1
                key_kind[at] = ESCAPED_TEXT if flags & ESCAPES else TEXT
                if flags & ESCAPES or at - first > 64:
                    counts[row] = -1
                    for other in range(at, offsets[row + 1]):
                        key_start[other] = key_end[other] = out_start[other] = out_end[other] = 0
                        key_kind[other] = TEXT
                        out_kind[other] = NULL
                    break
                length = behind - 1 - (i + 1)
                for other in range(first, at):
                    start: Any = np.int64(key_start[other])
                    if key_end[other] - start == length and _equal(data, i + 1, data, start, length):
                        counts[row] = -1
                i, _ = skip_key(data, i, end)
            out_start[at], out_end[at], out_kind[at], i, _ = scan_one(data, i, end, stack)
            at += 1
            i = skip_space(data, i, end)
            if data[np.uintp(i)] == COMMA:
                i = skip_space(data, i + 1, end)


@loop
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
    """Finds the fields of one delimited record per row; an empty field is NULL. Rows with a quote inside a quoted
    field, with line ends, or with a wrong number of fields are left to the reference."""
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
            quoted = i < end and data[np.uintp(i)] == QUOTE
            if quoted:
                i += 1
            first = i
            while i < end:
                c = data[np.uintp(i)]
                if c == 10 or c == 13:
                    good = False
                if c >= 128:
                    wide[row] = 1
                if c == (QUOTE if quoted else delimiter):
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
