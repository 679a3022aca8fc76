"""Markers: what each bucket of a query has done, as records of a topic with one partition per bucket.

A marker is written in the transaction of the bucket's outputs and state changes, so it is there exactly if they are.
It says up to where the bucket contains each lane: a batch is applied from there on, however often it is run. `run` is
the start of the query that may write: a task of an earlier one finds another run in the last marker and gives up.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field

import pyarrow as pa

from ...logcore.client import FetchedRows, LogClient, RowRecords
from ..errors import QueryFailed
from .lanes import Positions, positions_from_json, positions_to_json

_LOOK_BACK = 8  # offsets; a marker is followed by the control record of its transaction


class StaleRun(QueryFailed):
    """The query was started again, here or elsewhere, and this is the earlier run."""

    code = "STALE_RUN"


@dataclass(frozen=True, slots=True)
class StateMarker:
    """`token` is new with each transaction: a cache of the state under the same token has exactly this content.

    `state` is made with the bucket's first marker and stays: another log, or a query that was made anew under the same
    name, has another, so a cache that names it belongs to this bucket. `ends`: by partition of the changelog, the end
    of the state at these positions (`lost_state.py`).
    """

    run: str
    positions: Positions = field(default_factory=dict)
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    state: str = field(default_factory=lambda: uuid.uuid4().hex)
    ends: dict[int, int] = field(default_factory=dict)

    def as_records(self) -> RowRecords:
        value = {
            "run": self.run,
            "token": self.token,
            "state": self.state,
            "positions": positions_to_json(self.positions),
            "ends": {str(partition): end for partition, end in self.ends.items()},
        }
        columns = {"timestamp": [0], "key": [b"marker"], "value": [json.dumps(value).encode()]}
        schema = pa.schema([("timestamp", pa.int64()), ("key", pa.binary()), ("value", pa.binary())])
        return RowRecords(pa.table(columns, schema=schema))


def last_marker(log: LogClient, topic: str, bucket: int) -> StateMarker | None:
    """The bucket's last committed marker, if it has one. Call it when no transaction of the bucket is open."""
    bounds = log.offsets(topic, bucket)
    end, back = bounds.last_stable_offset, _LOOK_BACK
    while end > bounds.log_start_offset:
        begin = max(bounds.log_start_offset, end - back)
        found = _last_value(log, topic, bucket, begin, end)
        if found is not None:
            return _marker(found)
        if begin == bounds.log_start_offset:
            return None
        back *= 8
    return None


def check_run(log: LogClient, topic: str, bucket: int, run: str) -> StateMarker:
    """The bucket's last marker. Raises `StaleRun` where it is another run's."""
    marker = last_marker(log, topic, bucket)
    if marker is None or marker.run != run:
        raise StaleRun("another run of the query has begun", hint="Only the last one that was started goes on.")
    return marker


def _last_value(log: LogClient, topic: str, bucket: int, begin: int, end: int) -> bytes | None:
    value: bytes | None = None
    position = begin
    while position < end:
        fetched = log.fetch(topic, bucket, position)
        for run in fetched.runs:
            assert isinstance(run, FetchedRows), "markers are records in row form"
            if run.table.num_rows:
                value = run.table["value"][-1].as_py()
        if fetched.next_offset <= position:
            break
        position = fetched.next_offset
    return value


def _marker(value: bytes) -> StateMarker:
    found = json.loads(value)
    return StateMarker(
        run=found["run"],
        positions=positions_from_json(found["positions"]),
        token=found["token"],
        state=found.get("state") or uuid.uuid4().hex,  # earlier versions had none: their caches are made anew
        ends={int(partition): end for partition, end in found.get("ends", {}).items()},  # earlier versions noted none
    )
