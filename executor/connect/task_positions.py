"""The topic with the positions of connectors. It is compacted; the key of a record is a connector and a number.

| number | value |
| --- | --- |
| 0 and up, of a source | the position of this task, written in the transaction of its records |
| 0, of a sink | the identity of the sink; its positions are committed offsets, or stored with the rows |
| -1 and down, of a sink | the topics that task 0, 1, … has read, to detect recreated ones: see `TopicsRead` |
| a text | what a dropped connector has left in another system (`leftovers.py`) |
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Mapping
from operator import itemgetter
from typing import Final

import orjson
import pyarrow as pa

from ...logcore.client import FetchedRows, LogClient, RowRecords, TopicPartition
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


class TopicsRead:
    """Which topics the tasks of a sink have read, by their ids. A partition may get another task, when their number
    changes: so each id is noted with its partition and a number that grows, and the last one of any task counts.

    The note of a task is `{"topic/partition": [id, number]}`; those of older versions are `{"topic": id}`."""

    def __init__(self, log: LogClient, connector: str, task: int) -> None:
        """Reads the notes of all tasks. Raises `CorruptLog`."""
        self._log, self._connector, self._number = log, connector, -1 - task
        self._notes = {
            number: dict(note)
            for (name, number), note in read_positions(log).items()
            if name == connector and number < 0
        }

    def id_of(self, at: TopicPartition) -> str | None:
        """The topic's id when the partition was read last; None if it never was."""
        last = self._last(at)
        if last is not None:
            return last[0]
        own = self._notes.get(self._number, {})
        return next((note[at.topic] for note in (own, *self._notes.values()) if at.topic in note), None)

    def note(self, ids: Mapping[TopicPartition, str]) -> None:
        """Stores what the task reads from now on, if it is not known."""
        new = {_place(at): [id_, self._next(at)] for at, id_ in ids.items() if self.id_of(at) != id_}
        if new:
            self._notes[self._number] = note = {**self._notes.get(self._number, {}), **new}
            create_positions_topic(self._log)
            self._log.append(POSITIONS_TOPIC, 0, position_record(self._connector, self._number, note))

    def _last(self, at: TopicPartition) -> tuple[str, int] | None:
        noted = [note[_place(at)] for note in self._notes.values() if _place(at) in note]
        return max(map(tuple, noted), key=itemgetter(1), default=None)

    def _next(self, at: TopicPartition) -> int:
        last = self._last(at)
        return 0 if last is None else last[1] + 1


def _place(at: TopicPartition) -> str:
    return f"{at.topic}/{at.partition}"  # no name of a topic contains a slash


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
