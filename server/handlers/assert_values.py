"""ASSERT VALUES and ASSERT NULL VALUES: check the next record of a stream or table. For tests of pipelines."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from ...executor.answers.materialization import source_step
from ...executor.sources.source_reader import SourceReader
from ...logcore.client import TopicPartition
from ...planner.declarations.values import plan_asserted_values
from ...planner.schema import PSEUDO
from ...planner.source_info import SourceInfo
from ...planner.steps.source import Source
from ...sql.ast import AssertValues
from ...sql.functions.java.calendar_days import python_values
from ...sql.printing import literal
from ...sql.types import Array, Map, SqlType, Struct
from ..engine.entities import AssertedValues, Entity
from ..engine.executors import DrainedExecutor
from ..engine.request import Request
from .assertions import AssertionFailed

_PAUSE_S = 0.05
_PATIENCE_S = 1.0
_MAX_BATCH_BYTES = 1024 * 1024
_PLACES_MAX = 5  # of differences that an error names

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
    wanted: Record = {name: _first(array) for name, array in zip(planned, arrays, strict=True)}
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
            record = {name: _first(rows[name]) for name in rows.column_names}
            return record, batch.positions[at]


def _first(values: pa.Array | pa.ChunkedArray) -> Any:
    """The first value. A MAP is a dict: its entries have no order."""
    return python_values(values.slice(0, 1), maps_as_pydicts="lossy")[0]


def _fits(record: Record, wanted: Mapping[str, Any], *, tombstone: bool) -> bool:
    return record["_null"] == tombstone and all(_same(record.get(name), value) for name, value in wanted.items())


def _same(actual: Any, expected: Any) -> bool:
    """NaN is the same as NaN."""
    match actual, expected:
        case dict(), dict():
            return actual.keys() == expected.keys() and all(_same(actual[key], expected[key]) for key in actual)
        case list(), list():
            return len(actual) == len(expected) and all(map(_same, actual, expected))
        case _:
            return bool(actual == expected or (actual != actual and expected != expected))


def _places(actual: Any, expected: Any, type_: SqlType, place: str) -> Iterator[str]:
    """Where the two differ, as expressions: `A[2]->X`."""
    if _same(actual, expected):
        return
    match type_, actual, expected:
        case Struct(), dict(), dict():
            for name, field in zip(type_.engine_names, type_.fields, strict=True):
                yield from _places(actual[name], expected[name], field.type, f"{place}->{field.name}")
        case Map(), dict(), dict():
            for key in sorted(actual.keys() | expected.keys(), key=str):
                at = f"{place}[{literal(key)}]"
                if key not in actual or key not in expected:
                    yield at
                else:
                    yield from _places(actual[key], expected[key], type_.value, at)
        case Array(), list(), list() if len(actual) == len(expected):
            for number, (one, other) in enumerate(zip(actual, expected, strict=True), start=1):
                yield from _places(one, other, type_.element, f"{place}[{number}]")
        case _:
            yield place


def _difference(
    source: SourceInfo, expected: str, found: Mapping[int, tuple[Record, int]], wanted: Mapping[str, Any]
) -> str:
    if not found:
        return f"Expected another record, but all records have already been read. Expected: {expected}."
    records = [record for record, _ in found.values()]
    shown = [_text(source, {name: record.get(name) for name in wanted}, record["_null"]) for record in records]
    message = f"Expected record does not match actual. Expected: {expected}. Actual: {' or '.join(shown)}"
    return message if len(records) > 1 else message + _named_places(source, records[0], wanted)


def _named_places(source: SourceInfo, record: Record, wanted: Mapping[str, Any]) -> str:
    columns = _columns(source)
    places = [
        place
        for physical, value in wanted.items()
        for name, type_ in [columns[physical]]
        for place in _places(record.get(physical), value, type_, name)
    ]
    if not places:
        return ""
    more = f" and {len(places) - _PLACES_MAX} more" if len(places) > _PLACES_MAX else ""
    return f". Different: {', '.join(places[:_PLACES_MAX])}{more}"


def _columns(source: SourceInfo) -> dict[str, tuple[str, SqlType]]:
    """Names and types of the columns, by their names inside batches."""
    columns = {source.schema.physical_name(column): (column.name, column.type) for column in source.schema}
    return columns | {physical: (name, type_) for name, (physical, type_) in PSEUDO.items()}


def _text(source: SourceInfo, values: Mapping[str, Any], tombstone: bool) -> str:
    columns = _columns(source)
    listed = ", ".join(f"{columns[name][0]}={value!r}" for name, value in values.items())
    return f"tombstone({listed})" if tombstone else f"({listed})"
