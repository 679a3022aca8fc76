"""The positions of a job: the offsets of each partition, and the parts that its tasks read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from millstream.errors import InvalidProperty
from millstream.executor.errors import PositionLost
from millstream.executor.spark.lanes import LaneRange
from millstream.logcore.client import LogClient, TopicPartition

from .row_kinds import RowKind
from .source_options import ReadingPlace

Offsets = dict[int, int]
"""Offsets by partition."""

_READ_ANYWAY: Final = 'go on without them: .option("failOnDataLoss", "false").'


@dataclass(frozen=True, slots=True)
class TopicBounds:
    """The offsets of a topic at one moment: of the first existing record, and after the last readable record."""

    topic: str
    starts: Offsets
    ends: Offsets


def topic_bounds(log: LogClient, kind: RowKind) -> TopicBounds:
    """Raises `PositionLost` if the topic is no longer the job's topic."""
    check_topic(log, kind)
    found = {number: log.offsets(kind.topic, number) for number in range(log.partition_count(kind.topic))}
    return TopicBounds(
        kind.topic,
        {number: bounds.log_start_offset for number, bounds in found.items()},
        {number: bounds.last_stable_offset for number, bounds in found.items()},
    )


def check_topic(log: LogClient, kind: RowKind) -> None:
    """Raises `PositionLost` if the topic was deleted, or deleted and created again: its offsets then mean other
    records."""
    known = log.topic_id(kind.topic)
    if known is None or kind.topic_id is None:
        log.partition_count(kind.topic)  # raises where there is none
    elif str(known) != kind.topic_id:
        raise PositionLost(
            f"the topic {kind.topic} was deleted and created again since the job was planned",
            hint="Load the data frame again; a streaming query starts anew with another checkpointLocation.",
        )


def offsets_at(log: LogClient, place: ReadingPlace, bounds: TopicBounds) -> Offsets:
    """The offsets of a place. Raises `InvalidProperty` for offsets that the topic cannot have."""
    match place.kind:
        case "earliest":
            return dict(bounds.starts)
        case "latest":
            return dict(bounds.ends)
        case "time":
            found = {number: log.offset_at(bounds.topic, number, place.time_ms) for number in bounds.ends}
            return {number: bounds.ends[number] if at is None else at for number, at in found.items()}
        case "offsets":
            _check_offsets(place.offsets, bounds)
            return dict(sorted(place.offsets.items()))


def _check_offsets(given: Mapping[int, int], bounds: TopicBounds) -> None:
    if given.keys() != bounds.ends.keys():
        count = len(bounds.ends)
        partitions = "partition 0" if count == 1 else f"partitions 0 to {count - 1}"
        raise InvalidProperty(
            f"the topic {bounds.topic} has {partitions}, offsets are given for {sorted(given)}",
            hint="Give one offset for each partition.",
        )
    for number, offset in given.items():
        if offset > bounds.ends[number]:
            raise InvalidProperty(
                f"offset {offset} of partition {number} of the topic {bounds.topic} is behind its end, "
                f"{bounds.ends[number]}",
                hint="Give an offset up to the end.",
            )


def without_lost(start: Offsets, bounds: TopicBounds, *, fail: bool) -> Offsets:
    """The start offset of each partition; partitions whose first records are deleted start later.

    Raises `PositionLost` for these if `fail`, and always if a partition ends before its start.
    """
    for number, offset in start.items():
        first, end = bounds.starts.get(number, 0), bounds.ends.get(number, 0)
        where = f"partition {number} of the topic {bounds.topic}"
        if offset > end:
            raise PositionLost(
                f"{where} ends at offset {end}, the job has read up to {offset}: records were lost",
                hint="Start a streaming query anew with another checkpointLocation.",
            )
        if fail and offset < first:
            raise PositionLost(
                f"{where} begins at offset {first}, the job reads from {offset} on: its retention, or somebody, has "
                f"deleted the {first - offset} before it",
                hint=f"Begin later (startingOffsets; a stream needs a new checkpointLocation then), or {_READ_ANYWAY}",
            )
    return {number: max(offset, bounds.starts.get(number, 0)) for number, offset in start.items()}


def parts_between(topic: str, start: Offsets, end: Offsets, parts_min: int = 0) -> list[LaneRange]:
    """The parts for tasks. In: `parts_min`: long partitions are split, so that there are at least about this many
    parts."""
    total = sum(max(0, end[number] - start[number]) for number in end)
    size = max(1, -(-total // parts_min)) if parts_min else max(1, total)
    found: list[LaneRange] = []
    for number in sorted(end):
        length = end[number] - start[number]
        count = -(-length // size)
        cuts = [start[number] + length * i // count for i in range(count + 1)] if length > 0 else []
        lane = TopicPartition(topic, number)
        found += [LaneRange(lane, begin, until) for begin, until in pairwise(cuts)]
    return found
