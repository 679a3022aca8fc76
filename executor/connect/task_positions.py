"""The topic with the positions of connectors. It is compacted; the key of a record is a connector and a number.

| number | value |
| --- | --- |
| 0 and up, of a source | the position of this task, written in the transaction of its records |
| 0, of a sink | the identity of the sink; its positions are committed offsets, or stored with the rows |
| -1 and down, of a sink | the ids of the topics that task 0, 1, … has read, to detect recreated topics |
| a text | what a dropped connector has left in another system (`leftovers.py`) |
"""

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
    """Creates the topic if it does not exist."""
    if log.topic(POSITIONS_TOPIC) is None:
        with contextlib.suppress(TopicExists):
            log.create_topic(POSITIONS_TOPIC, 1, _CONFIG)


def position_record(connector: str, task: int | str, position: Position | None) -> RowRecords:
    """The record for partition 0 of the topic. In: `position`: None deletes the task's position."""
    value = None if position is None else orjson.dumps(position)
    row = {"timestamp": [int(time.time() * 1000)], "key": [_key(connector, task)], "value": [value]}
    return RowRecords(pa.table(row, schema=_SCHEMA))


def read_position(log: LogClient, connector: str, task: int) -> Position | None:
    """The committed position; None if there is none. Raises `CorruptLog` if it cannot be decoded."""
    return read_positions(log).get((connector, task))


def sink_identity(log: LogClient, connector: str) -> str:
    """The identity of the sink since it was created; the first call creates it. Calls must not overlap."""
    found = read_position(log, connector, 0)
    if found is None:
        create_positions_topic(log)
        found = {"identity": uuid.uuid4().hex}
        log.append(POSITIONS_TOPIC, 0, position_record(connector, 0, found))
    return found["identity"]


def topics_read_before(log: LogClient, connector: str, task: int) -> dict[str, str]:
    """The ids of topics, by name, that the task of a sink has stored last."""
    return dict(read_position(log, connector, -1 - task) or {})


def note_topics(log: LogClient, connector: str, task: int, ids: Mapping[str, str]) -> None:
    create_positions_topic(log)
    log.append(POSITIONS_TOPIC, 0, position_record(connector, -1 - task, ids))


def read_positions(log: LogClient) -> dict[tuple[str, int], Position]:
    """The positions of all tasks, by connector and number."""
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
