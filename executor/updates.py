"""Turns changes into records: an update of a table is one record, a retraction without a replacement a tombstone."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_LARGEST = 2**62


def settle(rows: pa.Table) -> pa.Table:
    """The rows of a table's change stream that become records, in their order.

    Changes are in order: a -1 retracts the key's current row. If a +1 of the same key and `_seq` follows, it replaces
    that row, and the -1 is dropped; any other -1 becomes a tombstone. A +1 before the -1 does not count: an input
    record may add several rows for a key and retract the last one.
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
    """For each row, whether a `plus` row with the same identity comes after it."""
    _, groups = np.unique(identities, return_inverse=True)
    last = np.full(int(groups.max()) + 1, -1, np.int64)
    found = np.flatnonzero(plus)
    last[groups[found]] = found  # of several, the last one stays
    return np.arange(len(groups)) < last[groups]


def _identities(rows: pa.Table) -> npt.NDArray[np.int64]:
    """A number per row. Two rows have the same number exactly if they have the same `_seq`, key and window."""
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
    """A small number per distinct value (NULL is one), and an upper bound of these numbers."""
    if pa.types.is_nested(values.type):
        values = pa.array([None if value is None else repr(value) for value in values.to_pylist()], pa.string())
    encoded = values.dictionary_encode()
    codes = pc.fill_null(encoded.indices, len(encoded.dictionary)).to_numpy(zero_copy_only=False)
    return codes.astype(np.int64), len(encoded.dictionary) + 1
