"""Reads a JSON object that is written like the previous one, with the same keys and spaces and other values: compiled.

Records of one producer nearly always are. Then the bytes between the values need no parsing, only a comparison, eight
bytes at a time: records of 110 bytes and six fields take 40 ns instead of 330.

For developers: numba caches `scan.py` with this code inlined, and only notices changes of that file. So touch it after
a change here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....sql.compiling.loops import loop
from .json_values import INTEGER_NUMBER, NULL, OK, QUOTE, TEXT, scan_one, skip_number
from .words import HIGH_BITS, NO_DIGITS, ZEROS, Vector, first_special, load_word, trailing_zeros

LOOKAHEAD = 16  # bytes from any position that are read at once

_EIGHT = np.uint64(8)
_SHIFT = np.uint64(3)
_NONE = np.uint64(0)


@loop
def read_alike(
    data: Vector,
    starts: Vector,
    ends: Vector,
    status: Vector,
    row: int,
    value_count: int,
    gap_start: Vector,
    gap_length: Vector,
    target: Vector,
    out_start: Vector,
    out_end: Vector,
    out_kind: Vector,
    stack: Vector,
) -> int:
    """Reads rows from `row` on, as long as each consists of the gaps with ASCII values between them. Out: the first row
    that does not.

    Gap p is before value p, which is field `target[p]` (-1: no field). The last gap is after all values. Rows whose
    status is not OK have no values.
    """
    # All in one function: numba counts references to the arrays at every call, which took longer than comparing.
    limit = data.shape[0] - LOOKAHEAD
    while row < starts.shape[0]:
        for field in range(out_kind.shape[0]):
            out_kind[field, row] = NULL
            out_start[field, row] = out_end[field, row] = 0
        alike = True
        position = 0 if status[row] == OK else value_count + 1
        i: Any = np.int64(starts[row])
        end: Any = np.int64(ends[row])
        while position <= value_count:
            length = gap_length[position]
            gap = gap_start[position]
            if i > limit or i + length > end:
                alike = False
                break
            if length < 8:
                alike = (load_word(data, i) ^ load_word(data, gap)) << (_EIGHT * np.uint64(8 - length)) == _NONE
            else:
                for j in range(0, length - 8, 8):
                    alike &= load_word(data, i + j) == load_word(data, gap + j)
                alike &= load_word(data, i + length - 8) == load_word(data, gap + length - 8)
            if not alike:
                break
            i += length
            if position == value_count:
                alike = i == end
                break
            start = i
            c = data[np.uintp(i)]
            if c == QUOTE:
                start = i = i + 1
                plain = LOOKAHEAD
                while plain == LOOKAHEAD and i <= limit:
                    plain = first_special(data, i)
                    i += plain
                stop = i
                kind = TEXT
                alike = plain < LOOKAHEAD and data[np.uintp(i)] == QUOTE
                i += 1
            elif c == 45 or 48 <= c <= 57:
                if c == 45:
                    i += 1
                first = i
                digits = np.int64(8)
                while digits == 8 and i <= limit:
                    word = load_word(data, i) ^ ZEROS
                    others = (word + NO_DIGITS | word) & HIGH_BITS
                    if others != _NONE:
                        digits = np.int64(trailing_zeros(others) >> _SHIFT)
                    i += digits
                alike = digits < 8 and i > first and (i == first + 1 or data[np.uintp(first)] != 48)
                kind = INTEGER_NUMBER
                c = data[np.uintp(i)]
                if alike and (c == 46 or c == 69 or c == 101):
                    i, kind = skip_number(data, start, end)
                    alike = i >= 0
                stop = i
            else:
                start, stop, kind, i, wide = scan_one(data, i, end, stack)
                alike = i >= 0 and not wide
            if not alike:
                break
            field = target[position]
            if field >= 0:
                out_start[field, row] = start
                out_end[field, row] = stop
                out_kind[field, row] = kind
            position += 1
        if not alike:
            return row
        row += 1
    return row
