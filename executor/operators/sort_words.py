"""ORDER BY as numbers: rows are compared by the words of their sort keys, one word after the other.

Numbers and times become words directly. The word of a text is its rank among the texts of the batch, which costs a sort
and the reading of all texts. So the first text and the keys after it are only compared if the keys before do not
decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...planner.steps.over_calls import SortKey
from ...sql.functions.aggregation.aggregate_values import as_physical, physical

Words = np.ndarray[Any, np.dtype[np.uint64]]
"""An array of the shape (words of a row, rows)."""

_SIGN = np.uint64(1 << 63)


def is_plain(type_: pa.DataType) -> bool:
    """Whether a value of this type can become a word without knowing the other values."""
    whole = pa.types.is_integer(type_) or pa.types.is_temporal(type_) or pa.types.is_boolean(type_)
    return whole or pa.types.is_floating(type_)


def sort_words(columns: Sequence[pa.Array], keys: Sequence[SortKey], rows: int) -> Words:
    """In: the values of each key. Rows that are equal in all keys have equal words: NULL equals NULL, 0.0 equals -0.0,
    and NaN equals NaN and is greater than all numbers."""
    words: list[Words] = []
    for column, key in zip(columns, keys, strict=True):
        if column.null_count:
            missing = column.is_null().to_numpy(zero_copy_only=False)
            words.append((missing != key.nulls_first).astype(np.uint64))
        own = _value_words(column)
        words.append(~own if key.descending else own)
    return np.stack(words) if words else np.empty((0, rows), np.uint64)


def _value_words(column: pa.Array) -> Words:
    """All NULLs have the same word."""
    if not is_plain(column.type):
        ranks = pc.rank(column, sort_keys="ascending", tiebreaker="dense")
        return ranks.to_numpy(zero_copy_only=False).astype(np.uint64)
    return plain_words(column)


def plain_words(column: pa.Array) -> Words:
    """The words of values of a plain type (`is_plain`)."""
    kept = as_physical(column)
    if kept.null_count:
        kept = kept.fill_null(False if pa.types.is_boolean(kept.type) else 0)
    values = kept.to_numpy(zero_copy_only=False)
    if not pa.types.is_floating(kept.type):
        return values.astype(np.int64).view(np.uint64) ^ _SIGN
    numbers = values.astype(np.float64) + 0.0  # -0.0 is 0.0
    bits = np.where(np.isnan(numbers), np.nan, numbers).view(np.uint64)
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def plain_values(words: Words, type_: pa.DataType) -> pa.Array:
    """The values that have these words; for the word of 0.0 and -0.0 it is 0.0."""
    if pa.types.is_floating(type_):
        bits = np.where(words & _SIGN, words ^ _SIGN, ~words)
        return pa.array(bits.view(np.float64)).cast(type_)
    whole = pa.array((words ^ _SIGN).view(np.int64))
    if pa.types.is_boolean(type_) or pa.types.is_int64(type_):
        return whole.cast(type_)
    return whole.cast(pa.int32() if pa.types.is_date32(type_) else physical(type_)).cast(type_)
