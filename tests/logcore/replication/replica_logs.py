"""Logs of replicas for tests: on files and in the simulator, and batches that have their place."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from millstream.logcore.records.batch import BatchProducer, EncodedBatch, place
from millstream.logcore.replication.disk.disk_log import DiskLog
from millstream.logcore.replication.disk.disk_recovery import begin_log
from millstream.logcore.replication.replica.replica_log import ReplicaLog
from millstream.logcore.storage.open_files import OpenFiles
from millstream.logcore.storage.partition_files import PartitionContext
from millstream.logcore.topic_settings import settings_of

from .trio import batch

NOW_MS = 1_700_000_000_000


def open_disk_log(folder: Path, *, segment_bytes: int = 1024, retention_bytes: int = -1) -> DiskLog:
    """The log in this folder, which is made where it is missing; its segments are small."""
    files = OpenFiles(64)
    if not folder.exists():
        begin_log(folder, files)
    settings = settings_of({"segment.bytes": str(segment_bytes), "retention.bytes": str(retention_bytes)})
    return DiskLog("the log", folder, settings, PartitionContext(files, lambda: NOW_MS, lambda: None, durable=True))


def placed(
    offset: int, epoch: int, size: int = 100, rows: int = 1, producer: BatchProducer | None = None
) -> EncodedBatch:
    """A batch whose records are as many bytes, and tell where and when it was written."""
    value = b"%d/%d" % (offset, epoch)
    return place(batch(value.ljust(size, b"."), rows, producer or BatchProducer()), offset, epoch)


def append(log: ReplicaLog, *epochs: int, size: int = 100) -> None:
    """One batch after the other, of these leader epochs."""
    for epoch in epochs:
        log.append((placed(log.end_offset, epoch, size),))


Entry = tuple[int, int, int]


def entry_of(batch: EncodedBatch) -> Entry:
    """Offset, epoch and checksum: what tells a batch from another one at its place."""
    return batch.header.base_offset, batch.header.leader_epoch, batch.header.crc


def entries(log: ReplicaLog, max_bytes: int = 700) -> list[Entry]:
    """All batches, from the log's start on."""
    found: list[Entry] = []
    offset = log.log_start_offset
    while offset < log.end_offset:
        batches: Sequence[EncodedBatch] = log.read(offset, log.end_offset, max_bytes)
        assert batches, f"nothing at offset {offset} of a log that ends at {log.end_offset}"
        found += map(entry_of, batches)
        offset = batches[-1].header.last_offset + 1
    return found
