"""The folder of a log: who may open it, in what format it is, and which topics it holds."""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ..client import Topic
from ..errors import CorruptLog, UnsupportedDataDirectory, write_error
from .checked_json import read_with_copy, serial_of, write_with_copy
from .directory_lock import locked
from .disk import make_folder, sync_folder
from .recovery import create_files

NODE_FILE: Final = "node.json"  # in the directory of a node of a cluster
SINGLE_NODE_FILES: Final = ("meta.json", "topics.json")
_FORMAT: Final = 1
_DELETED: Final = "-delete"
_OURS: Final = re.compile(
    r"\d{20}\.log(\..+)?|\d{20}\.index(\.new)?|(checkpoint|swap)\.json(\.new)?|begins-at-\d+|durable"
)
_CLOSED: Final = "closed"


@dataclass(frozen=True, slots=True)
class StoredTopic:
    """`id` tells a topic from an earlier one of the same name."""

    id: str
    topic: Topic


class DataDirectory:
    """State: the lock, held until `close`, and the topics as `topics.json` has them.

    Partition p of a topic is the folder `<topic>-<p>`. A topic exists when `topics.json` names it. `was_closed`: who
    had the directory open before made everything durable at the end.
    """

    def __init__(self, path: Path, *, durable: bool) -> None:
        self.path = path
        self._durable = durable
        self._serial = 0  # of what is in topics.json; grows with each change
        make_folder(path, durable=durable)
        _check_not_of_a_cluster(path)
        self._lock = locked(path / "lock")
        try:
            self.node_id = self._read_meta()
            self.topics: dict[str, StoredTopic] = self._read_topics()
            self._remove_leftovers()
            self.was_closed = self._take_closed_mark()
        except BaseException:
            os.close(self._lock)
            raise

    def close(self) -> None:
        """Lets another process have the folder."""
        os.close(self._lock)

    def mark_closed(self) -> None:
        """The next one to open the directory need not make durable what it finds. Raises OSError."""
        (self.path / _CLOSED).touch()
        if self._durable:
            sync_folder(self.path)

    def _take_closed_mark(self) -> bool:
        try:
            (self.path / _CLOSED).unlink()
        except FileNotFoundError:
            return False
        if self._durable:
            sync_folder(self.path)
        return True

    def folder(self, name: str, partition: int) -> Path:
        return self.path / f"{name}-{partition}"

    def create(self, topic: Topic) -> StoredTopic:
        """Durable on return; after a crash the topic is there as a whole or not at all."""
        stored = StoredTopic(uuid.uuid4().hex, topic)
        folders = [self.folder(topic.name, partition) for partition in range(topic.partition_count)]
        try:
            for folder in folders:
                create_files(folder, durable=self._durable)
            if self._durable:
                sync_folder(self.path)
            self._write_topics({**self.topics, topic.name: stored})
        except OSError as error:
            for folder in folders:
                shutil.rmtree(folder, ignore_errors=True)
            raise write_error(error, f'the new topic "{topic.name}"') from error
        return stored

    def change(self, changed: Topic) -> None:
        """Other settings, or more partitions; durable on return, and after a crash the topic is as before or as now."""
        stored = self.topics[changed.name]
        new = range(stored.topic.partition_count, changed.partition_count)
        folders = [self.folder(changed.name, partition) for partition in new]
        try:
            for folder in folders:
                create_files(folder, durable=self._durable)
            if self._durable and folders:
                sync_folder(self.path)
            self._write_topics({**self.topics, changed.name: StoredTopic(stored.id, changed)})
        except OSError as error:
            for folder in folders:
                shutil.rmtree(folder, ignore_errors=True)
            raise write_error(error, f'the changed topic "{changed.name}"') from error

    def delete(self, name: str) -> None:
        """Durable once `topics.json` is written; the folders go after that."""
        stored = self.topics[name]
        try:
            self._write_topics({other: topic for other, topic in self.topics.items() if other != name})
        except OSError as error:
            raise write_error(error, f'that topic "{name}" is deleted') from error
        for partition in range(stored.topic.partition_count):
            self._remove(self.folder(name, partition))

    def _write_topics(self, topics: Mapping[str, StoredTopic]) -> None:
        described = {
            stored.topic.name: {
                "id": stored.id,
                "partition_count": stored.topic.partition_count,
                "config": dict(stored.topic.config),
            }
            for stored in topics.values()
        }
        content = {"serial": self._serial + 1, "topics": described}
        write_with_copy(self.path / "topics.json", content, durable=self._durable)
        self._serial += 1
        self.topics = dict(topics)

    def _read_meta(self) -> str:
        path = self.path / "meta.json"
        meta = self._read(path)
        if meta is None:
            if (self.path / "topics.json").exists():
                raise _missing(path)
            meta = {"format": _FORMAT, "node_id": uuid.uuid4().hex}
            write_with_copy(path, meta, durable=self._durable)
        if meta.get("format") != _FORMAT:
            raise UnsupportedDataDirectory(
                f"the data directory {self.path} has format {meta.get('format')}, and this version reads {_FORMAT}",
                hint="Open it with the version of Millstream that wrote it.",
            )
        return str(meta["node_id"])

    def _read_topics(self) -> dict[str, StoredTopic]:
        path = self.path / "topics.json"
        content = self._read(path)
        if content is None:
            # Files without a byte in them are what a crash leaves that came before the first topic was listed.
            if any(log.stat().st_size for log in self.path.glob("*-*/*.log")):
                raise _missing(path)
            content = {}
        self._serial = serial_of(content)
        return {
            name: StoredTopic(fields["id"], Topic(name, fields["partition_count"], fields["config"]))
            for name, fields in (content["topics"] if self._serial else content).items()  # earlier versions had none
        }

    def _read(self, path: Path) -> Any:
        try:
            return read_with_copy(path, durable=self._durable)
        except ValueError as error:
            raise CorruptLog(
                f"{path} is damaged at position 0: {error}",
                hint="Restore it from a backup; the data of the partitions was not touched.",
            ) from error

    def _remove_leftovers(self) -> None:
        """Removes the folders of topics that were being created or deleted when a crash came."""
        known = {
            self.folder(name, partition).name
            for name, stored in self.topics.items()
            for partition in range(stored.topic.partition_count)
        }
        for folder in self.path.iterdir():
            is_partition = folder.name.rpartition("-")[2].isdecimal() or folder.name.endswith(_DELETED)
            if is_partition and folder.name not in known and _holds_only_ours(folder):
                self._remove(folder)

    def _remove(self, folder: Path) -> None:
        """Out of the way first, so that a half removed folder is never taken for a partition."""
        if not folder.name.endswith(_DELETED):
            aside = folder.with_name(f"{uuid.uuid4().hex}{_DELETED}")  # a topic's name may be as long as a name can be
            folder.rename(aside)
            folder = aside
        shutil.rmtree(folder, ignore_errors=True)


def _holds_only_ours(folder: Path) -> bool:
    """False for a folder that somebody else put here: it is not ours to remove."""
    return folder.is_dir() and all(_OURS.fullmatch(path.name) for path in folder.iterdir())


def _check_not_of_a_cluster(path: Path) -> None:
    if (path / NODE_FILE).exists():
        raise UnsupportedDataDirectory(
            f"the data directory {path} belongs to a node of a cluster, and cannot be opened as a log of its own",
            hint="Start it with --node and --cluster, as it was before, or with another directory.",
        )


def _missing(path: Path) -> CorruptLog:
    return CorruptLog(
        f"{path} is missing, though there are files of a log beside it",
        hint="Restore it from a backup; the data of the partitions was not touched.",
    )
