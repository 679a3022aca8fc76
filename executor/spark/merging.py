"""Merges the pieces of a bucket into the batch for its operators, in one order over all lanes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from ...logcore.client import TopicPartition
from ..batch import ChangeBatch
from ..figures import OperatorCounts
from ..operators.columns import Ints, ints, number_within, with_columns
from ..sources.source_reader import ReadBatch, RecordHeaders, empty_rows
from ..sources.time_order import tables_first, topics_in_order
from .causes import path_columns
from .pieces import ORDER, ORIGIN, RECORD_HEADERS, Piece, path_name
from .stages import Stages, Subplan

_PARTITIONS = 2**32


@dataclass(frozen=True, slots=True)
class BucketBatch(ReadBatch):
    """`ordered`: for `causes_of`, the rows of each leaf with the columns that define their order; None for a leaf
    without rows. `topic_of_origin`: the topic of each source, by the number in column ORIGIN. `counted`: the operator
    counts of the stage that read the records. `largest_ms`: the largest rowtime that it read from each lane."""

    ordered: Sequence[pa.Table | None] = ()
    topic_of_origin: Sequence[str] = ()
    counted: Sequence[OperatorCounts] = ()
    largest_ms: Mapping[TopicPartition, int] = field(default_factory=dict)

    def origin(self, sequence: int) -> tuple[str, int, int]:
        """Topic, partition and offset of the record from which the row with this `_seq` comes."""
        for rows in self.ordered:
            found = np.empty(0, np.int64) if rows is None else np.flatnonzero(ints(rows, "_seq") == sequence)
            if rows is not None and len(found):
                number, *at = (int(ints(rows, name)[found[0]]) for name in (ORIGIN, "_rowpartition", "_offset"))
                return self.topic_of_origin[number], at[0], at[1]
        return "", -1, -1


def merge(stages: Stages, subplan: Subplan, pieces: Sequence[Piece]) -> BucketBatch:
    """Merges the rows of all pieces into the order in which `SourceReader` would return them."""
    sources = tables_first(stages.plan.sources())
    topics = [source.topic for source in sources]
    tables = _tables(subplan, pieces, {source.id: number for number, source in enumerate(sources)})
    order = topics_in_order(stages.plan.sources())
    places = _places(tables, np.array([order.index(topic) for topic in topics], np.int64))
    ordered = {name: _numbered(table, places[name]) for name, table in tables.items()}
    inputs = {name: ChangeBatch(rows) for name, rows in ordered.items()}
    for name, stream_times in _stream_times(pieces).items():
        rows = ordered[name] if name in ordered else _empty(subplan, name)
        inputs[name] = ChangeBatch(rows, stream_times)
    return BucketBatch(
        inputs=inputs,
        positions={},
        record_count=sum(piece.head.record_count for piece in pieces),
        byte_count=sum(piece.head.byte_count for piece in pieces),
        errors=[error for piece in pieces for error in piece.head.errors],
        headers=_headers(list(ordered.values())),
        ordered=[ordered.get(leaf.id) for leaf in subplan.rest.sources()],
        topic_of_origin=topics,
        counted=[counts for piece in pieces for counts in piece.head.operators],
        largest_ms=_largest_ms(pieces),
    )


def _largest_ms(pieces: Sequence[Piece]) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for head in (piece.head for piece in pieces):
        if head.largest_ms is not None:
            found[head.lane] = max(head.largest_ms, found.get(head.lane, head.largest_ms))
    return found


def _tables(subplan: Subplan, pieces: Sequence[Piece], numbers: Mapping[str, int]) -> dict[str, pa.Table]:
    """The rows of each leaf that has rows, lane after lane."""
    tables: dict[str, pa.Table] = {}
    by_lane = sorted(pieces, key=lambda piece: piece.head.lane)  # the sort is stable: a lane's pieces stay in order
    for leaf in subplan.rest.sources():
        parts = [part for piece in by_lane if len(part := piece.rows.get(leaf.id, ()))]
        if parts:
            table = pa.concat_tables(parts, promote_options="default")
            if leaf.id in numbers:
                origin = np.full(len(table), numbers[leaf.id], np.int32)
                table = table.append_column(ORIGIN, pa.array(origin))
            tables[leaf.id] = table
    return tables


def _places(tables: Mapping[str, pa.Table], topic_rank: Ints) -> dict[str, Ints]:
    """The place of each row's record in the order of the batch. A record has one place for each source that reads it;
    all rows of the record in that source share this place."""
    if not tables:
        return {}
    order, origin, partition, offset = (
        np.concatenate([ints(table, name) for table in tables.values()])
        for name in (ORDER, ORIGIN, "_rowpartition", "_offset")
    )
    keys = order, topic_rank[origin] * _PARTITIONS + partition, offset, origin
    if all(bool((np.diff(key) >= 0).all()) for key in keys):
        places = _ranks_of_sorted(keys)
    else:
        sort = np.lexsort(keys[::-1])
        places = np.empty(len(order), np.int64)
        places[sort] = _ranks_of_sorted([key[sort] for key in keys])
    lengths = [len(table) for table in tables.values()]
    return dict(zip(tables, np.split(places, np.cumsum(lengths)[:-1]), strict=True))


def _ranks_of_sorted(keys: Sequence[Ints]) -> Ints:
    """A number per row, from 0; it is the same for rows that have the same keys."""
    begins = np.zeros(len(keys[0]), np.bool_)
    for key in keys:
        begins[1:] |= np.diff(key) != 0
    return np.cumsum(begins, dtype=np.int64)


def _numbered(table: pa.Table, sequence: Ints) -> pa.Table:
    """The table in the order of `_seq`; the rows of one record stay in their own order."""
    table = with_columns(table, {"_seq": pa.array(sequence)})
    from_subplan = path_name(0) in table.column_names
    if from_subplan or not (np.diff(sequence) >= 0).all():
        path = path_columns(table) if from_subplan else ()
        table = table.take(pa.array(np.lexsort((*reversed(path), sequence))))
    if from_subplan:
        table = with_columns(table, {"_sub": pa.array(number_within(ints(table, "_seq")))})
    return table.combine_chunks()


def _stream_times(pieces: Sequence[Piece]) -> dict[str, dict[int, int]]:
    merged: dict[str, dict[int, int]] = {}
    for piece in pieces:
        for source_id, times in piece.head.times.items():
            known = merged.setdefault(source_id, {})
            for task, time in times.items():
                known[task] = max(time, known.get(task, time))
    return merged


def _empty(subplan: Subplan, source_id: str) -> pa.Table:
    (source,) = (source for source in subplan.rest.sources() if source.id == source_id)
    return empty_rows(source)


def _headers(tables: Sequence[pa.Table]) -> RecordHeaders | None:
    having = [table for table in tables if RECORD_HEADERS in table.column_names]
    if not having:
        return None
    place = np.concatenate([ints(table, "_seq") for table in having])
    headers = pa.concat_arrays([table[RECORD_HEADERS].combine_chunks() for table in having])
    at_place = np.full(int(place.max()) + 1, -1, np.int64)
    at_place[place] = np.arange(len(place))
    return RecordHeaders(headers.take(pa.array(at_place, mask=at_place < 0)), 1)
