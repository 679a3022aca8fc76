"""Finds the last record of each key, which compaction keeps. Keys are compared themselves, never by a hash.

To look up some keys among many, Arrow makes a hash table of the many keys each time. A profile of a changelog with ten
million keys in small batches showed almost only this: a table was made for each batch. So keys are compared in few
large pieces, before anything is written: all records that are cleaned for the first time among themselves, and earlier
records in large pieces with these. The results are offsets, which are then looked up for each batch.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..records.column_keys import ColumnExpiry, family_of

Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
_Records = tuple[pa.BinaryArray, Longs]

ROWS: bytes = b""
"""The family of records in row form; columnar batches name their own."""

PIECE_BYTES: Final = 1024 * 1024
PIECES: Final = 8  # at most this many tables are made for as many earlier keys as there are later ones


class LiveKeys:
    """State: the keys of the records that were added, by family; earlier records that were not looked up yet; and the
    offsets of all superseded records, which have a later one with the same key."""

    def __init__(self) -> None:
        self.bytes = 0  # the size of the keys
        self._added: dict[bytes, list[_Records]] = {}
        self._later: dict[bytes, pa.BinaryArray] = {}
        self._earlier: dict[bytes, list[_Records]] = {}
        self._earlier_bytes = 0
        self._outdated: list[Longs] = []
        self._sorted = np.empty(0, np.int64)  # all of them, once settled
        self._expired: dict[tuple[bytes, str, str], dict[int, tuple[int, int]]] = {}  # by group: below, offset

    def add(self, family: bytes, keys: pa.BinaryArray, offsets: Longs) -> None:
        """Adds records, in order. Those without a key are ignored."""
        keys, offsets = _with_keys(keys, offsets)
        if len(keys):
            self._added.setdefault(family, []).append((keys, offsets))
            self.bytes += keys.nbytes

    def add_expiry(self, expiry: ColumnExpiry, offsets: Longs) -> None:
        """Adds expiries, in order like `add`. For each group the last one counts."""
        by_group = self._expired.setdefault((expiry.family, expiry.group, expiry.column), {})
        for group, below, offset in zip(expiry.groups, expiry.below, offsets.tolist(), strict=True):
            by_group[group] = (below, offset)

    def expired(self, columns: pa.RecordBatch, offsets: Longs) -> Flags:
        """For each row of a columnar batch whether a later expiry removes it."""
        ended = np.zeros(columns.num_rows, np.bool_)
        names = columns.schema.names
        for (family, group, column), by_group in self._expired.items():
            if family != family_of(columns) or group not in names or column not in names:
                continue
            groups = columns.column(group).to_numpy(zero_copy_only=False)
            values = columns.column(column).to_numpy(zero_copy_only=False)
            for number, (below, offset) in by_group.items():
                ended |= (groups == number) & (values < below) & (offsets < offset)
        return ended

    def settle(self) -> None:
        """Finds the last record of each key. After this only earlier records may be added."""
        for family, added in self._added.items():
            offsets = np.concatenate([offsets for _, offsets in added])
            keys = pa.chunked_array([keys for keys, _ in added], pa.binary())
            found = pa.table({"key": keys, "offset": offsets}).group_by("key").aggregate([("offset", "max")])
            last = found["offset_max"].to_numpy()
            self._later[family] = found["key"].combine_chunks()
            self._outdated.append(offsets[~_is_among(offsets, np.sort(last))])
        self._added = {}

    def add_earlier(self, family: bytes, keys: pa.BinaryArray, offsets: Longs) -> None:
        """Adds records that are all earlier than those added before `settle`."""
        if family not in self._later:
            return
        keys, offsets = _with_keys(keys, offsets)
        if not len(keys):
            return
        self._earlier.setdefault(family, []).append((keys, offsets))
        self._earlier_bytes += keys.nbytes
        if self._earlier_bytes >= max(PIECE_BYTES, self.bytes // PIECES):
            self._look_up_earlier()

    def settle_earlier(self) -> None:
        """Finds which of the earlier records are superseded. After this nothing may be added."""
        self._look_up_earlier()
        self._sorted = np.sort(np.concatenate([self._sorted, *self._outdated]))
        self._outdated = []

    def _look_up_earlier(self) -> None:
        for family, pieces in self._earlier.items():
            keys = pa.chunked_array([keys for keys, _ in pieces], pa.binary())
            has_later = pc.is_in(keys, value_set=self._later[family]).to_numpy()
            self._outdated.append(np.concatenate([offsets for _, offsets in pieces])[has_later])
        self._earlier, self._earlier_bytes = {}, 0

    def superseded(self, offsets: Longs) -> Flags:
        """For each record whether a later one has its key. To be called after `settle_earlier`."""
        return _is_among(offsets, self._sorted)


def _with_keys(keys: pa.BinaryArray, offsets: Longs) -> _Records:
    if not keys.null_count:
        return keys, offsets
    valid = keys.is_valid()
    return keys.filter(valid), offsets[valid.to_numpy(zero_copy_only=False)]


def _is_among(offsets: Longs, others: Longs) -> Flags:
    """For each offset whether it is among the `others`, which are sorted."""
    if not len(others):
        return np.zeros(len(offsets), np.bool_)
    places = np.searchsorted(others, offsets)
    return others[np.minimum(places, len(others) - 1)] == offsets
