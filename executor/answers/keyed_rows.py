"""The latest row of each key of a table, found by key in constant time: for pull queries that name one key.

Rows stay in the Arrow batches they came in; a dictionary says where each key's row is. What was replaced is left out
once it is more than what lives.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ...logcore.client import LogClient, Offsets, TopicPartition
from ...planner.source_info import SourceInfo
from ...sql.functions.java.calendar_days import python_values
from ..sources.same_topic import check_same
from ..sources.source_reader import ReadBatch, SourceReader
from .left_out import LeftOut
from .materialization import source_step

KEYS_MAX: Final = 2_000_000
_BATCH_BYTES: Final = 16 * 1024 * 1024
_DEAD_ROWS_MAX: Final = 50_000  # beyond as many as live
_BATCHES_MAX: Final = 500
_ROW_BITS: Final = 32
_ROW_MASK: Final = (1 << _ROW_BITS) - 1

Bounds = Mapping[TopicPartition, Offsets]
"""Where each partition begins and ends."""


class TooManyKeys(Exception):
    """The table is too large to be kept like this."""


class KeyedTable:
    """A table with one key column and no window, from its topic. What the topic's retention has dropped is not there.
    Methods may be called from any thread. `topic_id`: of the topic that this is read from."""

    def __init__(self, source: SourceInfo, client: LogClient) -> None:
        self._client = client
        self._source = source_step(source)
        self._left_out = LeftOut(client, f"pull_{source.name}")
        self._guard = threading.Lock()
        self.topic_id = client.topic_id(source.topic)
        # The batches, and the number of the batch and the row of each key. Read without the guard: a batch is there
        # before a key is in it, and both are replaced together.
        self._kept: tuple[list[pa.Table], dict[Any, int]] = ([], {})
        self._row_count = 0  # of all batches
        partitions = range(client.partition_count(source.topic))
        self._starts = {
            TopicPartition(source.topic, at): client.offsets(source.topic, at).log_start_offset for at in partitions
        }
        self._read = dict(self._starts)
        self._reader = self._reader_from(self._read)
        self._reader_is_past = False  # what was read

    def __len__(self) -> int:
        return len(self._kept[1])

    def bounds(self) -> dict[TopicPartition, Offsets]:
        """What is there now."""
        return {at: self._client.offsets(at.topic, at.partition) for at in self._read}

    def has_read(self, bounds: Bounds) -> bool:
        """Whether that is what is here."""
        return all(
            self._read[at] >= found.last_stable_offset and self._starts[at] >= found.log_start_offset
            for at, found in bounds.items()
        )

    def catch_up(self, bounds: Bounds) -> None:
        """Reads what is committed there, unless somebody else did. Raises `TooManyKeys`, and `PositionLost` where the
        topic was created again: then this table is of no more use."""
        with self._guard:
            check_same(self._client, self._source.topic, self.topic_id)
            if self._reader_is_past:
                self._reader = self._reader_from(self._read)
                self._reader_is_past = False
            self._pass_over_dropped(bounds)
            ends = {at: found.last_stable_offset for at, found in bounds.items()}
            while any(self._read[at] < end for at, end in ends.items()):
                self._take_in_next(ends)
            if any(self._starts[at] < found.log_start_offset for at, found in bounds.items()):
                starts = {at: max(self._starts[at], found.log_start_offset) for at, found in bounds.items()}
                self._leave_out_dead(starts)
                self._starts = starts  # now that nobody finds what is before them
            if len(self) > KEYS_MAX:
                raise TooManyKeys

    def _take_in_next(self, ends: Mapping[TopicPartition, int]) -> None:
        try:
            batch = self._reader.read(_BATCH_BYTES, ends)
            if batch is not None:
                self._take_in(batch)
        except BaseException:  # memory is short, say: the reader is past these rows, and they are not here
            self._reader_is_past = True
            raise
        self._read = self._reader.fetch_positions

    def _pass_over_dropped(self, bounds: Bounds) -> None:
        """What was dropped before it was read cannot be read."""
        if any(self._read[at] < found.log_start_offset for at, found in bounds.items()):
            self._read = {at: max(self._read[at], found.log_start_offset) for at, found in bounds.items()}
            self._reader = self._reader_from(self._read)

    def _reader_from(self, positions: Mapping[TopicPartition, int]) -> SourceReader:
        reader = SourceReader(self._client, [self._source], positions, time_order=False)
        check_same(self._client, self._source.topic, self.topic_id)  # or the reader takes a new one for it
        return reader

    def find(self, key: object, columns: tuple[str, ...]) -> tuple[Any, ...] | None:
        """The columns of the key's row; None where it has none. Waits for nobody: the row may be newer than what was
        asked for."""
        batches, places = self._kept
        place = places.get(key)
        if place is None:
            return None
        batch, row = batches[place >> _ROW_BITS], place & _ROW_MASK
        return tuple(python_values(batch.column(name).slice(row, 1))[0] for name in columns)

    def _take_in(self, batch: ReadBatch) -> None:
        self._left_out.note(batch.errors)
        rows = batch.inputs[self._source.id].rows
        if not rows.num_rows:
            return
        rows = rows.combine_chunks()
        batches, places = self._kept
        base = len(batches) << _ROW_BITS
        batches.append(rows)
        self._row_count += rows.num_rows
        for row, (key, gone) in enumerate(zip(rows["k0"].to_pylist(), rows["_null"].to_pylist(), strict=True)):
            if gone:
                places.pop(key, None)
            else:
                places[key] = base | row
        if len(batches) > _BATCHES_MAX or self._row_count > 2 * len(places) + _DEAD_ROWS_MAX:
            self._leave_out_dead(self._starts)

    def _leave_out_dead(self, lane_starts: Mapping[TopicPartition, int]) -> None:
        """Rows that were replaced, and those of records before these offsets."""
        batches, places = self._kept
        if not batches:
            return
        at = np.fromiter(places.values(), np.int64, len(places))
        begins = np.cumsum([0, *(batch.num_rows for batch in batches)])
        living = pa.concat_tables(batches).take(pa.array(begins[at >> _ROW_BITS] + (at & _ROW_MASK))).combine_chunks()
        starts = np.array([lane_starts[lane] for lane in sorted(lane_starts)], np.int64)
        there = living["_offset"].to_numpy() >= starts[living["_rowpartition"].to_numpy()]
        living = living.filter(pa.array(there))
        self._row_count = living.num_rows
        keys = itertools.compress(places, there.tolist())
        self._kept = ([living], dict(zip(keys, range(living.num_rows), strict=True)))
