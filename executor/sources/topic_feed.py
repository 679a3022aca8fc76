"""The records of one topic as its readers want them: fetched from all partitions, decoded once per source.

A feed keeps what was fetched and not yet taken, so that the reader can let records of other topics go first.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...logcore.client import FetchedRows, LogClient, TopicPartition
from ...planner.steps.source import Source
from ..record_error import RecordError
from .schemas_topic import SchemasTopic
from .source_decoder import DecodedRecords, Records, SourceDecoder
from .time_order import Times, running_maximum

ERRORS_MAX = 10_000  # in one batch, about: an error costs kilobytes and the exact reading of its record
PIECE_ROWS = 200_000  # decoded at once
WARY_PIECE_ROWS = 5_000  # after a batch with too many errors,
WARY_SHARE = 16  # when this share of the usual bytes is fetched


@dataclass(frozen=True, slots=True)
class FeedRecords:
    """Decoded records, partition after partition, each in offset order.

    `decoded`: per source of the topic. `times`: what the order goes by; -1 where a record cannot be read.
    `headers`: None where no record has any.
    """

    partitions: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]
    times: Times
    decoded: tuple[DecodedRecords, ...]
    headers: pa.Array | None
    byte_count: int

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def running_times(self) -> Times:
        """The largest time of the record's partition so far."""
        running = np.empty(len(self), np.int64)
        for _, start, end in _stretches(self.partitions):
            running[start:end] = running_maximum(self.times[start:end])
        return running


