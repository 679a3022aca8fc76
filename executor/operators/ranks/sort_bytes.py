# pyrefly: ignore-errors[implicit-any-parameter, unannotated-return]
"""ORDER BY as bytes: rows are compared by the bytes of their sort keys, whatever types the keys have.

Each key begins with a byte that says whether it is NULL. Numbers follow as words (`sort_words.py`), highest byte first.
In texts, bytes and decimals, a 0 is written as 0 255, and 0 0 ends them, so that none is a prefix of another one. For
descending keys, all bits are inverted. The arrival number of the row comes last.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ....planner.steps.over_calls import SortKey
from ....sql.compiling.loops import loop
from ..columns import Ints
from ..groups.ordered_values import bytes_of
from ..sort_words import is_plain, plain_words

Vector = np.ndarray[Any, Any]

ARRIVAL_BYTES = 8  # at the end of each row's bytes
_PLAIN_BYTES = 9


class SortBytes(NamedTuple):
    """Per row, where its bytes start and how many there are; and the bytes of all rows."""

    starts: Ints
    sizes: Vector
    content: Vector


def sort_bytes(columns: Sequence[pa.Array], order: Sequence[SortKey], arrivals: Ints) -> SortBytes:
    """In: the values of each key. Rows that are equal in all keys differ only in the last `ARRIVAL_BYTES` bytes."""
    sizes = np.full(len(arrivals), ARRIVAL_BYTES, np.int64)
    texts: list[tuple[Ints, Vector, Vector] | None] = []
    for column in columns:
        if is_plain(column.type):
            texts.append(None)
            sizes += _PLAIN_BYTES
            continue
        filled = column
        if column.null_count:
            filled = column.fill_null(pa.scalar(_nothing(column.type), column.type))
        text = bytes_of(filled)
        texts.append(text)
        _add_sizes(*text, sizes)
    ends = np.cumsum(sizes)
    starts = ends - sizes
    content = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    at = starts.copy()
    for column, key, text in zip(columns, order, texts, strict=True):
        missing = column.is_null().to_numpy(zero_copy_only=False)
        flags = (missing != key.nulls_first).astype(np.uint8)
        if text is None:
            words = np.where(missing, np.uint64(0), plain_words(column))
            _put_words(flags, ~words if key.descending else words, content, at)
        else:
            _put_texts(flags, *text, key.descending, content, at)
    _put_word(arrivals.astype(np.uint64), content, at)
    return SortBytes(starts, sizes, content)


def _nothing(type_: pa.DataType) -> str | bytes | Decimal:
    if pa.types.is_decimal(type_):
        return Decimal(0)
    return b"" if pa.types.is_binary(type_) else ""


@loop
def _add_sizes(starts, sizes, content, total):
    for i in range(len(starts)):
        size = sizes[i] + 3
        for at in range(starts[i], starts[i] + sizes[i]):
            size += content[at] == 0
        total[i] += size


@loop
def _put_word(words, out, at):
    for i in range(len(words)):
        word = words[i]
        for byte in range(8):
            out[at[i] + 7 - byte] = np.uint8(word & np.uint64(255))
            word >>= np.uint64(8)
        at[i] += 8


@loop
def _put_words(flags, words, out, at):
    for i in range(len(words)):
        out[at[i]] = flags[i]
        at[i] += 1
    _put_word(words, out, at)


@loop
def _put_texts(flags, starts, sizes, content, turned, out, at):
    mask = np.uint8(255) if turned else np.uint8(0)
    for i in range(len(starts)):
        place = at[i]
        out[place] = flags[i]
        place += 1
        for byte in range(starts[i], starts[i] + sizes[i]):
            out[place] = content[byte] ^ mask
            place += 1
            if content[byte] == 0:
                out[place] = np.uint8(255) ^ mask
                place += 1
        out[place] = out[place + 1] = mask
        at[i] = place + 2
