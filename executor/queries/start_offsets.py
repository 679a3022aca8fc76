"""Where a query begins to read a partition: at its start or end, at a time, or at an offset that the user names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import InvalidProperty

from ...logcore.client import FetchedRows, LogClient, Offsets, TopicPartition
from ...planner.physical import PhysicalPlan
from ...planner.steps.source import Source
from ...sql.property_values import Reset, parse_reset, parse_start_offsets
from ..columnar import split_columnar

OFFSET_RESET: Final = "auto.offset.reset"
START_OFFSETS: Final = "millstream.start.offsets"

_MAX_BYTES = 16 * 1024 * 1024


def first_offset(log: LogClient, at: TopicPartition, source: Source, properties: Mapping[str, str]) -> int:
    """Where a query that has never read the partition begins.

    Without properties streams begin with what is new and tables are read whole, as ksqlDB does it. A time is that of
    the first record with this timestamp or a later one; where there is none yet, it is the end. Raises
    `InvalidProperty` for a value that says nothing, and for an offset that the log does not have.
    """
    bounds = log.offsets(*at)
    named = _start_offsets(properties).get(at.topic, {}).get(at.partition)
    if named is not None:
        return _checked(named, at, bounds)
    reset = _reset(source, properties)
    if reset == "earliest":
        return bounds.log_start_offset
    if reset == "latest":
        return bounds.last_stable_offset
    return _offset_of_time(log, at, reset, bounds)


def check_start(log: LogClient, plan: PhysicalPlan, properties: Mapping[str, str]) -> None:
    """Raises `InvalidProperty` for offsets that the topics of the plan do not have."""
    named = _start_offsets(properties)
    topics = log.topics()
    for source in plan.sources():
        for partition, offset in named.get(source.topic, {}).items():
            count = topics[source.topic].partition_count if source.topic in topics else source.partition_count
            if not 0 <= partition < count:
                raise InvalidProperty(
                    f'{START_OFFSETS} names partition {partition} of topic "{source.topic}", which has {count}',
                    hint="Partitions are numbered from 0.",
                )
            at = TopicPartition(source.topic, partition)
            _checked(offset, at, log.offsets(*at))


def _start_offsets(properties: Mapping[str, str]) -> dict[str, dict[int, int]]:
    try:
        return parse_start_offsets(properties.get(START_OFFSETS, ""))
    except ValueError as wanted:
        raise InvalidProperty(f"{START_OFFSETS} cannot be read", hint=f"Write {wanted}.") from None


def _reset(source: Source, properties: Mapping[str, str]) -> Reset:
    written = properties.get(OFFSET_RESET)
    if written is None:
        return "earliest" if source.kind == "TABLE" else "latest"
    try:
        return parse_reset(written)
    except ValueError as wanted:
        raise InvalidProperty(f"{OFFSET_RESET} is {written!r}", hint=f"Set it to {wanted}.") from None


def _checked(offset: int, at: TopicPartition, bounds: Offsets) -> int:
    if not bounds.log_start_offset <= offset <= bounds.log_end_offset:
        raise InvalidProperty(
            f'offset {offset} is not in partition {at.partition} of topic "{at.topic}", which has '
            f"{bounds.log_start_offset} to {bounds.log_end_offset}",
            hint=f"Change {START_OFFSETS}, or use a time in {OFFSET_RESET}.",
        )
    return offset


def _offset_of_time(log: LogClient, at: TopicPartition, time_ms: int, bounds: Offsets) -> int:
    """The log knows the record batch; which row of it, the rows say: a columnar batch is one record to the log."""
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
