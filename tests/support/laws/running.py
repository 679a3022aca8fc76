"""Runs the queries of a case on a log of their own, and reads what they wrote."""

from __future__ import annotations

import json
import shutil
import struct
import tempfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, Protocol
from unittest import mock

from planning import Planner

from millstream.executor import processing_log
from millstream.executor.queries.query import QueryRuntime
from millstream.executor.state import store as state
from millstream.logcore.client import FetchedColumns, LogClient
from millstream.logcore.log import open_log
from millstream.planner.physical import PhysicalPlan
from millstream.planner.steps.sink import Sink
from millstream.sql.windows import WINDOW_TYPES

from .case import Case
from .reference import normal
from .sources import SourceSpec

PROPERTIES = {
    "auto.offset.reset": "earliest",
    "ksql.streams.cache.max.bytes.buffering": "0",
    "millstream.duckdb.threads": "1",
}
_IN_MEMORY = Path("/dev/shm")


@dataclass(frozen=True, slots=True)
class Written:
    """A record of a sink's topic. Columnar records have their columns in `value`, and no `key`."""

    partition: int
    time_ms: int
    key: bytes | None
    value: bytes | Mapping[str, Any] | None


@dataclass(slots=True)
class World:
    """A log with the records of a case, and the plans of its queries."""

    client: LogClient
    directory: Path
    plans: list[PhysicalPlan]
    planner: Planner

    def runtime(
        self, plan: PhysicalPlan, state: Path | None = None, properties: Mapping[str, str] | None = None
    ) -> QueryRuntime:
        return QueryRuntime(plan, self.client, state, {**PROPERTIES, **(properties or {})})

    def variant(self, plan: PhysicalPlan, name: str) -> PhysicalPlan:
        """The same query under another id, with a sink topic of its own."""
        sink = plan.root
        assert isinstance(sink, Sink)
        topic = f"{sink.topic}-{name}"
        self.client.create_topic(topic, sink.partition_count)
        return replace(plan, query_id=f"{plan.query_id}_{name}", root=replace(sink, topic=topic))

    def written(self, plan: PhysicalPlan) -> list[Written]:
        """The records of the query's sink, partition by partition."""
        sink = plan.root
        assert isinstance(sink, Sink)
        return [record for p in range(sink.partition_count) for record in _read(self.client, sink.topic, p)]

    def errors_logged(self, plan: PhysicalPlan) -> int:
        """How many entries the processing log has of the query."""
        entries = [
            json.loads(r.value) for r in _read(self.client, processing_log.TOPIC, 0) if isinstance(r.value, bytes)
        ]
        return sum(entry["logger"].startswith(f"processing.{plan.query_id}.") for entry in entries)


class Runnable(Protocol):
    """What can be run: `Case` and `ShapeCase`."""

    @property
    def text(self) -> str: ...

    @property
    def sources(self) -> Sequence[SourceSpec]: ...


@contextmanager
def world(case: Runnable, rng: Random) -> Generator[World]:
    parent = _IN_MEMORY if _IN_MEMORY.is_dir() else None
    directory = Path(tempfile.mkdtemp(prefix="millstream-law-", dir=parent))
    client = open_log(directory / "log", sync="never")
    try:
        planner = Planner()
        plans = list(planner.plans(case.text))
        for number, plan in enumerate(plans):
            plans[number] = replace(plan, query_id=f"Q{number}")
        for topic, partitions in planner.topics.items():
            client.create_topic(topic, partitions)
        for source in case.sources:
            for partition, records in source.batches(rng):
                client.append(source.topic, partition, records)
        yield World(client, directory, plans, planner)
    finally:
        client.close()
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def compacting(rng: Random) -> Generator[None]:
    """State tables are compacted after few rows already, or as usual."""
    with mock.patch.object(state, "_COMPACT_FROM", rng.choice((4, 20_000))):
        yield


def drain(runtime: QueryRuntime, max_bytes: int = 1 << 20) -> None:
    while runtime.step(max_bytes):
        pass


