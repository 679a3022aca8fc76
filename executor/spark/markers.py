"""Markers: records of what each bucket of a query has done, in a topic with one partition per bucket.

A marker is part of the transaction with the bucket's outputs and state changes, so it exists if and only if they do. It
names the last batch that the bucket has done. A bucket whose marker names a batch skips that batch, however often the
batch is run. `run` identifies the run that may write: a task of an earlier run finds another run in the last marker and
stops. The content of a batch is in one record for all buckets (`batch_records.py`), so a marker is small.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from ...logcore.client import FetchedRows, LogClient, RowRecords
from ..errors import QueryFailed
from ..inspection import StateSeen
from .lanes import Positions, positions_from_json, positions_to_json
from .spark_figures import state_from_json, state_to_json

_LOOK_BACK = 8  # offsets to read first; the control record of its transaction follows each marker


class StaleRun(QueryFailed):
    """The query was started again, here or elsewhere, and this is the earlier run."""

    code = "STALE_RUN"


class BatchId(NamedTuple):
    """The number increases with each batch, over all runs. Two runs may plan a batch with the same number; only one of
    them is ever done, and `name` distinguishes them."""

    number: int
    name: str


NO_BATCH = BatchId(0, "")


class SentRange(NamedTuple):
    """The offsets of the rows that a bucket wrote to its partition of the repartition topic in its last batch."""

    start: int
    end: int


NOTHING_SENT = SentRange(0, 0)


@dataclass(frozen=True, slots=True)
class StateMarker:
    """`token`: new with each transaction. A cache of the state with the same token has exactly this content.

    `state`: created with the bucket's first marker, and never changed. In another log, or after the query was recreated
    under the same name, it differs, so a cache with this id belongs to this bucket. `ends`: for each partition of the
    changelog, the end of the state after this batch (`lost_state.py`). `seen`: what the last look into the state
    found; None if there was no look. `earlier`: only in markers of versions that named no batches: the offset up to
    which the bucket had read each lane.
    """

    run: str
    batch: BatchId = NO_BATCH
    sent: SentRange = NOTHING_SENT
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    state: str = field(default_factory=lambda: uuid.uuid4().hex)
    ends: dict[int, int] = field(default_factory=dict)
    seen: StateSeen | None = None
    earlier: Positions | None = None

    def as_records(self) -> RowRecords:
        value: dict[str, object] = {
            "run": self.run,
            "token": self.token,
            "state": self.state,
            "batch": self.batch,
            "sent": self.sent,
            "ends": {str(partition): end for partition, end in self.ends.items()},
        }
        if self.seen is not None:
            value["seen"] = state_to_json(self.seen)
        if self.earlier is not None:
            value["positions"] = positions_to_json(self.earlier)
        return json_record(b"marker", value)


def json_record(key: bytes, value: object) -> RowRecords:
    """One record of the marker topic. In: `value`: None gives a tombstone."""
    data = None if value is None else json.dumps(value).encode()
    columns = {"timestamp": [0], "key": [key], "value": [data]}
    schema = pa.schema([("timestamp", pa.int64()), ("key", pa.binary()), ("value", pa.binary())])
    return RowRecords(pa.table(columns, schema=schema))


def last_marker(log: LogClient, topic: str, bucket: int) -> StateMarker | None:
    """The bucket's last committed marker, if it has one. Call it when no transaction of the bucket is open."""
    found = last_value(log, topic, bucket)
    return None if found is None else _marker(found)


def check_run(log: LogClient, topic: str, bucket: int, run: str) -> StateMarker:
    """The bucket's last marker. Raises `StaleRun` if it is the marker of another run."""
    marker = last_marker(log, topic, bucket)
    if marker is None or marker.run != run:
        raise StaleRun("another run of the query has begun", hint="Only the last one that was started goes on.")
    return marker


def last_value(log: LogClient, topic: str, partition: int, name: str | None = None) -> Any:
    """The value of the partition's last committed record (with this `name`, if given); None if there is none."""
    bounds = log.offsets(topic, partition)
    end, back = bounds.last_stable_offset, _LOOK_BACK
    while end > bounds.log_start_offset:
        begin = max(bounds.log_start_offset, end - back)
        found = [value for value in _values(log, topic, partition, begin, end) if name in (None, value.get("name"))]
        if found:
            return found[-1]
        if begin == bounds.log_start_offset:
            return None
        back *= 8
    return None


def _values(log: LogClient, topic: str, partition: int, begin: int, end: int) -> list[dict[str, Any]]:
    values: list[bytes | None] = []
    position = begin
    while position < end:
        fetched = log.fetch(topic, partition, position)
        for run in fetched.runs:
            assert isinstance(run, FetchedRows), "markers are records in row form"
            values += run.table["value"].to_pylist()
        if fetched.next_offset <= position:
            break
        position = fetched.next_offset
    return [json.loads(value) for value in values if value is not None]


def _marker(found: dict[str, Any]) -> StateMarker:
    return StateMarker(
        run=found["run"],
        batch=BatchId(*found.get("batch", NO_BATCH)),
        sent=SentRange(*found.get("sent", (0, 0))),
        token=found["token"],
        state=found.get("state") or uuid.uuid4().hex,  # earlier versions had none: their caches are rebuilt
        ends={int(partition): end for partition, end in found.get("ends", {}).items()},  # earlier versions had none
        seen=state_from_json(found["seen"]) if "seen" in found else None,
        earlier=positions_from_json(found["positions"]) if "positions" in found else None,
    )
