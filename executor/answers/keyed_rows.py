"""The latest row of each key of a table, found by key in constant time; for pull queries that name one key.

Rows stay in the Arrow batches in which they were read; a dictionary maps each key to its row. Replaced rows are removed
when there are more of them than live rows.
"""

from __future__ import annotations

import itertools
import threading
import uuid
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ...logcore.client import LogClient, TopicPartition
from ...planner.source_info import SourceInfo
from ...sql.functions.java.calendar_days import python_values
from ..sources.source_reader import ReadBatch
from .followed_topic import Bounds, FollowedTopic
from .left_out import LeftOut
from .materialization import source_step

KEYS_MAX: Final = 2_000_000
BYTES_MAX: Final = 1024 * 1024 * 1024  # of all rows; more makes it remove replaced ones. Arrow's texts end at 2 GiB
_DEAD_ROWS_MAX: Final = 5_000  # replaced rows, in excess of the live ones
_BATCHES_MAX: Final = 500
_ROW_BITS: Final = 32
_ROW_MASK: Final = (1 << _ROW_BITS) - 1


class TooManyKeys(Exception):
    """The table is too large for a `KeyedTable`."""


class KeyedTable:
    """A table with one key column and no window, read from its topic. Rows of records that retention has deleted are
    removed. Methods may be called from any thread."""

    def __init__(self, source: SourceInfo, client: LogClient) -> None:
        self._source = source_step(source)
        self._topic = FollowedTopic(self._source, client)
        self._left_out = LeftOut(client, f"pull_{source.name}")
        self._guard = threading.Lock()
        # The batches; and for each key the number of its batch and row. They are read without the guard: a batch is
        # added before its keys, and both are replaced together.
        self._kept: tuple[list[pa.Table], dict[Any, int]] = ([], {})
        self._row_count = self._bytes = 0  # of all batches
        self._starts: Mapping[TopicPartition, int] = dict(self._topic.positions)

    def __len__(self) -> int:
        return len(self._kept[1])

    @property
    def topic_id(self) -> uuid.UUID | None:
        """The id of the topic from which this reads."""
        return self._topic.topic_id

    def bounds(self) -> Bounds:
        """The current bounds of the topic."""
        return self._topic.bounds()

    def has_read(self, bounds: Bounds) -> bool:
        """Whether this table has read everything up to these bounds, and has removed everything before them."""
        read = self._topic.positions
        return all(
            read.get(at, -1) >= found.last_stable_offset and self._starts.get(at, -1) >= found.log_start_offset
            for at, found in bounds.items()
        )

    def catch_up(self, bounds: Bounds) -> None:
        """Reads the committed records within the bounds, unless another thread has read them. Raises `TooManyKeys`, and
        `PositionLost` if the topic was recreated: then this table cannot be used any more."""
        with self._guard:
            self._topic.check()
            self._starts = {**{at: found.log_start_offset for at, found in bounds.items()}, **self._starts}
            for batch in self._topic.batches(bounds):
                self._take_in(batch)
                self._topic.taken()
            if any(self._starts[at] < found.log_start_offset for at, found in bounds.items()):
                passed = {at: max(self._starts[at], found.log_start_offset) for at, found in bounds.items()}
                starts = {**self._starts, **passed}
                self._leave_out_dead(starts)
                self._starts = starts  # only now: no reader can find rows before these offsets any more
            if len(self) > KEYS_MAX:
                raise TooManyKeys(f"more than {KEYS_MAX} keys")

    def find(self, key: object, columns: tuple[str, ...]) -> tuple[Any, ...] | None:
        """The columns of the key's row; None if it has none. It does not wait for other threads, so the row may be
        newer than the bounds of the query."""
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
        self._bytes += rows.nbytes
        for row, (key, gone) in enumerate(zip(rows["k0"].to_pylist(), rows["_null"].to_pylist(), strict=True)):
            if gone:
                places.pop(key, None)
            else:
                places[key] = base | row
        too_large = self._bytes > BYTES_MAX
        if too_large or len(batches) > _BATCHES_MAX or self._row_count > 2 * len(places) + _DEAD_ROWS_MAX:
            self._leave_out_dead(self._starts)
        if too_large and self._bytes > BYTES_MAX // 2:  # otherwise the live rows would be copied again and again
            raise TooManyKeys(f"its rows take more than {BYTES_MAX // 2} bytes")

    def _leave_out_dead(self, lane_starts: Mapping[TopicPartition, int]) -> None:
        """Removes replaced rows, and rows of records before these offsets."""
        batches, places = self._kept
        if not batches:
            return
        at = np.fromiter(places.values(), np.int64, len(places))
        begins = np.cumsum([0, *(batch.num_rows for batch in batches)])
        living = pa.concat_tables(batches).take(pa.array(begins[at >> _ROW_BITS] + (at & _ROW_MASK))).combine_chunks()
        starts = np.array([lane_starts[lane] for lane in sorted(lane_starts)], np.int64)
        there = living["_offset"].to_numpy() >= starts[living["_rowpartition"].to_numpy()]
        living = living.filter(pa.array(there))
        self._row_count, self._bytes = living.num_rows, living.nbytes
        keys = itertools.compress(places, there.tolist())
        self._kept = ([living], dict(zip(keys, range(living.num_rows), strict=True)))
