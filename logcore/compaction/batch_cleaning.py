"""What remains of record batches once the last record of each key is known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..records.batch import COMPRESSION, HEADER_SIZE, NO_PRODUCER, BatchHeader, EncodedBatch
from ..records.codec import decode_rows, stored_batch
from ..records.column_keys import column_keys, expiry_of
from ..records.envelope import decode_columns, split_deltas, thin_columns
from ..records.thinning import decided, emptied, thin_rows
from ..storage.partition_keeping import PartitionSnapshot
from .live_keys import ROWS, LiveKeys

Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class WholeBatch(NamedTuple):
    """A whole batch, as it is stored in a segment."""

    header: BatchHeader
    batch: memoryview


class KeyedRecords(NamedTuple):
    """The properties that decide whether records are kept, for one batch or several adjacent ones."""

    family: bytes
    keys: pa.BinaryArray
    offsets: Longs
    tombstones: Flags


@dataclass(frozen=True, slots=True)
class CleaningRules:
    """What is kept. `removable_below`: tombstones and markers are kept only from this offset on."""

    snapshot: PartitionSnapshot
    removable_below: int

    def is_data(self, header: BatchHeader) -> bool:
        """False for batches that no reader gets: markers, aborted batches, and batches without records."""
        return not header.control and header.record_count > 0 and not self.snapshot.aborted.covers(header)


def add_keys(live: LiveKeys, window: Sequence[WholeBatch], rules: CleaningRules) -> None:
    """Adds the keys of batches that were not cleaned yet. Raises ValueError for invalid batches."""
    for rows, columns in _keyed_parts(window, rules):
        expiry = None if columns is None else expiry_of(columns)
        if expiry is not None:
            live.add_expiry(expiry, rows.offsets)
        live.add(rows.family, rows.keys, rows.offsets)


def add_earlier_keys(live: LiveKeys, window: Sequence[WholeBatch], rules: CleaningRules) -> None:
    """Adds the keys of batches that were cleaned before. Raises ValueError for invalid batches."""
    for rows, _ in _keyed_parts(window, rules):
        live.add_earlier(rows.family, rows.keys, rows.offsets)


def _keyed_parts(
    window: Sequence[WholeBatch], rules: CleaningRules
) -> Iterator[tuple[KeyedRecords, pa.RecordBatch | None]]:
    """The records that readers get; those of a columnar batch with its columns."""
    data = [stored for stored in window if rules.is_data(stored.header)]
    for part in _parts(data):
        if not part[0].header.columnar:
            yield _keyed_rows(part), None
            continue
        rows, columns, _ = _keyed_columns(part[0])
        if rows is not None:
            yield rows, columns


def clean(live: LiveKeys, window: Sequence[WholeBatch], rules: CleaningRules) -> Iterator[EncodedBatch]:
    """The batches to write, in order. Batches from which nothing was removed keep their bytes.

    Raises ValueError for invalid batches.
    """
    for part in _parts(window, rules):
        first = part[0]
        if not rules.is_data(first.header):
            yield from _without_data(first, rules)
        elif first.header.columnar:
            yield from _clean_columns(live, first, rules)
        else:
            yield from _clean_rows(live, part, rules)


def _parts(window: Sequence[WholeBatch], rules: CleaningRules | None = None) -> Iterator[list[WholeBatch]]:
    """Groups of adjacent batches of rows, which are decoded together, and every other batch alone."""
    rows: list[WholeBatch] = []
    for stored in window:
        if stored.header.columnar or (rules is not None and not rules.is_data(stored.header)):
            if rows:
                yield rows
                rows = []
            yield [stored]
        else:
            rows.append(stored)
    if rows:
        yield rows


def _without_data(stored: WholeBatch, rules: CleaningRules) -> Iterable[EncodedBatch]:
    header = stored.header
    is_last = header.producer_id != NO_PRODUCER and header.base_offset in rules.snapshot.last_batches
    if header.control and (is_last or header.base_offset >= rules.removable_below):
        return [EncodedBatch([stored.batch], header)]
    return [emptied(header)] if is_last and not header.control else []


def _clean_rows(live: LiveKeys, part: Sequence[WholeBatch], rules: CleaningRules) -> Iterator[EncodedBatch]:
    keep = _kept(live, _keyed_rows(part), rules)
    ends = list(accumulate(stored.header.record_count for stored in part))
    for stored, end in zip(part, ends, strict=True):
        flags = keep[end - stored.header.record_count : end]
        if flags.all():
            yield decided(*stored)
        elif flags.any():
            yield thin_rows(*stored, flags)
        else:
            yield from _nothing_left(stored, rules)


def _clean_columns(live: LiveKeys, stored: WholeBatch, rules: CleaningRules) -> Iterable[EncodedBatch]:
    rows, columns, deltas = _keyed_columns(stored)
    offsets = deltas + stored.header.base_offset
    keep = _kept(live, rows, rules) if rows is not None else offsets >= rules.snapshot.log_start_offset
    keep &= ~live.expired(columns, offsets)
    if keep.all():
        return [decided(*stored)]
    if keep.any():
        return [thin_columns(stored.header, columns, deltas, keep)]
    return _nothing_left(stored, rules)


def _nothing_left(stored: WholeBatch, rules: CleaningRules) -> Iterable[EncodedBatch]:
    """What remains of a batch without records: an empty batch if it is the last one of its producer, because it holds
    the producer's last sequence number."""
    return [emptied(stored.header)] if stored.header.base_offset in rules.snapshot.last_batches else []


def _kept(live: LiveKeys, rows: KeyedRecords, rules: CleaningRules) -> Flags:
    outdated = rows.tombstones & (rows.offsets < rules.removable_below)
    outdated |= rows.offsets < rules.snapshot.log_start_offset
    return ~(outdated | live.superseded(rows.offsets))


def _keyed_rows(part: Sequence[WholeBatch]) -> KeyedRecords:
    table = decode_rows([stored_batch(stored.header, stored.batch) for stored in part], 0)
    keys = table["key"].combine_chunks()
    values = table["value"].is_null().to_numpy()
    tombstones = values & keys.is_valid().to_numpy(zero_copy_only=False)
    return KeyedRecords(ROWS, keys, table["offset"].to_numpy(), tombstones)


def _keyed_columns(stored: WholeBatch) -> tuple[KeyedRecords | None, pa.RecordBatch, Longs]:
    """The keys (None if the batch does not name them), the columns, and the offset delta of each row."""
    header, batch = stored
    records = stored_batch(header, batch).buffer if header.attributes & COMPRESSION else batch[HEADER_SIZE:]
    columns, deltas = split_deltas(decode_columns(records), header.last_offset_delta + 1)
    if deltas is None:
        deltas = np.arange(columns.num_rows, dtype=np.int64)
    found = column_keys(columns)
    if found is None:
        return None, columns, deltas
    return KeyedRecords(found.family, found.keys, deltas + header.base_offset, found.tombstones), columns, deltas