class TopicFeed:
    """Reads one topic from the given positions on.

    `sources` are the steps that read it; a self-join has two. Not for several threads at once.
    """

    def __init__(self, log: LogClient, topic: str, sources: Sequence[Source], positions: Mapping[int, int]) -> None:
        self._log = log
        self.topic = topic
        self.sources = tuple(sources)
        schemas = SchemasTopic(log)
        self._decoders = tuple(SourceDecoder(source, schemas.schema) for source in sources)
        self._fetch_positions = dict(positions)
        self._complete = dict.fromkeys(positions, False)
        self._taken_positions = dict(positions)
        self._pending: FeedRecords | None = None
        self._clean = True  # the last records that were decoded had few errors

    @property
    def partitions(self) -> tuple[int, ...]:
        return tuple(self._fetch_positions)

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """Where each partition goes on after everything that was taken."""
        return {TopicPartition(self.topic, partition): at for partition, at in self._taken_positions.items()}

    @property
    def fetch_positions(self) -> dict[TopicPartition, int]:
        """Where each partition goes on after everything that was fetched."""
        return {TopicPartition(self.topic, partition): at for partition, at in self._fetch_positions.items()}

    @property
    def has_more(self) -> bool:
        """Whether something is pending or was not fetched yet."""
        return (self._pending is not None and len(self._pending) > 0) or not all(self._complete.values())

    def fill(self, max_bytes: int, ends: Mapping[TopicPartition, int] | None) -> None:
        """Fetches what there is, in partitions of which nothing is pending; `max_bytes` for each.

        In: `ends`: offsets at which to stop, exclusive; partitions that it does not name are not read.
        """
        pieces: list[Records] = []
        byte_count = 0
        waiting = self._partitions_pending()
        if ends is None and not self._clean:
            max_bytes = max(1, max_bytes // WARY_SHARE)
        for partition in self._fetch_positions:
            end = None if ends is None else ends.get(TopicPartition(self.topic, partition), 0)
            if partition in waiting:
                self._complete[partition] = False
            else:
                new, size = self._fetch(partition, max_bytes, end)
                pieces += new
                byte_count += size
        if pieces:
            self._append(self._decode(pieces, byte_count, may_stop=ends is None))

    def lane(self, partition: int) -> tuple[Times, bool]:
        """The running maxima of what is pending in this partition, and whether that is all there is."""
        pending = self._pending
        if pending is None:
            return np.empty(0, np.int64), self._complete[partition]
        return running_maximum(pending.times[pending.partitions == partition]), self._complete[partition]

    def take(self, counts: Mapping[int, int] | None = None) -> FeedRecords | None:
        """Takes the first records of each partition out of what is pending; all of them without `counts`."""
        pending = self._pending
        if pending is None:
            self._taken_positions = dict(self._fetch_positions)
            return None
        if counts is None or sum(counts.values()) == len(pending):
            self._pending = None
            self._taken_positions = dict(self._fetch_positions)
            return pending
        mask = _first_of_each(pending.partitions, counts)
        taken, self._pending = _select(pending, mask), _select(pending, ~mask)
        for partition in self._fetch_positions:
            left = self._pending.offsets[self._pending.partitions == partition]
            self._taken_positions[partition] = int(left[0]) if len(left) else self._fetch_positions[partition]
        return taken if len(taken) else None

    def _partitions_pending(self) -> set[int]:
        return set() if self._pending is None else set(np.unique(self._pending.partitions).tolist())

    def _fetch(self, partition: int, max_bytes: int, end: int | None) -> tuple[list[Records], int]:
        position = self._fetch_positions[partition]
        if end is not None and position >= end:
            self._complete[partition] = True
            return [], 0
        fetched = self._log.fetch(self.topic, partition, position, max_bytes=max_bytes)
        pieces: list[Records] = []
        size = 0
        for run in fetched.runs:
            if isinstance(run, FetchedRows):
                table = run.table
                offsets = table["offset"].to_numpy()
                size += table.nbytes
                if end is not None and len(offsets) and offsets[-1] >= end:
                    table = table.slice(0, int(np.searchsorted(offsets, end)))
                    offsets = offsets[: table.num_rows]
                pieces.append(Records(np.full(len(offsets), partition, np.int32), offsets, rows=table))
            else:
                batch = run.batch
                size += batch.nbytes
                offsets = run.row_offsets
                if end is not None and len(offsets) and offsets[-1] >= end:
                    offsets = offsets[: int(np.searchsorted(offsets, end))]
                    batch = batch.slice(0, len(offsets))
                pieces.append(
                    Records(
                        np.full(len(offsets), partition, np.int32),
                        offsets,
                        columns=batch,
                        timestamp_ms=run.timestamp_ms,
                    )
                )
        next_offset = fetched.next_offset if end is None else min(fetched.next_offset, end)
        self._fetch_positions[partition] = next_offset
        self._complete[partition] = next_offset >= (fetched.last_stable_offset if end is None else end)
        return [piece for piece in pieces if len(piece)], size

    def _decode(self, pieces: list[Records], byte_count: int, *, may_stop: bool) -> FeedRecords:
        """Row-form pieces are decoded in one go, columnar ones each on its own.

        `may_stop`: when there are too many errors for one batch, the rest is fetched again for the next one.
        """
        rows = [piece for piece in pieces if piece.rows is not None]
        parts = _cut(_joined(rows), PIECE_ROWS if self._clean else WARY_PIECE_ROWS) if rows else []
        parts += [piece for piece in pieces if piece.columns is not None]
        decoded, error_count = [], 0
        for part in parts:
            decoded.append([decoder.decode(part) for decoder in self._decoders])
            error_count += max(len(one.errors) for one in decoded[-1])
            if may_stop and error_count > ERRORS_MAX:
                break
        self._clean = error_count <= ERRORS_MAX
        result = _collected(parts[: len(decoded)], decoded, byte_count * len(decoded) // len(parts))
        if len(decoded) < len(parts):
            result = self._without_gaps(result, parts[len(decoded) :])
        if len(decoded) > 1:
            result = _select(result, np.lexsort((result.offsets, result.partitions)))
        return result

    def _without_gaps(self, records: FeedRecords, left: list[Records]) -> FeedRecords:
        """The records before those that were left undecoded, which are fetched again."""
        kept = np.ones(len(records), np.bool_)
        for part in left:
            for partition in np.unique(part.partitions).tolist():
                first = int(part.offsets[part.partitions == partition].min())
                kept &= (records.partitions != partition) | (records.offsets < first)
                self._fetch_positions[partition] = min(first, self._fetch_positions[partition])
                self._complete[partition] = False
        return records if kept.all() else _select(records, kept)

    def _append(self, new: FeedRecords) -> None:
        if self._pending is None or not len(self._pending):
            self._pending = new
            return
        both = _concatenated(self._pending, new)
        self._pending = _select(both, np.lexsort((both.offsets, both.partitions)))


def _cut(records: Records, rows: int) -> list[Records]:
    """In pieces of so many rows at most."""
    assert records.rows is not None
    if len(records) <= rows:
        return [records]
    return [
        Records(records.partitions[at : at + rows], records.offsets[at : at + rows], rows=records.rows.slice(at, rows))
        for at in range(0, len(records), rows)
    ]


def _collected(parts: list[Records], decoded: list[list[DecodedRecords]], byte_count: int) -> FeedRecords:
    """`decoded`: of each part, by each decoder."""
    together = tuple(_together(list(of_decoder)) for of_decoder in zip(*decoded, strict=True))
    return FeedRecords(
        partitions=np.concatenate([part.partitions for part in parts]),
        offsets=np.concatenate([part.offsets for part in parts]),
        times=together[0].times,
        decoded=together,
        headers=_headers([part for part in parts if part.rows is not None], sum(map(len, parts))),
        byte_count=byte_count,
    )


def _joined(pieces: list[Records]) -> Records:
    if len(pieces) == 1:
        return pieces[0]
    return Records(
        np.concatenate([piece.partitions for piece in pieces]),
        np.concatenate([piece.offsets for piece in pieces]),
        rows=pa.concat_tables([piece.rows for piece in pieces if piece.rows is not None]),
    )


def _together(parts: list[DecodedRecords]) -> DecodedRecords:
    if len(parts) == 1:
        return parts[0]
    return DecodedRecords(
        pa.concat_tables([part.table for part in parts]),
        np.concatenate([part.times for part in parts]),
        np.concatenate([part.ok for part in parts]),
        [error for part in parts for error in part.errors],
    )


def _headers(row_parts: list[Records], count: int) -> pa.Array | None:
    """The headers of all records; those in columnar form, which come last, have none."""
    if not row_parts:
        return None
    listed = [
        part.rows["headers"] for part in row_parts if part.rows is not None and "headers" in part.rows.column_names
    ]
    if not listed:
        return None
    headers = pa.chunked_array([chunk for column in listed for chunk in column.chunks], listed[0].type).combine_chunks()
    if headers.null_count == len(headers) or len(headers.flatten()) == 0:
        return None
    return pa.concat_arrays([headers, pa.nulls(count - len(headers), headers.type)])


def _stretches(partitions: npt.NDArray[np.int32]) -> list[tuple[int, int, int]]:
    """(partition, start, end) of each run of equal partitions."""
    bounds = [0, *(np.flatnonzero(np.diff(partitions)) + 1).tolist(), len(partitions)]
    return [(int(partitions[a]), a, b) for a, b in itertools.pairwise(bounds)]


def _first_of_each(partitions: npt.NDArray[np.int32], counts: Mapping[int, int]) -> npt.NDArray[np.bool_]:
    mask = np.zeros(len(partitions), np.bool_)
    for partition, start, end in _stretches(partitions):
        mask[start : min(end, start + counts.get(partition, 0))] = True
    return mask


def _select(records: FeedRecords, selection: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> FeedRecords:
    """In: a mask, or the order in which to take the rows. Errors stay with the records they are about."""
    is_mask = selection.dtype == np.bool_
    chosen = np.flatnonzero(selection) if is_mask else selection
    if not is_mask and np.array_equal(chosen, np.arange(len(records))):
        return records
    indices = pa.array(chosen)
    places: set[tuple[int, int]] = set()
    if any(part.errors for part in records.decoded):
        places.update(zip(records.partitions[chosen].tolist(), records.offsets[chosen].tolist(), strict=True))
    share = len(chosen) / max(1, len(records))
    return FeedRecords(
        records.partitions[chosen],
        records.offsets[chosen],
        records.times[chosen],
        tuple(
            DecodedRecords(
                part.table.take(indices), part.times[chosen], part.ok[chosen], _errors_of(part.errors, places)
            )
            for part in records.decoded
        ),
        None if records.headers is None else records.headers.take(indices),
        int(records.byte_count * share),
    )


def _errors_of(errors: list[RecordError], places: set[tuple[int, int]]) -> list[RecordError]:
    return [error for error in errors if (error.partition, error.offset) in places]


def _concatenated(a: FeedRecords, b: FeedRecords) -> FeedRecords:
    headers = None
    if a.headers is not None or b.headers is not None:
        type_ = (a.headers if a.headers is not None else b.headers).type  # type: ignore[union-attr]
        parts = [pa.nulls(len(r), type_) if r.headers is None else r.headers for r in (a, b)]
        headers = pa.concat_arrays(parts)
    return FeedRecords(
        np.concatenate([a.partitions, b.partitions]),
        np.concatenate([a.offsets, b.offsets]),
        np.concatenate([a.times, b.times]),
        tuple(_together([x, y]) for x, y in zip(a.decoded, b.decoded, strict=True)),
        headers,
        a.byte_count + b.byte_count,
    )
