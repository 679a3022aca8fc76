"""ASSERT VALUES and ASSERT NULL VALUES: check the next record of a stream or table. For tests of pipelines."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ...executor.answers.materialization import source_step
from ...executor.sources.source_reader import SourceReader
from ...logcore.client import TopicPartition
from ...planner.declarations.values import plan_asserted_values
from ...planner.schema import PSEUDO
from ...planner.source_info import SourceInfo
from ...planner.steps.source import Source
from ...sql.ast import AssertValues
from ..engine.entities import AssertedValues, Entity
from ..engine.executors import DrainedExecutor
from ..engine.request import Request
from .assertions import AssertionFailed

_PAUSE_S = 0.05
_PATIENCE_S = 1.0
_MAX_BATCH_BYTES = 1024 * 1024

Record = dict[str, Any]  # by the names inside batches


def assert_values(statement: AssertValues, request: Request) -> list[Entity]:
    """ASSERT VALUES source (columns) VALUES (…), ASSERT NULL VALUES source (key) KEY (…).

    A session reads each partition of a topic only once, for all sources on the topic. An assertion looks at the next
    unread record of each partition and takes the first one that matches. Columns that are not named may have any value.
    It waits up to a second for the record. Raises `AssertionFailed`.
    """
    source = request.catalog.source(statement.source, statement.span)
    planned = plan_asserted_values(statement, request.planning_context())
    arrays = request.constants.evaluate(list(planned.values()))
    wanted: Record = {name: array[0].as_py() for name, array in zip(planned, arrays, strict=True)}
    if isinstance(request.executor, DrainedExecutor):
        request.executor.drain()
        deadline = 0.0
    else:
        deadline = time.monotonic() + _PATIENCE_S
    while True:
        found = _next_records(source, request)
        for partition, (record, next_offset) in found.items():
            if _fits(record, wanted, tombstone=statement.tombstone):
                request.session.asserted[source.topic, partition] = next_offset
                return [AssertedValues(statement_text=statement.text, source_name=source.name)]
        if time.monotonic() >= deadline:
            expected = _text(source, wanted, statement.tombstone)
            raise AssertionFailed(_difference(source, expected, found, wanted), span=statement.span)
        time.sleep(_PAUSE_S)


def _next_records(source: SourceInfo, request: Request) -> dict[int, tuple[Record, int]]:
    """The next unread record of each partition, if there is one, and the offset after it."""
    step = source_step(source)
    found: dict[int, tuple[Record, int]] = {}
    for partition in range(source.partition_count):
        at = TopicPartition(source.topic, partition)
        bounds = request.log.offsets(*at)
        begin = request.session.asserted.get((source.topic, partition), bounds.log_start_offset)
        record = _record_from(at, begin, bounds.last_stable_offset, step, request)
        if record is not None:
            found[partition] = record
    return found


def _record_from(at: TopicPartition, begin: int, end: int, step: Source, request: Request) -> tuple[Record, int] | None:
    """The first record that can be decoded."""
    reader = SourceReader(request.log, [step], {at: begin}, time_order=False)
    while True:
        batch = reader.read(_MAX_BATCH_BYTES, {at: end}, max_records=1)
        if batch is None:
            return None
        rows = batch.inputs[step.id].rows
        if rows.num_rows:
            return rows.slice(0, 1).to_pylist()[0], batch.positions[at]


def _fits(record: Record, wanted: Mapping[str, Any], *, tombstone: bool) -> bool:
    return record["_null"] == tombstone and all(record.get(name) == value for name, value in wanted.items())


def _difference(
    source: SourceInfo, expected: str, found: Mapping[int, tuple[Record, int]], wanted: Mapping[str, Any]
) -> str:
    if not found:
        return f"Expected another record, but all records have already been read. Expected: {expected}."
    shown = (
        _text(source, {name: record.get(name) for name in wanted}, record["_null"]) for record, _ in found.values()
    )
    return f"Expected record does not match actual. Expected: {expected}. Actual: {' or '.join(shown)}"


def _text(source: SourceInfo, values: Mapping[str, Any], tombstone: bool) -> str:
    names = {source.schema.physical_name(column): column.name for column in source.schema}
    names |= {physical: name for name, (physical, _) in PSEUDO.items()}
    listed = ", ".join(f"{names[name]}={value!r}" for name, value in values.items())
    return f"tombstone({listed})" if tombstone else f"({listed})"
