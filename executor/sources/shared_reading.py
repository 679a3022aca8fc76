"""Shares records between queries: they are fetched and decoded once, by the first query that needs them.

Queries whose readers decode a topic in the same way form a circle. When one of them fetches records, it decodes all
columns that any of them reads. The result is kept until all have passed it, and the others take it from here as if they
had fetched it. So each query keeps its own position, pace and transaction, and no query waits for a slow one:

| a query                                          | what happens                                                      |
| ------------------------------------------------ | ----------------------------------------------------------------- |
| is at the end of what others have read           | it reads the next records, for all                                |
| finds its position in what others have read      | it takes all of that at once                                      |
| finds another query reading from its position    | it waits for that read                                            |
| is behind what is kept: new, paused, slow        | it reads alone until its position is among what is kept           |
| reads a column that the others did not           | it reads alone; from then on the column is read for all           |

A record that cannot be decoded fails only for the queries that read the faulty column. So when a record fails, queries
with different columns read alone for a while.
"""

from __future__ import annotations

import math
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final
from weakref import WeakSet, WeakValueDictionary

import numpy as np

from ...logcore.client import LogClient
from ...planner.steps.source import Source
from .lane import LanePiece
from .schemas_topic import SchemasTopic
from .source_decoder import DecodedRecords, SourceDecoder

KEPT_BYTES: Final = 64 * 1024 * 1024
"""The approximate limit of all reads kept for other queries."""

KEPT_S: Final = 10.0  # the longest that a read is kept for queries that do not come: paused or failing ones
ALONE_READS: Final = 100  # unshared reads after a record that could not be decoded

Columns = frozenset[str] | None
"""The names of the decoded columns; None means all."""

