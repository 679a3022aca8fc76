"""The sink `parquet`: writes rows of topics to folders of Parquet files, on disk or in an S3 store. Transactional.

It collects records until there are enough for a file, by rows, bytes or time. Until then the committed offset is the
one of the first collected record, so a task gets these records again after a crash. `parquet_folder.py` explains how
each file is written exactly once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from ....logcore.client import TopicPartition
from ..connector import ConnectRecord, TaskInfo
from ..connector_settings import setting
from ..stores.file_store import StoreSettings, checked_location
from ..stores.s3_objects import opened_store
from .hive_partitions import PartitionColumn
from .lake_sink import LakeChange, LakeSettings, LakeSink, LakeTable, origin_of
from .parquet_folder import ParquetFolder, ParquetLayout


@dataclass(frozen=True, kw_only=True)
class ParquetSinkSettings(LakeSettings, StoreSettings):
    location: str = setting("Folder of the table, or s3://bucket/prefix; ${topic} is the topic's name.")
    partition_by: tuple[str, ...] = setting(
        "Columns that name folders, as Hive has them: country, or year(at), month(at), day(at), hour(at) of a time.",
        default=(),
    )
    rotate_rows: int = setting("Files are written once there are so many rows, and have no more.", default=1_000_000)
    rotate_bytes: int = setting("Files are written once the rows have so many bytes in memory.", default=64 * 1024**2)
    rotate_interval_ms: int = setting("Files are written once the first row is so old.", default=60_000)
    compression: str = setting(
        "Of the files.", default="zstd", choices=("zstd", "snappy", "gzip", "lz4", "brotli", "none")
    )

    def __post_init__(self) -> None:
        LakeSettings.__post_init__(self)
        StoreSettings.__post_init__(self)
        checked_location(self.location, "location")
        for name in ("rotate_rows", "rotate_bytes", "rotate_interval_ms"):
            if getattr(self, name) < (0 if name == "rotate_interval_ms" else 1):
                raise ValueError(f"{name.replace('_', '.')} is too small")
        if len({column.name for column in self.partitions}) < len(self.partition_by):
            raise ValueError("partition.by names a folder twice")

    @property
    def partitions(self) -> tuple[PartitionColumn, ...]:
        return tuple(PartitionColumn.of(text) for text in self.partition_by)


class ParquetSink(LakeSink):
    """Folders of Parquet files. State: the folders by topic; since when each has waiting rows; and the offsets of the
    first waiting rows."""

    settings = ParquetSinkSettings
    has_times: ClassVar[bool] = False
    kill_points: ClassVar[tuple[str, ...]] = (
        "parquet_after_file", "lake_before_commit", "lake_after_commit", "parquet_before_move",
    )  # fmt: skip

    def __init__(self, settings: ParquetSinkSettings, task: TaskInfo) -> None:
        super().__init__(settings, task)
        self._own = settings
        self._layout = ParquetLayout(
            partitions=settings.partitions, rows_max=settings.rotate_rows, compression=settings.compression
        )
        self._folders: dict[str, ParquetFolder] = {}
        self._since_s: dict[str, float] = {}
        self._first: dict[str, dict[TopicPartition, int]] = defaultdict(dict)

    def open_table(self, topic: str) -> ParquetFolder | None:
        if topic not in self._folders:
            folder = self._folder(topic)
            if not folder.open():
                return None
            self._folders[topic] = folder
        return self._folders[topic]

    def create_table(self, topic: str, types: Mapping[str, pa.DataType]) -> ParquetFolder:
        folder = self._folder(topic)
        folder.create(types)
        self._folders[topic] = folder
        return folder

    def commit(self, table: LakeTable, change: LakeChange) -> None:
        table.commit(change)

    def write(self, records: Sequence[ConnectRecord], positions: Mapping[TopicPartition, int]) -> None:
        super().write(records, positions)
        for record in records:
            folder = self._folders.get(record.topic)
            if folder is not None and folder.waiting_rows and record.offset is not None:
                self._since_s.setdefault(record.topic, self._task.clock.monotonic())
                self._first[record.topic].setdefault(origin_of(record), record.offset)
        self.tick()

    def held(self) -> Mapping[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for first in self._first.values():
            for at, offset in first.items():
                found[at] = min(offset, found.get(at, offset))
        return found

    def tick(self) -> None:
        for topic in [topic for topic in self._since_s if self._due(topic)]:
            self._folders[topic].flush()
            del self._since_s[topic]
            self._first.pop(topic)

    def _due(self, topic: str) -> bool:
        settings, folder = self._own, self._folders[topic]
        return (
            folder.waiting_rows >= settings.rotate_rows
            or folder.waiting_bytes >= settings.rotate_bytes
            or self._task.clock.monotonic() - self._since_s[topic] >= settings.rotate_interval_ms / 1000
        )

    def _folder(self, topic: str) -> ParquetFolder:
        place = self._own.location.replace("${topic}", topic)
        return ParquetFolder(opened_store(place, self._own), self._layout, self._task.identity, self._task.number)
