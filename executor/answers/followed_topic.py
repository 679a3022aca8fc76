"""A source's topic, read as it grows: for rows that are kept from one query of a client to the next."""

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
"""Where each partition begins and ends."""


class FollowedTopic:
    """Gives each record once, also after an error; what retention drops before it is read is passed over. For one
    thread at a time.

    `topic_id`: of the topic that is read. `positions`: behind what was taken in.
    """

    def __init__(self, source: Source, client: LogClient) -> None:
        self._client = client
        self._source = source
        self.topic_id = client.topic_id(source.topic)
        lanes = [TopicPartition(source.topic, at) for at in range(client.partition_count(source.topic))]
        self.positions = {lane: client.offsets(*lane).log_start_offset for lane in lanes}
        self._reader = self._reader_from_here()
        self._is_past = False  # the reader, what was taken in

    def bounds(self) -> dict[TopicPartition, Offsets]:
        """What is there now, in partitions that the topic got meanwhile too. Any thread may ask."""
        count = max(len(self.positions), self._client.partition_count(self._source.topic))
        lanes = [TopicPartition(self._source.topic, at) for at in range(count)]
        return {lane: self._client.offsets(*lane) for lane in lanes}

    def check(self) -> None:
        """Raises `PositionLost` where the topic was created again: then nothing of it can be followed any more."""
        check_same(self._client, self._source.topic, self.topic_id)

    def batches(self, bounds: Bounds) -> Iterator[ReadBatch]:
        """What is committed there and was not taken in yet. Whoever has a batch calls `taken` before the next one; one
        that is not taken comes again with the next call. Raises `PositionLost`."""
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
        """The owner has the batch that it got last."""
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
        """Begins again behind what was taken in, and not before what is there, unless the reader is just there."""
        reached = {lane: max(self.positions.get(lane, 0), found.log_start_offset) for lane, found in bounds.items()}
        positions = {**self.positions, **reached}
        if self._is_past or positions != self.positions:
            self.positions = positions
            self._reader = self._reader_from_here()
            self._is_past = False

    def _reader_from_here(self) -> SourceReader:
        reader = SourceReader(self._client, [self._source], self.positions, time_order=False)
        self.check()  # or the reader takes a new topic of the name for it
        return reader