_Way = tuple[uuid.UUID | None, tuple[Source, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class SharedRead:
    """The records of a partition from `begin` to `end`. `columns`: the decoded columns, by source. `failed`: a record
    could not be decoded."""

    partition: int
    begin: int
    end: int
    pieces: tuple[LanePiece, ...]
    columns: tuple[Columns, ...]
    failed: bool
    made_at_s: float

    @property
    def byte_count(self) -> int:
        tables = sum(part.table.nbytes for piece in self.pieces for part in piece.decoded)
        return tables + sum(piece.offsets.nbytes for piece in self.pieces)

    def after(self, position: int) -> list[LanePiece]:
        """The records from this position on, without a copy."""
        found = [piece.slice(int(np.searchsorted(piece.offsets, position)), len(piece)) for piece in self.pieces]
        return [piece for piece in found if len(piece)]


class SharedReading:
    """The circles of one log. Thread-safe."""

    def __init__(self, log: LogClient) -> None:
        self._log = log
        self._schemas = SchemasTopic(log)
        self._guard = threading.RLock()  # guards all circles; its holder must not fetch or decode
        self._circles: WeakValueDictionary[_Way, _Circle] = WeakValueDictionary()
        self._kept: dict[SharedRead, _Kept] = {}  # the oldest first
        self.kept_bytes = 0

    def join(self, topic: str, sources: Sequence[Source], positions: Mapping[int, int]) -> SharedReader:
        """Adds a query's reader to its circle. In: the sources that it reads from the topic, and its positions."""
        alike = tuple(replace(s, id="", columns=None, materialized=False, ttl_ms=None) for s in sources)
        way = (self._log.topic_id(topic), alike)  # a topic that was created again has another id
        with self._guard:
            circle = self._circles.get(way)
            if circle is None:
                circle = self._circles[way] = _Circle(alike)
            reader = SharedReader(self, circle, tuple(map(_columns, sources)), positions)
            circle.readers.add(reader)
            for partition, position in positions.items():
                self._recount(circle, partition, math.inf, position)
            circle.columns = tuple(map(_union, circle.columns, reader.columns)) if circle.columns else reader.columns
        return reader

    # -------------------------------------------------------------- for readers

    def decoders(self, circle: _Circle) -> tuple[tuple[Columns, ...], tuple[SourceDecoder, ...]]:
        """The decoders for all columns that any reader of the circle reads, with these columns by source."""
        with self._guard:
            columns = circle.columns
            if circle.decoders is None or circle.decoders[0] != columns:
                made = tuple(
                    SourceDecoder(_reading(source, own), self._schemas.schema)
                    for source, own in zip(circle.sources, columns, strict=True)
                )
                circle.decoders = (columns, made)
            return circle.decoders

    def find(self, reader: SharedReader, partition: int, position: int, max_bytes: int) -> tuple[list[LanePiece], int]:
        """The kept records from the position on, without a gap and of about `max_bytes`; and the offset after them."""
        found: list[LanePiece] = []
        with self._guard:
            while max_bytes > 0 and (read := reader.circle.read_at(partition, position)) and reader.can_use(read):
                pieces = read.after(position)  # reads overlap if two readers read from different positions at once
                found += pieces
                position = read.end
                max_bytes -= sum(piece.byte_count for piece in pieces)
        return found, position

    def claim(self, reader: SharedReader, partition: int, position: int) -> threading.Event | None:
        """None: the caller must read from this position, then `release` it. Otherwise another reader is reading there
        or has just done so: once the event is set, the caller can `find` the records."""
        with self._guard:
            circle = reader.circle
            read = circle.read_at(partition, position)
            if read is not None and reader.can_use(read):
                return _set_event()
            under_way = circle.under_way.get((partition, position))
            if under_way is None:
                circle.under_way[partition, position] = threading.Event()
            return under_way

    def release(self, reader: SharedReader, partition: int, position: int) -> None:
        """Ends a claim and wakes the readers that wait for the read."""
        with self._guard:
            reader.circle.under_way.pop((partition, position)).set()

    def publish(self, reader: SharedReader, read: SharedRead) -> None:
        """Keeps the read if another query has yet to pass it."""
        with self._guard:
            circle, partition, end = reader.circle, read.partition, read.end
            if end <= read.begin:
                return
            before = reader.positions.get(partition, end)
            reader.positions[partition] = max(end, before)
            self._recount(circle, partition, before, max(end, before))  # it may have taken kept reads before this one
            awaited = sum(each.positions.get(partition, math.inf) < end for each in circle.readers)
            if not awaited:
                return
            size = read.byte_count
            circle.reads.setdefault(partition, []).append(read)
            self._kept[read] = _Kept(circle, size, awaited)
            self.kept_bytes += size
            while self.kept_bytes > KEPT_BYTES:
                self._drop(next(iter(self._kept)))

    def passed(self, reader: SharedReader, positions: Mapping[int, int]) -> None:
        """Records that the reader has everything up to these offsets. Drops reads that all readers have passed."""
        with self._guard:
            circle, now = reader.circle, time.monotonic()
            for partition, position in positions.items():
                self._recount(circle, partition, reader.positions.get(partition, math.inf), position)
                reader.positions[partition] = position
                for read in [each for each in circle.reads.get(partition, ()) if now - each.made_at_s > KEPT_S]:
                    self._drop(read)

    def _recount(self, circle: _Circle, partition: int, before: float, now: float) -> None:
        """Updates, after a reader has moved, how many readers await each kept read of the partition, and drops reads
        that none awaits. The caller holds the guard.

        Counting all readers again for each move would be most of the work here with a hundred readers.
        """
        for read in list(circle.reads.get(partition, ())):
            awaits = (now < read.end) - (before < read.end)
            if awaits:
                kept = self._kept[read]
                kept.awaited += awaits
                if not kept.awaited:
                    self._drop(read)

    def leave(self, reader: SharedReader) -> None:
        with self._guard:
            circle = reader.circle
            circle.readers.discard(reader)
            for partition, position in reader.positions.items():
                self._recount(circle, partition, position, math.inf)
            reader.positions.clear()
            if not circle.readers:
                for read in [each for reads in circle.reads.values() for each in reads]:
                    self._drop(read)

    def _drop(self, read: SharedRead) -> None:
        kept = self._kept.pop(read)
        self.kept_bytes -= kept.size
        kept.circle.reads[read.partition].remove(read)


@dataclass(slots=True, eq=False)
class _Kept:
    """`size`: in bytes. `awaited`: how many readers have not passed its end. A reader that was garbage-collected
    without leaving still counts, so the reads that it awaits are kept until they are too old."""

    circle: _Circle
    size: int
    awaited: int


@dataclass(eq=False)
class _Circle:
    """`sources`: how its readers decode. `columns`: those that any reader reads or has read, by source. `reads`: the
    kept reads by partition, oldest first. `under_way`: the claimed reads by partition and position. `alone`: the number
    of further reads that queries with different columns do not share."""

    sources: tuple[Source, ...]
    readers: WeakSet[SharedReader] = field(default_factory=lambda: WeakSet())
    columns: tuple[Columns, ...] = ()
    decoders: tuple[tuple[Columns, ...], tuple[SourceDecoder, ...]] | None = None
    reads: dict[int, list[SharedRead]] = field(default_factory=dict[int, list[SharedRead]])
    under_way: dict[tuple[int, int], threading.Event] = field(default_factory=dict[tuple[int, int], threading.Event])
    alone: int = 0

    def read_at(self, partition: int, position: int) -> SharedRead | None:
        """The newest read that contains the position."""
        for read in reversed(self.reads.get(partition, ())):
            if read.begin <= position < read.end:
                return read
        return None


class SharedReader:
    """One query's membership in a circle. Not thread-safe.

    `positions`: by partition, the offset up to which it has read.
    """

    def __init__(
        self, reading: SharedReading, circle: _Circle, columns: tuple[Columns, ...], positions: Mapping[int, int]
    ) -> None:
        self._reading = reading
        self.circle = circle
        self.columns = columns
        self.positions = dict(positions)

    @property
    def is_alone(self) -> bool:
        """Whether no other query reads the topic in this way, or a shared record recently failed to decode."""
        if self.circle.alone > 0 and self.circle.columns != self.columns:
            self.circle.alone -= 1
            return True
        return len(self.circle.readers) < 2

    def decoders(self) -> tuple[tuple[Columns, ...], tuple[SourceDecoder, ...]]:
        """The decoders for shared reads, with their columns by source."""
        return self._reading.decoders(self.circle)

    def find(self, partition: int, position: int, max_bytes: int) -> tuple[list[LanePiece], int]:
        """The records from the position on that others have read, with this query's columns; and the offset after
        them."""
        pieces, end = self._reading.find(self, partition, position, max_bytes)
        return [self.own(piece) for piece in pieces], end

    def claim(self, partition: int, position: int) -> threading.Event | None:
        return self._reading.claim(self, partition, position)

    def release(self, partition: int, position: int) -> None:
        self._reading.release(self, partition, position)

    def publish(self, read: SharedRead) -> None:
        self._reading.publish(self, read)

    def passed(self, positions: Mapping[int, int]) -> None:
        self._reading.passed(self, positions)

    def leave(self) -> None:
        """Leaves the circle: no reads are kept for this query any more."""
        self._reading.leave(self)

    def share_no_more(self) -> None:
        """Stops sharing for a while, because a record failed to decode that other queries may be able to decode."""
        self.circle.alone = ALONE_READS

    def can_use(self, read: SharedRead) -> bool:
        """Whether the read has what this query's own decoders would return."""
        if read.failed:
            return read.columns == self.columns
        return all(map(_contains, read.columns, self.columns))

    def own(self, piece: LanePiece) -> LanePiece:
        """The piece with only the columns that this query reads."""
        decoded = tuple(map(_only, piece.decoded, self.columns))
        return replace(piece, decoded=decoded)


def _set_event() -> threading.Event:
    event = threading.Event()
    event.set()
    return event


def _columns(source: Source) -> Columns:
    return None if source.columns is None else frozenset(source.columns)


def _union(one: Columns, other: Columns) -> Columns:
    return None if one is None or other is None else one | other


def _contains(whole: Columns, part: Columns) -> bool:
    return whole is None or (part is not None and part <= whole)


def _reading(source: Source, columns: Columns) -> Source:
    return replace(source, columns=None if columns is None else tuple(sorted(columns)))


def _only(decoded: DecodedRecords, columns: Columns) -> DecodedRecords:
    names = decoded.table.column_names
    kept = names if columns is None else [name for name in names if name[0] != "v" or name in columns]
    return decoded if len(kept) == len(names) else replace(decoded, table=decoded.table.select(kept))
