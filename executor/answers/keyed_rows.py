"""The latest row of each key of a table, found by key in constant time: for pull queries that name one key.

Rows stay in the Arrow batches they came in; a dictionary says where each key's row is. What was replaced is left out
once it is more than what lives.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ...logcore.client import LogClient, TopicPartition
from ...planner.source_info import SourceInfo
from ...sql.functions.java.calendar_days import python_values
from ..sources.source_reader import ReadBatch, SourceReader
from .left_out import LeftOut
from .materialization import source_step

KEYS_MAX: Final = 2_000_000
_BATCH_BYTES: Final = 16 * 1024 * 1024
_DEAD_ROWS_MAX: Final = 50_000  # beyond as many as live
_BATCHES_MAX: Final = 500
_ROW_BITS: Final = 32
_ROW_MASK: Final = (1 << _ROW_BITS) - 1


class TooManyKeys(Exception):
    """The table is too large to be kept like this."""


class KeyedTable:
    """A table with one key column and no window, from its topic. Methods may be called from any thread."""

    def __init__(self, source: SourceInfo, client: LogClient) -> None:
        self._client = client
        self._source = source_step(source)
        self._left_out = LeftOut(client, f"pull_{source.name}")
        self._guard = threading.Lock()
        # The batches, and the number of the batch and the row of each key. Read without the guard: a batch is there
        # before a key is in it, and both are replaced together.
        self._kept: tuple[list[pa.Table], dict[Any, int]] = ([], {})
        self._row_count = 0  # of all batches
        partitions = range(client.partition_count(source.topic))
        self._read = {
            TopicPartition(source.topic, at): client.offsets(source.topic, at).log_start_offset for at in partitions
        }
        self._reader = SourceReader(client, [self._source], self._read, time_order=False)

    def __len__(self) -> int:
        return len(self._kept[1])

    def ends(self) -> dict[TopicPartition, int]:
        """What is committed now."""
        return {at: self._client.offsets(at.topic, at.partition).last_stable_offset for at in self._read}

    def has_read(self, ends: Mapping[TopicPartition, int]) -> bool:
        return all(self._read[at] >= end for at, end in ends.items())

    def catch_up(self, ends: Mapping[TopicPartition, int]) -> None:
        """Reads to these offsets, unless somebody else did. Raises `TooManyKeys`."""
        with self._guard:
            while not self.has_read(ends):
                batch = self._reader.read(_BATCH_BYTES, ends)
                if batch is not None:
                    self._take_in(batch)
                self._read = self._reader.fetch_positions
            if len(self) > KEYS_MAX:
                raise TooManyKeys

    def find(self, key: object, columns: tuple[str, ...]) -> tuple[Any, ...] | None:
        """The columns of the key's row; None where it has none. Waits for nobody: the row may be newer than `ends`."""
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
            self._leave_out_dead()

    def _leave_out_dead(self) -> None:
        batches, places = self._kept
        at = np.fromiter(places.values(), np.int64, len(places))
        begins = np.cumsum([0, *(batch.num_rows for batch in batches)])
        living = pa.concat_tables(batches).take(pa.array(begins[at >> _ROW_BITS] + (at & _ROW_MASK))).combine_chunks()
        self._row_count = living.num_rows
        self._kept = ([living], dict(zip(places, range(len(places)), strict=True)))
