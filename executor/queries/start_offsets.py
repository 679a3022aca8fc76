"""Where a query begins to read a partition: at its start or end, at a time, or at an offset that the user names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import InvalidProperty

from ...logcore.client import FetchedRows, LogClient, Offsets, TopicPartition
from ...planner.physical import PhysicalPlan
from ...planner.steps.source import Source
from ...sql.settings.property_table import OFFSET_RESET, START_OFFSETS
from ...sql.settings.property_values import Reset
from ..columnar import split_columnar

_MAX_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class StartSettings:
    """`reset`: None if it is not set. `offsets`: by topic and partition; they override `reset`."""

    reset: Reset | None = None
    offsets: Mapping[str, Mapping[int, int]] = field(default_factory=dict)

    @staticmethod
    def of(properties: Mapping[str, str]) -> StartSettings:
        """Raises `InvalidProperty`."""
        return StartSettings(OFFSET_RESET.given(properties), START_OFFSETS.of(properties))

    @property
    def from_now_on(self) -> bool:
        """Whether a stream is read from its end."""
        return self.reset in (None, "latest") and not self.offsets


def first_offset(log: LogClient, at: TopicPartition, source: Source, start: StartSettings) -> int:
    """Where a query that has never read the partition begins.

    Without settings, a stream begins at its end and a table at its first record, as in ksqlDB. A time means the first
    record with this timestamp or a later one, or the end if there is none yet. Raises `InvalidProperty` for an offset
    that the log does not have.
    """
    bounds = log.offsets(*at)
    named = start.offsets.get(at.topic, {}).get(at.partition)
    if named is not None:
        return _checked(named, at, bounds)
    reset = _usual_reset(source) if start.reset is None else start.reset
    if reset == "earliest":
        return bounds.log_start_offset
    if reset == "latest":
        return bounds.last_stable_offset
    return _offset_of_time(log, at, reset, bounds)


def check_start(log: LogClient, plan: PhysicalPlan, start: StartSettings) -> None:
    """Raises `InvalidProperty` for offsets that the topics of the plan do not have."""
    topics = log.topics()
    for source in plan.sources():
        for partition, offset in start.offsets.get(source.topic, {}).items():
            count = topics[source.topic].partition_count if source.topic in topics else source.partition_count
            if not 0 <= partition < count:
                raise InvalidProperty(
                    f'{START_OFFSETS} names partition {partition} of topic "{source.topic}", which has {count}',
                    hint="Partitions are numbered from 0.",
                )
            at = TopicPartition(source.topic, partition)
            _checked(offset, at, log.offsets(*at))


def _usual_reset(source: Source) -> Reset:
    return "earliest" if source.kind == "TABLE" else "latest"


def _checked(offset: int, at: TopicPartition, bounds: Offsets) -> int:
    if not bounds.log_start_offset <= offset <= bounds.log_end_offset:
        raise InvalidProperty(
            f'offset {offset} is not in partition {at.partition} of topic "{at.topic}", which has '
            f"{bounds.log_start_offset} to {bounds.log_end_offset}",
            hint=f"Change {START_OFFSETS}, or use a time in {OFFSET_RESET}.",
        )
    return offset


def _offset_of_time(log: LogClient, at: TopicPartition, time_ms: int, bounds: Offsets) -> int:
    """The log finds only the record batch, because a columnar batch is one record to the log. The rows of the batch
    decide the offset within it."""
    batch_offset = log.offset_at(*at, time_ms)
    position = bounds.last_stable_offset if batch_offset is None else batch_offset
    while position < bounds.last_stable_offset:
        fetched = log.fetch(*at, position, max_bytes=_MAX_BYTES)
        for run in fetched.runs:
            if isinstance(run, FetchedRows):
                found = _first_from(run.table["timestamp"], time_ms)
                if found is not None:
                    return run.table["offset"][found].as_py()
            elif run.timestamp_ms >= time_ms:  # the largest time in it
                found = _first_from(split_columnar(run.batch, [], run.timestamp_ms).timestamps, time_ms)
                if found is not None:
                    return int(run.row_offsets[found])
        if fetched.next_offset <= position:
            break
        position = fetched.next_offset
    return bounds.last_stable_offset


def _first_from(times: pa.Array | pa.ChunkedArray, time_ms: int) -> int | None:
    late = np.flatnonzero(pc.greater_equal(times, time_ms).to_numpy(zero_copy_only=False))
    return int(late[0]) if len(late) else None
