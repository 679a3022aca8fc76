"""Positions of sources: a record for each task in a compacted topic, written in the transaction of its records. In the
place of a sink's is its identity: the positions of sinks are committed offsets, or lie with their rows. With negative
numbers, after the tasks, are the ids of the topics that each task of a sink has read: offsets say nothing about a topic
that was deleted and created again. With texts for numbers is what dropped connectors have left (`leftovers.py`)."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Mapping
from typing import Final

import orjson
import pyarrow as pa

from ...logcore.client import FetchedRows, LogClient, RowRecords
from ...logcore.errors import CorruptLog, TopicExists
from .connector import Position

POSITIONS_TOPIC: Final = "_millstream-connect-offsets"
_CONFIG: Final = {"cleanup.policy": "compact"}
_SCHEMA: Final = pa.schema([("timestamp", pa.int64()), ("key", pa.binary()), ("value", pa.binary())])


def create_positions_topic(log: LogClient) -> None:
    """Where it is not there yet."""
    if log.topic(POSITIONS_TOPIC) is None:
        with contextlib.suppress(TopicExists):
            log.create_topic(POSITIONS_TOPIC, 1, _CONFIG)


def position_record(connector: str, task: int | str, position: Position | None) -> RowRecords:
    """For partition 0 of the topic; None forgets the task's position."""
    value = None if position is None else orjson.dumps(position)
    row = {"timestamp": [int(time.time() * 1000)], "key": [_key(connector, task)], "value": [value]}
    return RowRecords(pa.table(row, schema=_SCHEMA))


def read_position(log: LogClient, connector: str, task: int) -> Position | None:
    """The committed one; None where there is none. Raises `CorruptLog` where it cannot be read."""
    return read_positions(log).get((connector, task))


def sink_identity(log: LogClient, connector: str) -> str:
    """Of the sink since it was created; written by the first one who asks. One caller at a time."""
    found = read_position(log, connector, 0)
    if found is None:
        create_positions_topic(log)
        found = {"identity": uuid.uuid4().hex}
        log.append(POSITIONS_TOPIC, 0, position_record(connector, 0, found))
    return found["identity"]


def topics_read_before(log: LogClient, connector: str, task: int) -> dict[str, str]:
    """The ids of topics, by name, as the task of a sink has noted them last."""
    return dict(read_position(log, connector, -1 - task) or {})


def note_topics(log: LogClient, connector: str, task: int, ids: Mapping[str, str]) -> None:
    create_positions_topic(log)
    log.append(POSITIONS_TOPIC, 0, position_record(connector, -1 - task, ids))


def read_positions(log: LogClient) -> dict[tuple[str, int], Position]:
    """Of all tasks, by connector and number."""
    return {(name, task): at for (name, task), at in _read_all(log).items() if isinstance(task, int)}


def read_leftovers(log: LogClient) -> dict[tuple[str, str], Position]:
    return {(name, number): at for (name, number), at in _read_all(log).items() if isinstance(number, str)}


def _read_all(log: LogClient) -> dict[tuple[str, int | str], Position]:
    found: dict[tuple[str, int | str], Position] = {}
    if log.topic(POSITIONS_TOPIC) is None:
        return found
    offset = log.offsets(POSITIONS_TOPIC, 0).log_start_offset
    while True:
        fetched = log.fetch(POSITIONS_TOPIC, 0, offset)
        for run in fetched.runs:
            assert isinstance(run, FetchedRows)
            for key, value in zip(run.table["key"].to_pylist(), run.table["value"].to_pylist(), strict=True):
                _fold(found, key, value)
        if fetched.next_offset <= offset:
            return found
        offset = fetched.next_offset


def _fold(found: dict[tuple[str, int | str], Position], key: bytes, value: bytes | None) -> None:
    try:
        connector, task = orjson.loads(key)
        if value is None:
            found.pop((connector, task), None)
        else:
            found[(connector, task)] = orjson.loads(value)
    except (ValueError, TypeError) as error:
        raise CorruptLog(f'topic "{POSITIONS_TOPIC}" holds what is not a position: {error}') from error


def _key(connector: str, task: int | str) -> bytes:
    return orjson.dumps([connector, task])
