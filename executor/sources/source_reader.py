"""Reads a query's topics into one ChangeBatch per source: merged by time and numbered.

`source_decoder.py` turns bytes into columns; `topic_feed.py` decides which records come next within a topic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...logcore.client import LogClient, TopicPartition
from ...planner.steps.source import Source
from ..batch import KEYED, ChangeBatch
from ..formats.wire import SchemaLookup
from ..record_error import RecordError
from ..work_pool import SLICE_ROWS, work_pool
from .lane import LanePiece, headers_of
from .shared_reading import SharedReading
from .source_decoder import DecodedRecords, has_key_marks
from .time_order import Times, ranks, ready_counts, tables_first, topics_in_order
from .topic_feed import TopicFeed

PARTITIONS_S = 2.0
"""How often the readers of a growing topic check whether it has gained partitions."""


@dataclass(frozen=True, slots=True)
class RecordHeaders:
    """The headers of a batch's records, found by `_seq`."""

    headers: pa.Array
    sequence_stride: int

    def of(self, sequence: pa.Array) -> pa.Array:
        """The headers of the records with these `_seq`."""
        numbers = sequence.to_numpy() // self.sequence_stride
        return self.headers.take(pa.array(numbers, mask=(numbers < 0) | (numbers >= len(self.headers))))


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """One batch of a query's input.

    `inputs`: by the id of the Source step, including sources without rows. `positions`: the offsets to commit once the
    batch is done. `more`: whether there is more to read right now. `headers`: None if no record has headers. `times`:
    by a record's place in the batch, the time that orders it; -1 if it cannot be read. `elapsed_ms`: instead of input,
    how long there was none.
    """

    inputs: dict[str, ChangeBatch]
    positions: dict[TopicPartition, int]
    record_count: int = 0
    byte_count: int = 0
    errors: list[RecordError] = field(default_factory=list)
    headers: RecordHeaders | None = None
    more: bool = False
    topics: Mapping[str, str] = field(default_factory=dict)  # by the id of the Source step
    times: Times = field(default_factory=lambda: np.empty(0, np.int64))
    sequence_stride: int = 1
    elapsed_ms: int = 0

    def place(self, sequence: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The places of the records with these `_seq`."""
        return sequence // self.sequence_stride

    def keyed(self, sequence: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which of the records with these `_seq` have a key, as far as their sources tell (`_keyed`)."""
        marked = [rows for rows in (each.rows for each in self.inputs.values()) if KEYED in rows.column_names]
        having = [rows["_seq"].to_numpy()[rows[KEYED].to_numpy()] for rows in marked]
        return np.isin(sequence, np.concatenate(having)) if having else np.zeros(len(sequence), np.bool_)

    def origin(self, sequence: int) -> tuple[str, int, int]:
        """Topic, partition and offset of the input row with this `_seq`."""
        for source_id, changes in self.inputs.items():
            found = np.flatnonzero(changes.rows["_seq"].to_numpy() == sequence)
            if len(found):
                row = int(found[0])
                at = (changes.rows[name][row].as_py() for name in ("_rowpartition", "_offset"))
                return self.topics[source_id], *at
        return "", -1, -1


_Number = TypeVar("_Number", bound=np.generic)

Taken = Sequence[Sequence[LanePiece]]
"""The records that a batch takes from each lane."""


class SourceReader:
    """Reads the sources of one query. Not thread-safe.

    In: `positions` names every partition to read. `time_order`: merges partitions by time; otherwise reads partition by
    partition, which is cheaper, and correct if partitions never meet. `shared`: what other queries have read.
    `schemas`: the schemas of the registry, for a caller that may not read its topic. `short`: the reader is used for
    one range of records only, as in a task of Spark.
    """

    def __init__(
        self,
        log: LogClient,
        sources: Sequence[Source],
        positions: Mapping[TopicPartition, int],
        *,
        time_order: bool = True,
        shared: SharedReading | None = None,
        schemas: SchemaLookup | None = None,
        short: bool = False,
    ) -> None:
        self._time_order = time_order
        topics = topics_in_order(sources)
        self._feeds = [
            TopicFeed(
                log,
                topic,
                [source for source in tables_first(sources) if source.topic == topic],
                {at.partition: offset for at, offset in sorted(positions.items()) if at.topic == topic},
                shared,
                schemas,
                short,
            )
            for topic in topics
        ]
        self._stride = max(len(feed.sources) for feed in self._feeds)
        self._lanes = [lane for feed in self._feeds for lane in feed.lanes]
        self._lanes_at = [TopicPartition(feed.topic, lane.partition) for feed in self._feeds for lane in feed.lanes]

    @property
    def fetch_positions(self) -> dict[TopicPartition, int]:
        """Where the next fetch begins: the positions to wait for."""
        return {at: offset for feed in self._feeds for at, offset in feed.fetch_positions.items()}

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """Where the next batch begins; offsets skipped before that hold no records."""
        return {at: lane.position for at, lane in zip(self._lanes_at, self._lanes, strict=True)}

    @property
    def has_more(self) -> bool:
        """Whether records are pending, or the last fetch saw records that it did not fetch."""
        return any(feed.has_more for feed in self._feeds)

    @property
    def has_grown(self) -> bool:
        """Whether a topic has gained partitions that this reader does not know, if it reads all earlier ones."""
        return any(feed.has_grown for feed in self._feeds)

    def check_topics(self) -> None:
        """Raises `PositionLost` if a topic is no longer the one that it has read."""
        for feed in self._feeds:
            feed.check_topic()

    def close(self) -> None:
        """Ends reading: other queries keep no records for this reader any more."""
        for feed in self._feeds:
            feed.close()

    def read(
        self, max_bytes: int, ends: Mapping[TopicPartition, int] | None = None, max_records: int | None = None
    ) -> ReadBatch | None:
        """The next batch, about `max_bytes` large and of at most `max_records`; None if there is nothing to read.

        In: `ends`: reads only the partitions that it names, up to these offsets (exclusive).
        """
        share = self._share(max_bytes)
        for feed in self._feeds:
            feed.fill(share, ends)
        return self._batch(self._counts(max_records), None)

    def _share(self, max_bytes: int) -> int:
        """The most bytes fetched for a lane. Lanes that had nothing more last time, such as those of a table without
        updates, leave part of their share to the others; not all of it, since new records may have come for all."""
        waiting = sum(1 for lane in self._lanes if len(lane) or not lane.complete)
        return max(1, min(2 * max_bytes // len(self._lanes), max_bytes // max(1, waiting)))

    def read_in_order(self, order: Sequence[TopicPartition]) -> ReadBatch | None:
        """Reads exactly the next records of these partitions, in this order, whatever their timestamps.

        `order` names a partition once for each of its records; control records do not count.
        """
        wanted = Counter(order)
        for feed in self._feeds:
            feed.fill(2**31 - 1, {at: 2**62 for at in feed.positions if at in wanted}, wanted)
        return self._batch([wanted[at] for at in self._lanes_at], order)

    @property
    def _merges(self) -> bool:
        return self._time_order and len(self._lanes) > 1

    def _counts(self, max_records: int | None) -> list[int] | None:
        """How many pending records of each lane can be in the batch; None for all."""
        if not self._merges and max_records is None:
            return None
        times = [lane.running_times for lane in self._lanes]
        ready = [len(lane_times) for lane_times in times]
        if self._merges:
            ready = ready_counts(times, [lane.complete for lane in self._lanes])
        if max_records is not None and sum(ready) > max_records:
            ready = _first(times, ready, max_records, by_time=self._merges)
        return ready

    def _batch(self, counts: list[int] | None, order: Sequence[TopicPartition] | None) -> ReadBatch | None:
        """In: how many records of each lane."""
        running = self._running_times(counts) if self._merges and order is None else []
        taken = [lane.take(None if counts is None else counts[i]) for i, lane in enumerate(self._lanes)]
        positions = self.positions
        pieces = [piece for of_lane in taken for piece in of_lane]
        if not pieces:
            return None
        lengths = [sum(map(len, of_lane)) for of_lane in taken]
        places = self._places(lengths, running, order)
        return ReadBatch(
            inputs=self._inputs(taken, np.split(places, np.cumsum(lengths)[:-1])),
            positions=positions,
            record_count=sum(lengths),
            byte_count=sum(piece.byte_count for piece in pieces),
            errors=_errors(pieces),
            headers=_headers(pieces, places, self._stride),
            more=self.has_more,
            topics={source.id: feed.topic for feed in self._feeds for source in feed.sources},
            times=_by_place([piece.times for piece in pieces], places),
            sequence_stride=self._stride,
        )

    def _running_times(self, counts: list[int] | None) -> list[Times]:
        """The running times of the records that the batch takes from each lane."""
        times = [lane.running_times for lane in self._lanes]
        return times if counts is None else [each[:count] for each, count in zip(times, counts, strict=True)]

    def _places(
        self, lengths: list[int], running: list[Times], order: Sequence[TopicPartition] | None
    ) -> npt.NDArray[np.int64]:
        """The place of each record in the batch, lane after lane."""
        if order is not None:
            return self._places_in(lengths, order)
        return ranks(np.concatenate(running)) if running else np.arange(sum(lengths), dtype=np.int64)

    def _places_in(self, lengths: list[int], order: Sequence[TopicPartition]) -> npt.NDArray[np.int64]:
        where: dict[TopicPartition, list[int]] = {}
        for place, at in enumerate(order):
            where.setdefault(at, []).append(place)
        found = [where.get(at, [])[:count] for at, count in zip(self._lanes_at, lengths, strict=True)]
        return np.array([place for of_lane in found for place in of_lane], np.int64)

    def _inputs(self, taken: Taken, places: list[npt.NDArray[np.int64]]) -> dict[str, ChangeBatch]:
        """In: the records taken from each lane, and their places in the batch."""
        inputs: dict[str, ChangeBatch] = {}
        begin = 0
        for feed in self._feeds:
            end = begin + len(feed.lanes)
            pieces = [piece for of_lane in taken[begin:end] for piece in of_lane]
            numbers = _joined(places[begin:end]) * self._stride
            for index, source in enumerate(feed.sources):
                inputs[source.id] = _change_batch(source, index, pieces, numbers + index)
            begin = end
        return inputs


def _errors(pieces: Sequence[LanePiece]) -> list[RecordError]:
    """One error for each record, however many sources could not read it."""
    errors: dict[tuple[str, int, int], RecordError] = {}
    for piece in pieces:
        for part in piece.decoded:
            for error in part.errors:
                errors.setdefault((error.topic, error.partition, error.offset), error)
    return list(errors.values())


def _headers(pieces: Sequence[LanePiece], places: npt.NDArray[np.int64], stride: int) -> RecordHeaders | None:
    """In: the records' places in the batch, piece after piece."""
    listed = headers_of(pieces)
    if listed is None:
        return None
    at_place = np.full(int(places.max()) + 1, -1, np.int64)
    at_place[places] = np.arange(len(places))
    return RecordHeaders(listed.take(pa.array(at_place, mask=at_place < 0)), stride)


def _by_place(times: list[Times], places: npt.NDArray[np.int64]) -> Times:
    found = np.full(int(places.max(initial=-1)) + 1, -1, np.int64)
    found[places] = _joined(times)
    return found


def _first(times: list[Times], ready: list[int], max_records: int, *, by_time: bool) -> list[int]:
    """How many records of each lane are among the first `max_records` of those that are ready."""
    lane_of = np.repeat(np.arange(len(ready)), ready)
    if by_time:
        merged = np.concatenate([lane_times[:count] for lane_times, count in zip(times, ready, strict=True)])
        lane_of = lane_of[np.argsort(merged, kind="stable")]
    return np.bincount(lane_of[:max_records], minlength=len(ready)).tolist()


def _change_batch(
    source: Source, index: int, pieces: Sequence[LanePiece], numbers: npt.NDArray[np.int64]
) -> ChangeBatch:
    """In: `index`: the index of the source in a piece's `decoded`. `numbers`: the records' `_seq`, piece after
    piece."""
    if not pieces:
        return ChangeBatch(empty_rows(source))
    decoded = [piece.decoded[index] for piece in pieces]
    whole = decoded[0].table if len(decoded) == 1 else pa.concat_tables([part.table for part in decoded])
    ok = _joined([part.ok for part in decoded])
    chosen = None if ok.all() else np.flatnonzero(ok)
    if len(numbers) > 1 and not (np.diff(numbers) > 0).all():
        order = _by_number(numbers)
        chosen = order if chosen is None else order[ok[order]]
    if chosen is not None:
        whole, numbers = _taken(whole, chosen), numbers[chosen]
    rows = whole.add_column(whole.schema.get_field_index("_sub"), "_seq", pa.array(numbers))
    return ChangeBatch(rows, _largest_times(pieces, decoded))


def _joined(parts: list[npt.NDArray[_Number]]) -> npt.NDArray[_Number]:
    """The parts joined. A single part, as in a small batch, is not copied."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _by_number(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The order that sorts the numbers, found without comparing them: they are distinct, and their largest is not much
    larger than their count."""
    found = np.full(int(numbers.max()) + 1, -1, np.int64)
    found[numbers] = np.arange(len(numbers))
    return found[found >= 0]


def _taken(table: pa.Table, rows: npt.NDArray[np.int64]) -> pa.Table:
    """These rows of the table. If there are many, the columns are taken in parallel."""
    indices = pa.array(rows)

    def column(name: str) -> pa.Array | pa.ChunkedArray:
        whole = table[name]
        return (whole.chunk(0) if whole.num_chunks == 1 else whole.combine_chunks()).take(indices)

    calls = [partial(column, name) for name in table.column_names]
    large = len(rows) >= SLICE_ROWS
    return pa.table(work_pool().side_by_side(calls) if large else [call() for call in calls], table.column_names)


def times_only(source: Source) -> Source:
    """The source with only the columns that its rowtime needs."""
    if source.timestamp is None:
        return replace(source, columns=())
    names = [source.schema.physical_name(column) for column in source.schema]
    return replace(source, columns=tuple(name for name in names if name in source.timestamp.sql))


def empty_rows(source: Source) -> pa.Table:
    """A batch of this source without rows."""
    fields = [(f"k{i}", column.type.arrow) for i, column in enumerate(source.schema.key)]
    fields += [
        (f"v{i}", column.type.arrow)
        for i, column in enumerate(source.schema.value)
        if source.columns is None or f"v{i}" in source.columns
    ]
    if source.key_window is not None:
        fields += [("_ws", pa.int64()), ("_we", pa.int64())]
    fields += [("_seq", pa.int64()), ("_sub", pa.int32()), ("_part", pa.int32()), ("_ts", pa.int64())]
    fields += [("_weight", pa.int8()), ("_null", pa.bool_()), ("_rowpartition", pa.int32()), ("_offset", pa.int64())]
    fields += [(KEYED, pa.bool_())] if has_key_marks(source) else []
    return pa.schema(fields).empty_table()


def _largest_times(pieces: Sequence[LanePiece], decoded: Sequence[DecodedRecords]) -> dict[int, int]:
    """The largest time by partition, for partitions with a readable record."""
    largest: dict[int, int] = {}
    for piece, part in zip(pieces, decoded, strict=True):
        time = int(part.times.max())
        if time >= 0:
            largest[piece.partition] = max(time, largest.get(piece.partition, time))
    return largest
