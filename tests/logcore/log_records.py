"""Short ways to write records to a log and to read them back, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shutil import copytree

import pyarrow as pa

from millstream.logcore.client import ColumnarRecords, FetchedRows, Isolation, LogClient, RowRecords
from millstream.logcore.cluster.node_folder import replica_folder, topics_of_node
from millstream.logcore.errors import LogFull, LogWriteFailed
from millstream.logcore.log import Log

NO_ROOM_YET = (LogFull, LogWriteFailed)
"""A coordinator that was refused a write tries again later; over the network no code says that the disk is full."""


def rows(*values: bytes | None, key: bytes | None = b"k", timestamp: int = 7) -> RowRecords:
    count = len(values)
    table = pa.table(
        {
            "timestamp": pa.array([timestamp] * count, pa.int64()),
            "key": pa.array([key] * count, pa.binary()),
            "value": pa.array(list(values), pa.binary()),
        }
    )
    return RowRecords(table)


def columnar(*values: int, timestamp: int = 9) -> ColumnarRecords:
    return ColumnarRecords(pa.record_batch({"x": pa.array(values, pa.int64())}), timestamp)


def values_of(
    log: LogClient, topic: str, partition: int = 0, offset: int = 0, isolation: Isolation = "read_committed"
) -> list[bytes | int | None]:
    """All values from `offset` on; a row of a columnar batch counts as its column `x`."""
    return [value for _, value in records_of(log, topic, partition, offset, isolation)]


def records_of(
    log: LogClient, topic: str, partition: int = 0, offset: int = 0, isolation: Isolation = "read_committed"
) -> list[tuple[int, bytes | int | None]]:
    """All records from `offset` on, as pairs of offset and value."""
    found: list[tuple[int, bytes | int | None]] = []
    while True:
        fetched = log.fetch(topic, partition, offset, isolation=isolation)
        for run in fetched.runs:
            if isinstance(run, FetchedRows):
                found += zip(run.table["offset"].to_pylist(), run.table["value"].to_pylist(), strict=True)
            else:
                found += enumerate(run.batch["x"].to_pylist(), run.base_offset)
        if fetched.next_offset == offset:
            return found
        offset = fetched.next_offset


def partition_folder(folder: Path, topic: str = "t", partition: int = 0) -> Path:
    """Of the log in `folder`, open or not."""
    return replica_folder(folder, topics_of_node(folder)[topic], partition)


def segment_files(folder: Path, topic: str = "t", partition: int = 0) -> Sequence[Path]:
    return sorted(partition_folder(folder, topic, partition).glob("*.log"))


def crashed_copy(log: Log, folder: Path, copy: Path) -> Path:
    """The folder of an open log as a crash at this moment would leave it: no file is of before a sync, and another one
    of after it."""
    return log.node.hold(lambda: copytree(folder, copy))
