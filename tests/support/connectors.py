"""What tests of connectors share: reading topics and writing them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Generator, Iterator
from typing import Any, NamedTuple

import httpx
import orjson

from millstream.executor.connect.connector_errors import ConnectorFailed, SystemUnavailable
from millstream.executor.connect.sink_runner import SinkRunner
from millstream.executor.connect.source_runner import SourceRunner
from millstream.logcore.client import FetchedRows, LogClient

_JSON_V2 = {"content-type": "application/vnd.kafka.json.v2+json"}


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


def records_of(log: LogClient, topic: str) -> Iterator[Read]:
    """What a reader with read_committed sees of all partitions; nothing where there is no such topic."""
    for partition in range(0 if log.topic(topic) is None else log.partition_count(topic)):
        position = log.offsets(topic, partition).log_start_offset
        while True:
            fetched = log.fetch(topic, partition, position)
            for run in fetched.runs:
                assert isinstance(run, FetchedRows)
                for row in run.table.to_pylist():
                    yield Read(row["key"], row["value"], row["timestamp"], row["headers"])
            if fetched.next_offset <= position:
                break
            position = fetched.next_offset


def read_topic(log: LogClient, topic: str) -> list[Read]:
    return list(records_of(log, topic))


def said_at_first(running: SinkRunner | SourceRunner) -> str:
    """What is wrong according to its first step; empty where nothing is. It is closed then."""
    with contextlib.closing(running):
        try:
            running.step(0)
        except (ConnectorFailed, SystemUnavailable) as error:
            return str(error)
    return ""


@contextlib.contextmanager
def sending(url: str, begin: int) -> Generator[list[int]]:
    """Records of the topic orders come in, as long as the server takes them; gives the number of the next one."""
    over, at = threading.Event(), [begin]

    def send() -> None:
        with httpx.Client(base_url=url) as client, contextlib.suppress(httpx.HTTPError):
            while not over.is_set():
                records = [{"value": {"n": at[0] + more, "half": (at[0] + more) / 2}} for more in range(20)]
                at[0] += 20
                client.post("/topics/orders", json={"records": records}, headers=_JSON_V2).raise_for_status()
                time.sleep(0.02)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield at
    finally:
        over.set()
        thread.join()
