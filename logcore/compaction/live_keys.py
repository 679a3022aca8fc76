"""Which record of a key is the last: compaction keeps that one. Keys are compared as they are, never by a hash."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..records.column_keys import ColumnExpiry, family_of

Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

ROWS: bytes = b""
"""The family of records in row form; columnar batches name theirs."""


class LiveKeys:
    """State: per family of keys the last offset of each, of the records that were added."""

    def __init__(self) -> None:
        self.bytes = 0  # that the keys take
        self._added: dict[bytes, list[tuple[pa.BinaryArray, Longs]]] = {}
        self._known: dict[bytes, tuple[pa.Array, Longs]] = {}
        self._expired: dict[tuple[bytes, str, str], dict[int, tuple[int, int]]] = {}  # by group: below, until offset

    def add(self, family: bytes, keys: pa.BinaryArray, offsets: Longs) -> None:
        """Records in order; those without a key do not count."""
        if keys.null_count:
            valid = keys.is_valid()
            keys, offsets = keys.filter(valid), offsets[valid.to_numpy(zero_copy_only=False)]
        if len(keys):
            self._added.setdefault(family, []).append((keys, offsets))
            self.bytes += keys.nbytes

    def add_expiry(self, expiry: ColumnExpiry, offsets: Longs) -> None:
        """In order, as `add`; of each group the last one counts."""
        by_group = self._expired.setdefault((expiry.family, expiry.group, expiry.column), {})
        for group, below, offset in zip(expiry.groups, expiry.below, offsets.tolist(), strict=True):
            by_group[group] = (below, offset)

    def expired(self, columns: pa.RecordBatch, offsets: Longs) -> Flags:
        """Per row of a columnar batch whether a later expiry ends it."""
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
        """Finds the last of each key; what is added later is not looked at before this is called again."""
        for family, added in self._added.items():
            pieces = added
            if family in self._known:
                pieces = [self._known[family], *added]
            table = pa.table(
                {
                    "key": pa.chunked_array([keys for keys, _ in pieces], pa.binary()),
                    "offset": np.concatenate([offsets for _, offsets in pieces]),
                }
            )
            last = table.group_by("key").aggregate([("offset", "max")])
            self._known[family] = (last["key"].combine_chunks(), last["offset_max"].to_numpy())
        self._added = {}

    def superseded(self, family: bytes, keys: pa.BinaryArray, offsets: Longs) -> Flags:
        """Per record whether a later one has its key."""
        known = self._known.get(family)
        if known is None or not len(keys):
            return np.zeros(len(keys), np.bool_)
        places = pc.index_in(keys, value_set=known[0])
        found = places.is_valid().to_numpy(zero_copy_only=False)
        last = known[1][places.fill_null(0).to_numpy(zero_copy_only=False)]
        return found & (last > offsets)
