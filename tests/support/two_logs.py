"""Two logs, of which the first is served, and a mirror between them that a test steps by itself."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from millstream.logcore.client import HEADERS, FetchedColumns, LogClient, RowRecords, TopicPartition
from millstream.logcore.external.kafka_properties import KafkaProperties
from millstream.logcore.log import Log, open_log
from millstream.logcore.mirrors.exact_mirror import ExactMirror, ExactMirrorSettings
from millstream.logcore.mirrors.mirror_source import MirrorSource, TopicFilter
from millstream.logcore.server import LogServer

LEVEL_S = 60.0


class TwoLogs:
    """State: both logs, and where the first is served."""

    def __init__(self, there: Log, here: Log, address: str) -> None:
        self.there, self.here, self.address = there, here, address

    @contextmanager
    def mirror(
        self, topics: str = "*", *, adopts: bool = False, name: str = "m", address: str = ""
    ) -> Generator[ExactMirror]:
        chosen = TopicFilter(tuple(each.strip() for each in topics.split(",")))
        settings = ExactMirrorSettings(name, chosen, TopicFilter(("*",)), adopts, look_ms=100)
        source = MirrorSource(KafkaProperties({"bootstrap.servers": address or self.address}))
        mirror = ExactMirror(self.here, source, settings)
        try:
            yield mirror
        finally:
            mirror.close()

    def copy(self, topics: str = "*", *, adopts: bool = False) -> ExactMirror:
        """All that there is now."""
        with self.mirror(topics, adopts=adopts) as mirror:
            until_level(mirror)
        return mirror


@contextmanager
def two_logs(folder: Path) -> Generator[TwoLogs]:
    with open_log(folder / "there", sync="never") as there, open_log(folder / "here", sync="never") as here:
        with LogServer(there, port=0) as server:
            yield TwoLogs(there, here, server.address)


def until_level(mirror: ExactMirror) -> None:
    deadline = time.monotonic() + LEVEL_S
    while not mirror.is_level():
        assert time.monotonic() < deadline, mirror.board
        mirror.step(0.05)


def until_stopped(mirror: ExactMirror, where: TopicPartition) -> str:
    """Why the partition is not copied any more."""
    deadline = time.monotonic() + LEVEL_S
    while True:
        mirror.step(0.05)
        found = mirror.board.partitions.get(where)
        if found is not None and found.phase == "STOPPED":
            return found.error or ""
        assert time.monotonic() < deadline, mirror.board


def rows(
    *values: bytes | None, key: bytes | None = b"k", headers: Mapping[str, bytes | None] | None = None
) -> RowRecords:
    count = len(values)
    columns = {
        "timestamp": pa.array(range(1_000, 1_000 + count), pa.int64()),
        "key": pa.array([key] * count, pa.binary()),
        "value": pa.array(values, pa.binary()),
    }
    if headers is not None:
        each = [{"key": name, "value": value} for name, value in headers.items()]
        columns["headers"] = pa.array([each] * count, HEADERS)
    return RowRecords(pa.table(columns))


def records_of(log: LogClient, topic: str, partition: int = 0) -> list[tuple[Any, ...]]:
    """All that readers see, with offsets, keys, values, times and headers."""
    found: list[tuple[Any, ...]] = []
    offset = log.offsets(topic, partition).log_start_offset
    while True:
        fetched = log.fetch(topic, partition, offset)
        for run in fetched.runs:
            if isinstance(run, FetchedColumns):
                found += zip(run.row_offsets.tolist(), map(str, run.batch.to_pylist()), strict=True)
            else:
                found += [
                    (row["offset"], row["key"], row["value"], row["timestamp"], str(row["headers"]))
                    for row in run.table.to_pylist()
                ]
        if fetched.next_offset <= offset:
            return found
        offset = fetched.next_offset


def ends_of(log: LogClient, topic: str, partition: int = 0) -> tuple[int, int]:
    offsets = log.offsets(topic, partition)
    return offsets.log_start_offset, offsets.log_end_offset
