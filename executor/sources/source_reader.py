"""From the topics that a query reads to one ChangeBatch per source: merged by time and numbered.

How bytes become columns is in `source_decoder.py`, which records come next within a topic in `topic_feed.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...logcore.client import LogClient, TopicPartition
from ...planner.steps.source import Source
from ..batch import ChangeBatch
from ..record_error import RecordError
from .time_order import Times, ranks, ready_counts, tables_first, topics_in_order
from .topic_feed import FeedRecords, TopicFeed


@dataclass(frozen=True, slots=True)
class RecordHeaders:
    """The headers of a batch's records, found by `_seq`."""

    headers: pa.Array
    sequence_stride: int

    def of(self, sequence: pa.Array) -> pa.Array:
        """The headers of the records with these numbers."""
        numbers = sequence.to_numpy() // self.sequence_stride
        return self.headers.take(pa.array(numbers, mask=(numbers < 0) | (numbers >= len(self.headers))))


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """One batch of a query's input.

    `inputs`: by the id of the Source step; sources without rows are there too. `positions`: what to commit once the
    batch is done. `more`: whether there is more to read right now. `headers`: None where no record has any. `times`: of
    each record, at its place in the batch, what the order goes by; -1 where it cannot be read. `elapsed_ms`: in place
    of input, how long there was none.
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

    def origin(self, sequence: int) -> tuple[str, int, int]:
        """Topic, partition and offset of the input row with this `_seq`."""
        for source_id, changes in self.inputs.items():
            found = np.flatnonzero(changes.rows["_seq"].to_numpy() == sequence)
            if len(found):
                row = int(found[0])
                at = (changes.rows[name][row].as_py() for name in ("_rowpartition", "_offset"))
                return self.topics[source_id], *at
        return "", -1, -1


class SourceReader:
    """Reads the sources of one query. Not for several threads at once.

    In: `positions` names every partition to read. `time_order`: merge partitions by time (else partition by partition,
    which is cheaper and right where partitions never meet).
    """

    def __init__(
        self,
        log: LogClient,
        sources: Sequence[Source],
        positions: Mapping[TopicPartition, int],
        *,
        time_order: bool = True,
    ) -> None:
        self._time_order = time_order
        topics = topics_in_order(sources)
        self._feeds = [
            TopicFeed(
                log,
                topic,
                [source for source in tables_first(sources) if source.topic == topic],
                {at.partition: offset for at, offset in sorted(positions.items()) if at.topic == topic},
            )
            for topic in topics
        ]
        self._stride = max(len(feed.sources) for feed in self._feeds)
        self._lane_count = sum(len(feed.partitions) for feed in self._feeds)

    @property
    def fetch_positions(self) -> dict[TopicPartition, int]:
        """Where the next fetch begins: what to wait for."""
        return {at: offset for feed in self._feeds for at, offset in feed.fetch_positions.items()}

    def read(
        self, max_bytes: int, ends: Mapping[TopicPartition, int] | None = None, max_records: int | None = None
    ) -> ReadBatch | None:
        """The next batch, about `max_bytes` large and of at most `max_records`; None if there is nothing to read.

        In: `ends`: read to these offsets, exclusive, and only partitions that it names.
        """
        share = max(1, max_bytes // self._lane_count)
        for feed in self._feeds:
            feed.fill(share, ends)
        counts = self._counts(max_records)
        taken = [feed.take(None if counts is None else counts[index]) for index, feed in enumerate(self._feeds)]
        return self._batch(taken, None)

    def read_in_order(self, order: Sequence[TopicPartition]) -> ReadBatch | None:
        """Reads exactly the next records of these partitions, in this order, whatever their timestamps.

        A partition stands in `order` once for each of its records; control records do not count.
        """
        wanted = {at: order.count(at) for at in dict.fromkeys(order)}
        for feed in self._feeds:
            ends = {at: 2**62 for at in feed.positions if at in wanted}
            feed.fill(2**31 - 1, ends)
        taken = [
            feed.take(
                {partition: wanted.get(TopicPartition(feed.topic, partition), 0) for partition in feed.partitions}
            )
            for feed in self._feeds
        ]
        return self._batch(taken, order)

    def _counts(self, max_records: int | None) -> list[dict[int, int]] | None:
        """How many pending records of each feed's partitions can go; None for all."""
        merged = self._time_order and self._lane_count > 1
        if not merged and max_records is None:
            return None
        lanes = [(index, partition) for index, feed in enumerate(self._feeds) for partition in feed.partitions]
        state = [self._feeds[index].lane(partition) for index, partition in lanes]
        times = [lane_times for lane_times, _ in state]
        ready = [len(lane_times) for lane_times in times]
        if merged:
            ready = ready_counts(times, [complete for _, complete in state])
        if max_records is not None and sum(ready) > max_records:
            ready = _first(times, ready, max_records, by_time=merged)
        counts: list[dict[int, int]] = [{} for _ in self._feeds]
        for (index, partition), count in zip(lanes, ready, strict=True):
            counts[index][partition] = count
        return counts

    def _batch(self, taken: list[FeedRecords | None], order: Sequence[TopicPartition] | None) -> ReadBatch | None:
        positions = {at: offset for feed in self._feeds for at, offset in feed.positions.items()}
        present = [records for records in taken if records is not None]
        if not present:
            return None
        numbers = self._numbers(taken, order)
        inputs: dict[str, ChangeBatch] = {}
        errors: dict[tuple[str, int, int], RecordError] = {}
        for feed, records, places in zip(self._feeds, taken, numbers, strict=True):
            for index, source in enumerate(feed.sources):
                inputs[source.id] = _change_batch(source, index, records, places * self._stride + index)
                for error in records.decoded[index].errors if records is not None else ():
                    errors.setdefault((error.topic, error.partition, error.offset), error)
        return ReadBatch(
            inputs=inputs,
            positions=positions,
            record_count=sum(map(len, present)),
            byte_count=sum(records.byte_count for records in present),
            errors=list(errors.values()),
            headers=self._headers(taken, numbers),
            more=any(feed.has_more for feed in self._feeds),
            topics={source.id: feed.topic for feed in self._feeds for source in feed.sources},
            times=_by_place([records.times for records in present], np.concatenate(numbers)),
            sequence_stride=self._stride,
        )

    def _numbers(
        self, taken: list[FeedRecords | None], order: Sequence[TopicPartition] | None
    ) -> list[npt.NDArray[np.int64]]:
        """The place of each record in the batch, per feed."""
        lengths = [0 if records is None else len(records) for records in taken]
        if order is not None:
            places = self._places_in(taken, order)
        elif not self._time_order or self._lane_count == 1:
            places = np.arange(sum(lengths), dtype=np.int64)
        else:
            places = ranks(np.concatenate([records.running_times for records in taken if records is not None]))
        return np.split(places, np.cumsum(lengths)[:-1])

    def _places_in(self, taken: list[FeedRecords | None], order: Sequence[TopicPartition]) -> npt.NDArray[np.int64]:
        where: dict[TopicPartition, list[int]] = {}
        for place, at in enumerate(order):
            where.setdefault(at, []).append(place)
        places: list[int] = []
        for feed, records in zip(self._feeds, taken, strict=True):
            if records is None:
                continue
            for partition in feed.partitions:
                count = int(np.count_nonzero(records.partitions == partition))
                places += where.get(TopicPartition(feed.topic, partition), [])[:count]
        return np.array(places, np.int64)

    def _headers(self, taken: list[FeedRecords | None], numbers: list[npt.NDArray[np.int64]]) -> RecordHeaders | None:
        having = [records.headers for records in taken if records is not None and records.headers is not None]
        if not having:
            return None
        parts: list[pa.Array] = []
        for records in taken:
            if records is not None:
                parts.append(pa.nulls(len(records), having[0].type) if records.headers is None else records.headers)
        places = np.concatenate(numbers)
        at_place = np.full(int(places.max()) + 1, -1, np.int64)
        at_place[places] = np.arange(len(places))
        return RecordHeaders(pa.concat_arrays(parts).take(pa.array(at_place, mask=at_place < 0)), self._stride)