def same(case: Case, it: World, plan: PhysicalPlan, other: PhysicalPlan) -> bool:
    """Whether two runs wrote the same, byte for byte; where a batch gives its net changes, the same rows in the end."""
    if not case.net:
        return it.written(plan) == it.written(other)
    return content(case, it.written(plan)) == content(case, it.written(other))


def _read(client: LogClient, topic: str, partition: int) -> Iterator[Written]:
    offset = 0
    while True:
        fetched = client.fetch(topic, partition, offset)
        for run in fetched.runs:
            if isinstance(run, FetchedColumns):
                for row in run.batch.to_pylist():
                    yield Written(partition, row.pop("_ts"), None, row)
            else:
                for record in run.table.to_pylist():
                    yield Written(partition, record["timestamp"], record["key"], record["value"])
        if fetched.next_offset == offset:
            return
        offset = fetched.next_offset


# ------------------------------------------------------------------ what the records say


def content(case: Case, records: list[Written]) -> list[tuple[Any, ...]]:
    """The rows of a stream, or those that a table has in the end, in the form of `Case.reference`; sorted."""
    rows = [_row(case, record) for record in records]
    if case.kind == "STREAM":
        return sorted(((record.time_ms, *row) for record, (row, _) in zip(records, rows, strict=True)), key=repr)
    start = 3 if case.window else 1
    latest: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for row, is_null in rows:
        key = row[: start - 1] + row[start : start + len(case.keys)]
        latest.pop(key, None)
        if not is_null:
            latest[key] = row
    return sorted((row for row in latest.values() if _is_live(case, row)), key=repr)


def expected(case: Case, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The rows of the reference in the same form."""
    result = []
    for row in rows:
        head = 1 if case.kind == "STREAM" else (2 if case.window else 0)
        meta, is_null = list(row[:head]), bool(row[head])
        if case.window and not _ends_in_key(case):
            meta[1] = None
        columns = list(row[head + 1 :])
        values = [_value(case, name, value) for name, value in zip((*case.keys, *case.values), columns, strict=True)]
        result.append((*meta, is_null, *values))
    return sorted((row for row in result if _is_live(case, row)), key=repr)


def _is_live(case: Case, row: tuple[Any, ...]) -> bool:
    return case.live is None or row[len(row) - len(case.values) + case.values.index(case.live)] != normal(0)


def _row(case: Case, record: Written) -> tuple[tuple[Any, ...], bool]:
    if isinstance(record.value, Mapping):
        fields: Mapping[str, Any] = record.value
        keys = [fields[name] for name in case.keys]
        start, end = fields.get("_ws"), fields.get("_we")
        is_null = bool(fields["_null"])
    else:
        keys, start, end = _key(case, record.key)
        is_null = record.value is None
        fields = {} if record.value is None else json.loads(record.value)
    window = (start, end if _ends_in_key(case) else None) if case.window else ()
    values = [None if is_null else _value(case, name, fields[name]) for name in case.values]
    return (*window, is_null, *map(normal, keys), *values), is_null


def _ends_in_key(case: Case) -> bool:
    return case.window is not None and WINDOW_TYPES[case.window].holds_end


def _key(case: Case, key: bytes | None) -> tuple[list[Any], int | None, int | None]:
    start = end = None
    if key is not None and _ends_in_key(case):
        end, start = struct.unpack(">qq", key[-16:])
        key = key[:-16]
    elif key is not None and case.window is not None:
        (start,) = struct.unpack(">q", key[-8:])
        key = key[:-8]
    if key is None:
        return [None] * len(case.keys), start, end
    if case.key_format == "KAFKA":
        return [_kafka(key, case)], start, end
    parsed = json.loads(key)
    return ([parsed] if len(case.keys) == 1 else [parsed[name] for name in case.keys]), start, end


def _kafka(key: bytes, case: Case) -> Any:
    match case.sources[0].keys[0].type:
        case "INT":
            return struct.unpack(">i", key)[0]
        case "BIGINT":
            return struct.unpack(">q", key)[0]
        case _:
            return key.decode()


def _value(case: Case, name: str, value: Any) -> Any:
    result = normal(value)
    return tuple(sorted(result, key=repr)) if name in case.unordered and result is not None else result
