"""ORDER BY as numbers: rows compare as the words of their sort keys do, one after the other.

Numbers and times are words as they are. A text has the word that is its rank among the texts of the batch, which costs
a sort and the reading of all texts: so keys after the first text are only looked at where rows are equal before it.
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
"""Of the shape (words of a row, rows)."""

_SIGN = np.uint64(1 << 63)


def is_plain(type_: pa.DataType) -> bool:
    """Whether values are words without a look at the others."""
    whole = pa.types.is_integer(type_) or pa.types.is_temporal(type_) or pa.types.is_boolean(type_)
    return whole or pa.types.is_floating(type_)


def sort_words(columns: Sequence[pa.Array], keys: Sequence[SortKey], rows: int) -> Words:
    """In: the values of each key. Rows that are equal in all keys have equal words: NULL is equal to NULL, NaN to NaN
    and greater than all numbers, 0.0 to -0.0."""
    words: list[Words] = []
    for column, key in zip(columns, keys, strict=True):
        if column.null_count:
            missing = column.is_null().to_numpy(zero_copy_only=False)
            words.append((missing != key.nulls_first).astype(np.uint64))
        own = _value_words(column)
        words.append(~own if key.descending else own)
    return np.stack(words) if words else np.empty((0, rows), np.uint64)


def _value_words(column: pa.Array) -> Words:
    """Those of NULLs are all the same."""
    if not is_plain(column.type):
        ranks = pc.rank(column, sort_keys="ascending", tiebreaker="dense")
        return ranks.to_numpy(zero_copy_only=False).astype(np.uint64)
    return plain_words(column)


def plain_words(column: pa.Array) -> Words:
    """Of values that are words without a look at the others (`is_plain`)."""
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
    """The values that have these words; of 0.0 and -0.0 it is 0.0."""
    if pa.types.is_floating(type_):
        bits = np.where(words & _SIGN, words ^ _SIGN, ~words)
        return pa.array(bits.view(np.float64)).cast(type_)
    whole = pa.array((words ^ _SIGN).view(np.int64))
    if pa.types.is_boolean(type_) or pa.types.is_int64(type_):
        return whole.cast(type_)
    return whole.cast(pa.int32() if pa.types.is_date32(type_) else physical(type_)).cast(type_)