def _by_place(times: list[Times], places: npt.NDArray[np.int64]) -> Times:
    found = np.full(int(places.max(initial=-1)) + 1, -1, np.int64)
    found[places] = np.concatenate(times)
    return found


def _first(times: list[Times], ready: list[int], max_records: int, *, by_time: bool) -> list[int]:
    """How many records of each lane are among the first `max_records` of those that are ready."""
    lane_of = np.repeat(np.arange(len(ready)), ready)
    if by_time:
        merged = np.concatenate([lane_times[:count] for lane_times, count in zip(times, ready, strict=True)])
        lane_of = lane_of[np.argsort(merged, kind="stable")]
    return np.bincount(lane_of[:max_records], minlength=len(ready)).tolist()


def _change_batch(
    source: Source, index: int, records: FeedRecords | None, numbers: npt.NDArray[np.int64]
) -> ChangeBatch:
    if records is None:
        return ChangeBatch(empty_rows(source))
    decoded = records.decoded[index]
    null_rows = decoded.table["_null"]
    weight = np.ones(len(records), np.int8)
    if source.kind == "TABLE":
        weight[null_rows.to_numpy()] = -1
    table = pa.table(
        {
            **{name: decoded.table[name] for name in decoded.table.column_names if name != "_null"},
            "_seq": numbers,
            "_sub": np.zeros(len(records), np.int32),
            "_part": records.partitions,
            "_ts": decoded.times,
            "_weight": weight,
            "_null": null_rows,
            "_rowpartition": records.partitions,
            "_offset": records.offsets,
        }
    )
    ok = decoded.ok
    all_ok = bool(ok.all())
    stream_time = _largest_times(records.partitions, decoded.times)
    in_order = len(numbers) < 2 or bool((np.diff(numbers) > 0).all())
    if not in_order:
        order = np.argsort(numbers, kind="stable")
        table = table.take(pa.array(order if all_ok else order[ok[order]]))
    elif not all_ok:
        table = table.filter(pa.array(ok))
    return ChangeBatch(table, stream_time)


def times_only(source: Source) -> Source:
    """The source with the columns only that its rowtime needs."""
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
    return pa.schema(fields).empty_table()


def _largest_times(partitions: npt.NDArray[np.int32], times: npt.NDArray[np.int64]) -> dict[int, int]:
    largest: dict[int, int] = {}
    for partition in np.unique(partitions).tolist():
        time = int(times[partitions == partition].max())
        if time >= 0:
            largest[partition] = time
    return largest
