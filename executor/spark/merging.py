"""From the pieces of a bucket to the batch that its operators get: one order over all lanes, and nothing twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from ...logcore.client import TopicPartition
from ..batch import ChangeBatch
from ..operators.columns import Ints, ints, with_columns
from ..record_error import RecordError
from ..sources.source_reader import ReadBatch, RecordHeaders, empty_rows
from ..sources.time_order import lane_ranks, ranks, tables_first
from .pieces import ORDER, RECORD_HEADERS, Piece
from .stages import Stages


def merge(
    stages: Stages,
    pieces: Sequence[Piece],
    ends: Mapping[TopicPartition, int],
    done: Mapping[TopicPartition, int],
) -> ReadBatch:
    """The rows of all pieces in the order that `SourceReader` would give them.

    In: `ends`: where the batch ends, in every lane. `done`: up to where the bucket contains each lane: what lies before
    is left out. Out: `positions` are `ends`.
    """
    origins = _Origins(lane_ranks(stages.plan.sources(), (piece.head.lane for piece in pieces)))
    tables: dict[str, pa.Table] = {}
    for source in tables_first(stages.plan.sources()):
        parts = [
            (piece.head.lane, part)
            for piece in pieces
            if source.id in piece.rows and len(part := _new(piece.rows[source.id], done.get(piece.head.lane, 0)))
        ]
        if parts:
            tables[source.id] = origins.add(source.id, parts)
    places = origins.places()
    stride = max(1, len(tables))
    inputs: dict[str, ChangeBatch] = {}
    for index, (source_id, table) in enumerate(tables.items()):
        inputs[source_id] = ChangeBatch(_numbered(table, places[source_id] * stride + index))
    for source_id, stream_times in _stream_times(pieces).items():
        rows = inputs[source_id].rows if source_id in inputs else None
        if rows is not None:
            inputs[source_id] = ChangeBatch(rows, stream_times)
        else:
            inputs[source_id] = ChangeBatch(_empty(stages, source_id), stream_times)
    return ReadBatch(
        inputs=inputs,
        positions=dict(ends),
        record_count=sum(piece.head.record_count for piece in pieces if _is_new(piece, done)),
        byte_count=sum(piece.head.byte_count for piece in pieces if _is_new(piece, done)),
        errors=[error for piece in pieces for error in piece.head.errors if _is_new_error(error, piece, done)],
        headers=_headers(tables, places, stride),
        topics={chain.source.id: chain.source.topic for chain in stages.chains},
    )


class _Origins:
    """Where each row comes from, over all sources, and with that its place in the batch."""

    def __init__(self, lanes: Mapping[TopicPartition, int]) -> None:
        self._lanes = lanes
        self._by_source: dict[str, tuple[Ints, Ints, Ints]] = {}

    def add(self, source_id: str, parts: Sequence[tuple[TopicPartition, pa.Table]]) -> pa.Table:
        """The rows of one source as one table; remembers their origins."""
        order = [ints(rows, ORDER) for _, rows in parts]
        lane = [np.full(len(rows), self._lanes[lane], np.int64) for lane, rows in parts]
        offset = [ints(rows, "_offset") for _, rows in parts]
        self._by_source[source_id] = (np.concatenate(order), np.concatenate(lane), np.concatenate(offset))
        return pa.concat_tables([rows for _, rows in parts], promote_options="default")

    def places(self) -> dict[str, Ints]:
        """The place of each row's record; rows of one record share it."""
        if not self._by_source:
            return {}
        lengths = [len(order) for order, _, _ in self._by_source.values()]
        order, lane, offset = (
            np.concatenate([columns[index] for columns in self._by_source.values()]) for index in range(3)
        )
        if len(lengths) == 1 and (lane[0] == lane).all() and (np.diff(offset) >= 0).all():
            places = np.concatenate([[0], np.cumsum(np.diff(offset) != 0)]).astype(np.int64)
        else:
            places = _dense_ranks(order, lane, offset)
        return dict(zip(self._by_source, np.split(places, np.cumsum(lengths)[:-1]), strict=True))


def _dense_ranks(order: Ints, lane: Ints, offset: Ints) -> Ints:
    """Rows of one record have one place."""
    by_lane = np.lexsort((offset, lane))
    begins = np.ones(len(by_lane), np.bool_)  # where a record's first row stands
    begins[1:] = (np.diff(lane[by_lane]) != 0) | (np.diff(offset[by_lane]) != 0)
    places = np.empty(len(by_lane), np.int64)
    places[by_lane] = ranks(order[by_lane][begins])[np.cumsum(begins) - 1]
    return places


def _new(rows: pa.Table, done_offset: int) -> pa.Table:
    offsets = ints(rows, "_offset")
    if not len(offsets) or int(offsets.min()) >= done_offset:
        return rows
    return rows.filter(pa.array(offsets >= done_offset))


def _is_new_error(error: RecordError, piece: Piece, done: Mapping[TopicPartition, int]) -> bool:
    """Which record a user's function failed for is not known, so these go with their piece."""
    if error.kind == "function":
        return _is_new(piece, done)
    return error.offset >= done.get(TopicPartition(error.topic, error.partition), 0)


def _is_new(piece: Piece, done: Mapping[TopicPartition, int]) -> bool:
    return piece.head.end > done.get(piece.head.lane, 0)


def _numbered(table: pa.Table, sequence: Ints) -> pa.Table:
    """In the order of `_seq`; the rows of one record stay in theirs."""
    table = with_columns(table.drop_columns([ORDER]), {"_seq": pa.array(sequence)})
    if (np.diff(sequence) >= 0).all():
        return table.combine_chunks()
    return table.take(pa.array(np.argsort(sequence, kind="stable")))


def _stream_times(pieces: Sequence[Piece]) -> dict[str, dict[int, int]]:
    merged: dict[str, dict[int, int]] = {}
    for piece in pieces:
        for source_id, times in piece.head.times.items():
            known = merged.setdefault(source_id, {})
            for task, time in times.items():
                known[task] = max(time, known.get(task, time))
    return merged


def _empty(stages: Stages, source_id: str) -> pa.Table:
    (source,) = (source for source in stages.rest.sources() if source.id == source_id)
    return empty_rows(source)


def _headers(tables: Mapping[str, pa.Table], places: Mapping[str, Ints], stride: int) -> RecordHeaders | None:
    having = {name: table for name, table in tables.items() if RECORD_HEADERS in table.column_names}
    if not having:
        return None
    place = np.concatenate([places[name] for name in having])
    headers = pa.concat_arrays([table[RECORD_HEADERS].combine_chunks() for table in having.values()])
    at_place = np.full(int(max(values.max() for values in places.values())) + 1, -1, np.int64)
    at_place[place] = np.arange(len(place))
    return RecordHeaders(headers.take(pa.array(at_place, mask=at_place < 0)), stride)
