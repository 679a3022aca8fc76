"""What tests of connectors share: reading topics, and waiting for a connector."""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson

from millstream.logcore.client import FetchedRows, LogClient


class Read(NamedTuple):
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: list[dict[str, Any]] | None

    @property
    def json(self) -> Any:
        return None if self.value is None else orjson.loads(self.value)


def topic_ends(log: LogClient, topic: str) -> dict[str, int]:
    """The next offset of each partition."""
    return {str(number): log.offsets(topic, number).log_end_offset for number in range(log.partition_count(topic))}


def read_topic(log: LogClient, topic: str) -> list[Read]:
    """What a reader with read_committed sees of all partitions; nothing where there is no such topic."""
    found: list[Read] = []
    for partition in range(0 if log.topic(topic) is None else log.partition_count(topic)):
        position = log.offsets(topic, partition).log_start_offset
        while True:
            fetched = log.fetch(topic, partition, position)
            for run in fetched.runs:
                assert isinstance(run, FetchedRows)
                found += [
                    Read(row["key"], row["value"], row["timestamp"], row["headers"]) for row in run.table.to_pylist()
                ]
            if fetched.next_offset <= position:
                break
            position = fetched.next_offset
    return found
