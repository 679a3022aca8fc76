"""Reads a source's topic as it grows, for rows that are kept between the queries of clients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from ...logcore.client import LogClient, Offsets, TopicPartition
from ...logcore.errors import OffsetOutOfRange
from ...planner.steps.source import Source
from ..sources.same_topic import check_same
from ..sources.source_reader import ReadBatch, SourceReader

_BATCH_BYTES: Final = 16 * 1024 * 1024

Bounds = Mapping[TopicPartition, Offsets]
"""The first offset and the end of each partition."""


class FollowedTopic:
    """Gives each record exactly once, also after an error. It skips records that retention deletes before they are
    read. Not thread-safe, except `bounds`.

    `topic_id`: the id of the topic. `positions`: the offsets after the last batch that was taken.
    """

    def __init__(self, source: Source, client: LogClient) -> None:
        self._client = client
        self._source = source
        self.topic_id = client.topic_id(source.topic)
        lanes = [TopicPartition(source.topic, at) for at in range(client.partition_count(source.topic))]
        self.positions = {lane: client.offsets(*lane).log_start_offset for lane in lanes}
        self._reader = self._reader_from_here()
        self._is_past = False  # whether the reader is past `positions`

    def bounds(self) -> dict[TopicPartition, Offsets]:
        """The current bounds of each partition, including new partitions. Any thread may call it."""
        count = max(len(self.positions), self._client.partition_count(self._source.topic))
        lanes = [TopicPartition(self._source.topic, at) for at in range(count)]
        return {lane: self._client.offsets(*lane) for lane in lanes}

    def check(self) -> None:
        """Raises `PositionLost` if the topic was recreated: then this object cannot continue."""
        check_same(self._client, self._source.topic, self.topic_id)

    def batches(self, bounds: Bounds) -> Iterator[ReadBatch]:
        """The committed records within `bounds` that were not taken yet. The caller calls `taken` after each batch and
        before the next one. The next call returns a batch that was not taken again. Raises `PositionLost`."""
        self._pass_over_dropped(bounds)
        ends = {lane: found.last_stable_offset for lane, found in bounds.items()}
        while any(self.positions[lane] < end for lane, end in ends.items()):
            self._is_past = True
            batch = self._read(ends)
            if batch is None:
                self.taken()
            else:
                yield batch

    def taken(self) -> None:
        """Notes that the caller has taken the last batch."""
        self.positions = self._reader.fetch_positions
        self._is_past = False

    def _read(self, ends: Mapping[TopicPartition, int]) -> ReadBatch | None:
        while True:
            try:
                return self._reader.read(_BATCH_BYTES, ends)
            except OffsetOutOfRange:  # retention was faster
                before = self.positions
                self._pass_over_dropped(self.bounds())
                if self.positions == before:
                    raise
                self._is_past = True

    def _pass_over_dropped(self, bounds: Bounds) -> None:
        """Moves the reader to the first record that was not taken and still exists, unless it is already there."""
        reached = {lane: max(self.positions.get(lane, 0), found.log_start_offset) for lane, found in bounds.items()}
        positions = {**self.positions, **reached}
        if self._is_past or positions != self.positions:
            self.positions = positions
            self._reader = self._reader_from_here()
            self._is_past = False

    def _reader_from_here(self) -> SourceReader:
        reader = SourceReader(self._client, [self._source], self.positions, time_order=False)
        self.check()  # after the reader was made, which would accept a new topic of the same name
        return reader
