"""Records that several queries read: fetched and decoded once, by whichever query comes first.

Queries whose readers decode a topic in the same way form a circle. What one of them fetches is decoded to the columns
that any of them reads, and kept until all have passed it; the others take it from here as if they had fetched it. So
each query keeps its own position, pace and transaction, and nobody waits for a slow one:

| a query                                          | what happens                                                      |
| ------------------------------------------------ | ----------------------------------------------------------------- |
| is at the end of what others have read           | it reads on, for all                                              |
| finds its place in what others have read         | it takes all of that at once                                      |
| finds that another one is reading on from there  | it waits for that read                                            |
| is behind what is kept: new, paused, slow        | it reads for itself until its place is found                      |
| reads a column that the others did not           | it reads for itself; from then on the column is read for all      |

A record that cannot be decoded fails only for the queries that read the column at fault. So where one fails, and for a
while after it, queries with different columns read for themselves.
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
"""Of all that is kept for others, about."""

KEPT_S: Final = 10.0  # at most, for queries that do not come: paused ones, and those in trouble
ALONE_READS: Final = 100  # after a record that could not be decoded

Columns = frozenset[str] | None
"""The names of columns that are decoded; None is all."""

_Way = tuple[uuid.UUID | None, tuple[Source, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class SharedRead:
    """What was read of a partition from `begin` to `end`. `columns`: those that were decoded, by source. `failed`: a
    record could not be decoded."""

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
    """The circles of one log. May be used from any thread."""

    def __init__(self, log: LogClient) -> None:
        self._log = log
        self._schemas = SchemasTopic(log)
        self._guard = threading.RLock()  # of all circles; whoever holds it neither fetches nor decodes
        self._circles: WeakValueDictionary[_Way, _Circle] = WeakValueDictionary()
        self._kept: dict[SharedRead, _Kept] = {}  # the oldest first
        self.kept_bytes = 0

    def join(self, topic: str, sources: Sequence[Source], positions: Mapping[int, int]) -> SharedReader:
        """For the reader of one query. In: the sources that it reads of the topic, and where it begins."""
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
        """Of the columns that any of the circle reads."""
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
        """The records from the position on without a gap, of about so many bytes, and where they end."""
        found: list[LanePiece] = []
        with self._guard:
            while max_bytes > 0 and (read := reader.circle.read_at(partition, position)) and reader.can_use(read):
                pieces = read.after(position)  # two who read from different places at a time have read some twice
                found += pieces
                position = read.end
                max_bytes -= sum(piece.byte_count for piece in pieces)
        return found, position

    def claim(self, reader: SharedReader, partition: int, position: int) -> threading.Event | None:
        """None: the caller is to read on from there. Else it is done by another, or was a moment ago: once that is set,
        it can be found."""
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
        """Whoever waits for the read goes on."""
        with self._guard:
            reader.circle.under_way.pop((partition, position)).set()

    def publish(self, reader: SharedReader, read: SharedRead) -> None:
        """Keeps it, where another query comes that way."""
        with self._guard:
            circle, partition, end = reader.circle, read.partition, read.end
            if end <= read.begin:
                return
            reader.positions[partition] = max(end, reader.positions.get(partition, end))
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
        """The reader has everything up to these offsets. What all have passed is dropped."""
        with self._guard:
            circle, now = reader.circle, time.monotonic()
            for partition, position in positions.items():
                self._recount(circle, partition, reader.positions.get(partition, math.inf), position)
                reader.positions[partition] = position
                for read in [each for each in circle.reads.get(partition, ()) if now - each.made_at_s > KEPT_S]:
                    self._drop(read)

    def _recount(self, circle: _Circle, partition: int, before: float, now: float) -> None:
        """A reader has moved: who awaits what is kept of the partition. What nobody awaits is dropped. With the guard.

        To count readers anew for each that moves would be most of what a hundred of them do here.
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
    """`size`: in bytes. `awaited`: how many readers are not past its end; one that was collected without leaving stays
    among them, and so what it awaits until it is old."""

    circle: _Circle
    size: int
    awaited: int


@dataclass(eq=False)
class _Circle:
    """`sources`: how its readers decode. `columns`: those that any of them reads or has read, by source. `reads`: by
    partition, the oldest first. `under_way`: by partition and position. `alone`: so many reads more are not shared by
    queries with different columns."""

    sources: tuple[Source, ...]
    readers: WeakSet[SharedReader] = field(default_factory=lambda: WeakSet())
    columns: tuple[Columns, ...] = ()
    decoders: tuple[tuple[Columns, ...], tuple[SourceDecoder, ...]] | None = None
    reads: dict[int, list[SharedRead]] = field(default_factory=dict[int, list[SharedRead]])
    under_way: dict[tuple[int, int], threading.Event] = field(default_factory=dict[tuple[int, int], threading.Event])
    alone: int = 0

    def read_at(self, partition: int, position: int) -> SharedRead | None:
        """The newest one that holds the position."""
        for read in reversed(self.reads.get(partition, ())):
            if read.begin <= position < read.end:
                return read
        return None


class SharedReader:
    """One query's part in a circle. Not for several threads at once.

    `positions`: by partition, up to where it has read.
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
        """Whether nobody else reads the topic in this way, or reading together has failed lately."""
        if self.circle.alone > 0 and self.circle.columns != self.columns:
            self.circle.alone -= 1
            return True
        return len(self.circle.readers) < 2

    def decoders(self) -> tuple[tuple[Columns, ...], tuple[SourceDecoder, ...]]:
        """For what is to be shared; and their columns, by source."""
        return self._reading.decoders(self.circle)

    def find(self, partition: int, position: int, max_bytes: int) -> tuple[list[LanePiece], int]:
        """The records from the position on that others have read, with its own columns, and where they end."""
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
        """Nothing is kept for it any more."""
        self._reading.leave(self)

    def share_no_more(self) -> None:
        """For a while: a record could not be decoded, and may be whole for others."""
        self.circle.alone = ALONE_READS

    def can_use(self, read: SharedRead) -> bool:
        """Whether this is what its own decoders would give."""
        if read.failed:
            return read.columns == self.columns
        return all(map(_contains, read.columns, self.columns))

    def own(self, piece: LanePiece) -> LanePiece:
        """With the columns only that it reads itself."""
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
