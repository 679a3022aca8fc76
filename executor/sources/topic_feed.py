"""Fetches the records of one topic from all its partitions, and decodes them once per source.

Lanes keep records that were fetched but not yet taken, so that the reader can take records of other topics first.
Several threads share the reading and decoding of large fetches.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from millstream.errors import LogError

from ...logcore.client import Fetched, LogClient, TopicPartition
from ...logcore.errors import OffsetOutOfRange
from ...planner.steps.source import Source
from ..formats.wire import SchemaLookup
from ..operators.columns import flat
from ..work_pool import work_pool
from .lane import Lane, LanePiece, joined
from .same_topic import SameTopic
from .schemas_topic import SchemasTopic
from .shared_reading import SharedRead, SharedReader, SharedReading
from .source_decoder import Records, SourceDecoder

ERRORS_MAX = 10_000  # about the most in one batch: an error costs kilobytes and the exact decoding of its record
WAVE_ROWS = 200_000  # rows decoded before the errors are counted
UNIT_ROWS = 10_000  # minimum per thread: fewer rows are decoded in less time than it takes to wake another thread
WARY_ROWS = 5_000  # replaces both after a batch with too many errors
WARY_SHARE = 16  # after such a batch, a fetch is this many times smaller than usual


@dataclass(frozen=True, slots=True)
class _Run:
    """Records of one lane from a fetch, all in the same form (rows or columns)."""

    lane: Lane
    records: Records

    def slice(self, begin: int, end: int) -> _Run:
        return _Run(self.lane, self.records.slice(begin, end))


_Unit = list[_Run]
"""What one thread decodes: several runs in row form, or one in columns."""


class TopicFeed:
    """Reads one topic from the given positions on.

    `sources` are the steps that read it; a self-join has two. `shared`: what other queries have read of it. `schemas`:
    used instead of those in the log. `short`: as in `SameTopic`. Not thread-safe.
    """

    def __init__(
        self,
        log: LogClient,
        topic: str,
        sources: Sequence[Source],
        positions: Mapping[int, int],
        shared: SharedReading | None = None,
        schemas: SchemaLookup | None = None,
        short: bool = False,
    ) -> None:
        self._log = log
        self.topic = topic
        self.sources = tuple(sources)
        lookup = schemas or SchemasTopic(log).schema
        self._decoders = tuple(SourceDecoder(source, lookup) for source in sources)
        self.lanes = tuple(Lane(partition, position) for partition, position in positions.items())
        self._same = SameTopic(log, topic, short=short)
        self._shared = None if shared is None else shared.join(topic, sources, positions)
        self._clean = True  # whether the last decoded records had few errors
        self._is_large = False  # whether the last fetch, or that of its first lanes, had many records

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The position of each partition after all records that were taken."""
        return {TopicPartition(self.topic, lane.partition): lane.position for lane in self.lanes}

    @property
    def fetch_positions(self) -> dict[TopicPartition, int]:
        """The position of each partition after all records that were fetched."""
        return {TopicPartition(self.topic, lane.partition): lane.fetch_position for lane in self.lanes}

    @property
    def has_more(self) -> bool:
        """Whether records are pending or were not fetched yet."""
        return any(len(lane) or not lane.complete for lane in self.lanes)

    @property
    def has_grown(self) -> bool:
        """Whether the topic now has more partitions than this feed reads."""
        with contextlib.suppress(LogError):  # a deleted topic: reading it raises the error
            return self._log.partition_count(self.topic) > len(self.lanes)
        return False

    def check_topic(self) -> None:
        """Raises `PositionLost` if the topic was deleted or created again."""
        self._same.check()

    def close(self) -> None:
        """Ends reading."""
        if self._shared is not None:
            self._shared.leave()

    def fill(
        self,
        max_bytes: int,
        ends: Mapping[TopicPartition, int] | None,
        wanted: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        """Fetches available records of the partitions that have few pending records.

        In: `max_bytes`: for each partition. `ends`: offsets at which to stop, exclusive; partitions that it does not
        name are not read. `wanted`: fetch at least this many records, if so many are available.
        """
        if ends is None and not self._clean:
            max_bytes = max(1, max_bytes // WARY_SHARE)
        due: list[tuple[Lane, int | None]] = []
        for lane in self.lanes:
            at = TopicPartition(self.topic, lane.partition)
            end = None if ends is None else ends.get(at, 0)
            lane.complete = end is not None and lane.fetch_position >= end
            is_low = lane.is_low or (wanted is not None and len(lane) < wanted.get(at, 0))
            if is_low and not lane.complete:
                due.append((lane, end))
        if due and ends is None and self._shared is not None and not self._shared.is_alone:
            self._read_with_others(self._shared, [lane for lane, _ in due], max_bytes)
        elif due:
            self._put(*self._read(due, max_bytes, self._decoders, may_stop=ends is None))
            if self._shared is not None:
                self._shared.passed({lane.partition: lane.fetch_position for lane, _ in due})

    def _read_with_others(self, shared: SharedReader, lanes: Sequence[Lane], max_bytes: int) -> None:
        """Takes what other queries have read, then reads on from there for all, unless another query already does."""
        missing = [lane for lane in lanes if not self._take_shared(shared, lane, max_bytes)]
        events = {lane: shared.claim(lane.partition, lane.fetch_position) for lane in missing}
        mine = [lane for lane, event in events.items() if event is None]
        if mine:
            self._read_for_all(shared, mine, max_bytes)
        left: list[Lane] = []
        for lane, event in events.items():
            if event is not None:
                event.wait()
                if not self._take_shared(shared, lane, max_bytes) and not len(lane):
                    left.append(lane)
        if left:
            self._put(*self._read([(lane, None) for lane in left], max_bytes, self._decoders, may_stop=True))
        shared.passed({lane.partition: lane.fetch_position for lane in lanes})

    def _take_shared(self, shared: SharedReader, lane: Lane, max_bytes: int) -> bool:
        """Takes the records that other queries have read. True if they are as many as a fetch would return."""
        pieces, end = shared.find(lane.partition, lane.fetch_position, max_bytes)
        if end == lane.fetch_position:
            return False
        lane.take_over(pieces, end)
        self._same.check()
        lane.complete = lane.fetch_position >= self._log.offsets(self.topic, lane.partition).last_stable_offset
        return lane.complete or sum(piece.byte_count for piece in pieces) >= max_bytes

    def _read_for_all(self, shared: SharedReader, lanes: Sequence[Lane], max_bytes: int) -> None:
        begins = {lane: lane.fetch_position for lane in lanes}
        try:
            columns, decoders = shared.decoders()
            pieces, left = self._read([(lane, None) for lane in lanes], max_bytes, decoders, may_stop=True)
            failed = any(part.errors for _, piece in pieces for part in piece.decoded)
            if failed and columns != shared.columns:
                shared.share_no_more()
                for lane, begin in begins.items():
                    lane.fetch_position = begin
                self._put(*self._read([(lane, None) for lane in lanes], max_bytes, self._decoders, may_stop=True))
                return
            self._put([(lane, shared.own(piece)) for lane, piece in pieces], left)
            now = time.monotonic()
            for lane, begin in begins.items():
                end = lane.fetch_position
                own = [each for of, each in pieces if of is lane and int(each.offsets[-1]) < end]
                if len(own) > 1:  # otherwise each reader joins their columns by itself
                    own = [joined(own)]
                shared.publish(SharedRead(lane.partition, begin, end, tuple(own), columns, failed, now))
        finally:
            for lane, begin in begins.items():
                shared.release(lane.partition, begin)

    def _read(
        self,
        due: Sequence[tuple[Lane, int | None]],
        max_bytes: int,
        decoders: Sequence[SourceDecoder],
        *,
        may_stop: bool,
    ) -> tuple[list[tuple[Lane, LanePiece]], Sequence[_Run]]:
        """Fetches and decodes. In: `due`: lanes, and the offsets at which to stop. Out: the decoded pieces, and the
        runs to fetch again."""
        runs: list[_Run] = []
        byte_count = 0
        try:
            answers = self._fetched([lane for lane, _ in due], max_bytes)
        except OffsetOutOfRange:
            self._same.check()
            raise
        for (lane, end), fetched in zip(due, answers, strict=True):
            records, size = lane.records(fetched, end)
            runs += [_Run(lane, each) for each in records]
            byte_count += size
        self._same.check()
        return self._decode(runs, byte_count, decoders, may_stop=may_stop) if runs else ([], [])

    def _put(self, pieces: Sequence[tuple[Lane, LanePiece]], left: Sequence[_Run]) -> None:
        for lane, piece in pieces:
            lane.put(piece)
        for run in reversed(left):
            run.lane.cut_off(int(run.records.offsets[0]))

    def _fetched(self, lanes: Sequence[Lane], max_bytes: int) -> list[Fetched]:
        """Fetches the lanes; in parallel if there is much data, because fetching copies and unpacks the bytes."""
        calls = [
            partial(self._log.fetch, self.topic, lane.partition, lane.fetch_position, max_bytes=max_bytes)
            for lane in lanes
        ]
        fetched: list[Fetched] = []
        while len(fetched) < len(lanes) and not self._is_large:
            number = len(fetched)
            fetched.append(calls[number]())
            self._is_large = fetched[-1].next_offset - lanes[number].fetch_position >= UNIT_ROWS
        return fetched + work_pool().side_by_side(calls[len(fetched) :])

    def _decode(
        self, runs: Sequence[_Run], byte_count: int, decoders: Sequence[SourceDecoder], *, may_stop: bool
    ) -> tuple[list[tuple[Lane, LanePiece]], Sequence[_Run]]:
        """In: `may_stop`: if there are too many errors for one batch, leave the rest for the next one."""
        count = sum(len(run.records) for run in runs)
        self._is_large = count >= 2 * UNIT_ROWS
        units = _units(runs, self._unit_rows(count))
        decode = partial(self._decode_unit, decoders=decoders, bytes_per_record=byte_count / count)
        decoded: list[tuple[Lane, LanePiece]] = []
        done = error_count = 0
        for wave in _waves(units, WAVE_ROWS if self._clean else WARY_ROWS):
            for unit, pieces in zip(
                wave, work_pool().side_by_side([partial(decode, unit) for unit in wave]), strict=True
            ):
                decoded += [(run.lane, piece) for run, piece in zip(unit, pieces, strict=True)]
                error_count += max(sum(len(p.decoded[i].errors) for p in pieces) for i in range(len(decoders)))
            done += len(wave)
            if may_stop and error_count > ERRORS_MAX:
                break
        self._clean = error_count <= ERRORS_MAX
        return decoded, [run for unit in units[done:] for run in unit]

    def _unit_rows(self, count: int) -> int:
        if not self._clean:
            return WARY_ROWS
        return max(UNIT_ROWS, -(-count // (2 * work_pool().cores)))  # two units per core: fast threads help slow ones

    def _decode_unit(self, unit: _Unit, decoders: Sequence[SourceDecoder], bytes_per_record: float) -> list[LanePiece]:
        """Decodes the runs, into one piece for each."""
        records = _joined([run.records for run in unit])
        decoded = [decoder.decode(records) for decoder in decoders]
        headers = _headers(records)
        pieces: list[LanePiece] = []
        begin = 0
        for run in unit:
            end = begin + len(run.records)
            of_run = tuple(part.slice(begin, end, run.lane.partition, run.records.offsets) for part in decoded)
            own = None if headers is None else headers.slice(begin, end - begin)
            pieces.append(
                LanePiece(run.lane.partition, run.records.offsets, of_run, own, round(bytes_per_record * (end - begin)))
            )
            begin = end
        return pieces


def _units(runs: Sequence[_Run], rows: int) -> list[_Unit]:
    """Joins or splits runs in row form into units of `rows` rows. Each run in columns is a unit of its own."""
    units: list[_Unit] = []
    room = 0  # rows that still fit into the last unit
    for run in (run for run in runs if run.records.rows is not None):
        at = 0
        while at < len(run.records):
            if not room:
                units.append([])
                room = rows
            end = min(len(run.records), at + room)
            units[-1].append(run.slice(at, end))
            room -= end - at
            at = end
    return units + [[run] for run in runs if run.records.rows is None]


def _waves(units: Sequence[_Unit], rows: int) -> Iterator[list[_Unit]]:
    """Groups the units into waves of about `rows` rows."""
    wave: list[_Unit] = []
    count = 0
    for unit in units:
        wave.append(unit)
        count += sum(len(run.records) for run in unit)
        if count >= rows:
            yield wave
            wave, count = [], 0
    if wave:
        yield wave


def _joined(pieces: Sequence[Records]) -> Records:
    if len(pieces) == 1:
        return pieces[0]
    return Records(
        np.concatenate([piece.partitions for piece in pieces]),
        np.concatenate([piece.offsets for piece in pieces]),
        rows=pa.concat_tables([piece.rows for piece in pieces if piece.rows is not None]),
    )


def _headers(records: Records) -> pa.Array | None:
    """The headers of the records; None if no record has any."""
    if records.rows is None or "headers" not in records.rows.column_names:
        return None
    headers = flat(records.rows, "headers")
    if headers.null_count == len(headers) or len(headers.flatten()) == 0:
        return None
    return headers
