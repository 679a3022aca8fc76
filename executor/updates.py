"""From changes to records: an update of a table is one record, a retraction that nothing replaces is a tombstone."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_LARGEST = 2**62


def settle(rows: pa.Table) -> pa.Table:
    """The rows of a table's change stream that become records, in their order.

    Changes are in order: a -1 takes back the row that the key has at this moment. So a -1 vanishes where a +1 of its
    key follows under the same `_seq`, which replaces it; any other -1 is a tombstone. A +1 before it does not count: an
    input record may give a key several rows and take the last one back.
    """
    minus = rows["_weight"].to_numpy() < 0
    if not minus.any():
        return rows
    identities = _identities(rows)
    replaced = np.zeros(len(minus), np.bool_)
    replaced[:-1] = minus[:-1] & ~minus[1:] & (identities[:-1] == identities[1:])
    open_ = minus & ~replaced
    if open_.any():
        replaced |= open_ & _followed(identities, ~minus)
    return rows.filter(pa.array(~replaced)) if replaced.any() else rows


def _followed(identities: npt.NDArray[np.int64], plus: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Whether one of the `plus` rows with the same identity comes after the row."""
    _, groups = np.unique(identities, return_inverse=True)
    last = np.full(int(groups.max()) + 1, -1, np.int64)
    found = np.flatnonzero(plus)
    last[groups[found]] = found  # of several, the last one stays
    return np.arange(len(groups)) < last[groups]


def _identities(rows: pa.Table) -> npt.NDArray[np.int64]:
    """A number per row that is the same exactly for rows with the same `_seq`, key and window."""
    sequence = rows["_seq"].to_numpy()
    numbers = np.concatenate([[0], np.cumsum(sequence[1:] != sequence[:-1])]).astype(np.int64)  # `_seq` is sorted
    size = int(numbers[-1]) + 1
    names = [name for name in rows.column_names if name[0] == "k" and name[1:].isdigit()]
    names += [name for name in ("_ws", "_we") if name in rows.column_names]
    for name in names:
        codes, count = _codes(rows[name].combine_chunks())
        if size * count >= _LARGEST:
            distinct, numbers = np.unique(numbers, return_inverse=True)
            size = len(distinct)
        numbers, size = numbers * count + codes, size * count
    return numbers


def _codes(values: pa.Array) -> tuple[npt.NDArray[np.int64], int]:
    """A small number per value, and how many there are; NULL is a value."""
    if pa.types.is_nested(values.type):
        values = pa.array([None if value is None else repr(value) for value in values.to_pylist()], pa.string())
    encoded = values.dictionary_encode()
    codes = pc.fill_null(encoded.indices, len(encoded.dictionary)).to_numpy(zero_copy_only=False)
    return codes.astype(np.int64), len(encoded.dictionary) + 1
