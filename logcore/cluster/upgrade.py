"""Upgrades a data directory of the previous version to that of a single node: `upgrade_directory`.

The previous version had another kind of log for a single node. Its partitions have the same files as a replica, so they
are only moved, whatever their size:

    topics.json, settings.json   become records of the metadata log, in quorum/
    meta.json                    becomes node.json; the log keeps its id
    <topic>-<p>/                 becomes replicas/<id of the topic>-<p>/

Before any change it checks that everything is intact, and refuses the directory if not. Then `upgrade.json` contains
the plan until the upgrade is complete. Each step can be repeated, so the next start continues after a crash.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import structlog

from ..coordination.group_offset_bytes import AppliedKey, OffsetKey, decode_offset_key, decode_stored, offset_record
from ..coordination.transaction_log import decode_entry, is_producer_ids, is_transaction
from ..cores.transaction_records import ProducerIdRange
from ..errors import CorruptLog, UnsupportedDataDirectory, unusable_directory
from ..failpoints import fp
from ..log_settings import of_broker
from ..records.batch import place
from ..records.control import encode_marker
from ..records.key_values import KeyValue, decode_key_values, encode_key_values
from ..replication.controller.metadata_image import ImageCodec
from ..replication.controller.metadata_records import (
    ConfigChanged,
    PartitionState,
    ProducerIdsReserved,
    SingleRecord,
    Together,
    TopicCreated,
)
from ..replication.disk.disk_folder import DiskFolder
from ..replication.disk.disk_log import DiskLog
from ..replication.machine import NodeId
from ..replication.node.node_directory import NODE_FILE, node_meta
from ..replication.raft.quorum_files import QuorumFiles
from ..replication.raft.quorum_messages import Entry, SaveEntries, SaveVote
from ..replication.topic_ids import id_bytes
from ..storage.checked_json import read_checked_json, read_with_copy, write_checked_json, write_with_copy
from ..storage.directory_lock import locked
from ..storage.disk import sync_folder
from ..storage.durable_point import DurablePoint
from ..storage.open_files import OpenFiles
from ..storage.partition_files import PartitionContext
from ..storage.recovery import Checkpoint, create_files, read_checkpoint, recover, write_checkpoint
from ..storage.segment import base_offsets, file_name
from ..topic_rules import COORDINATORS, TRANSACTIONS_TOPIC
from ..topic_settings import settings_of
from .cluster_layout import COORDINATOR_CONFIG

_META: Final = "meta.json"
_TOPICS: Final = "topics.json"
_SETTINGS: Final = "settings.json"
_CLOSED: Final = "closed"
_PLAN: Final = "upgrade.json"
_FORMAT: Final = 1
_ITS_NODE: Final = 0  # the id of the only node in the previous version
_EPOCH_MAX: Final = (1 << 15) - 1
_ENTRIES_AT_ONCE: Final = 1_000
_READ_BYTES: Final = 8 * 1024 * 1024
_log = structlog.get_logger("millstream.logcore")


class _Topic(NamedTuple):
    """A topic, as described in `topics.json` and `upgrade.json`."""

    name: str
    id: str
    partition_count: int
    config: Mapping[str, str]

    def folders(self, path: Path) -> list[Path]:
        return [path / f"{self.name}-{partition}" for partition in range(self.partition_count)]


def upgrade_directory(path: Path, node: NodeId, cluster: str) -> None:
    """Does nothing if the directory is already of this version, or does not exist. In: `node`, `cluster`: those that it
    will belong to.

    Raises `LogLocked`; `UnsupportedDataDirectory` if the previous version must open it once more, then it is unchanged;
    `CorruptLog`, `LogFull` and `UnusableDataDirectory`.
    """
    if not any((path / name).exists() for name in (_META, _PLAN)):
        return
    lock = locked(path / "lock")
    try:
        _Upgrade(path, node, cluster).run()
    except OSError as error:
        raise unusable_directory(error, path) from error
    finally:
        os.close(lock)


class _Upgrade:
    """Has no state except the directory, whose lock is held."""

    def __init__(self, path: Path, node: NodeId, cluster: str) -> None:
        self._path = path
        self._node = node
        self._cluster = cluster
        self._context = PartitionContext(OpenFiles(8), _now_ms, lambda: None, durable=True)

    def run(self) -> None:
        plan = self._read(_PLAN)
        if plan is None:
            plan = self._planned()
            write_checked_json(self._path / _PLAN, plan, durable=True)
        fp("upgrade.planned")
        topics = _topics_of(plan["topics"])
        _log.info("the data directory is upgraded", path=str(self._path), topics=len(topics))
        self._write_node(plan["node_id"])
        self._write_metadata(topics, plan)
        for topic in topics:
            self._move(topic, {each.name: id_bytes(each.id) for each in topics})
        self._finish()

    # Whether it can be done

    def _planned(self) -> Mapping[str, Any]:
        meta, stored, settings = (self._read(name) for name in (_META, _TOPICS, _SETTINGS))
        if meta.get("format") != _FORMAT:
            raise self._refused(f"has format {meta.get('format')}, which nothing is known of")
        if not (self._path / _CLOSED).exists():
            raise self._refused("was not closed by the version that wrote it, or not properly")
        if stored is None and not any(each.is_dir() for each in self._path.iterdir()):
            stored = {"topics": {}}  # nothing was ever written
        if stored is None or "topics" not in stored:
            raise self._refused(
                "has no list of topics in topics.json, or one of an earlier version",
                "Open it once with the last version 0.1 of Millstream, stop that with SIGTERM, and start this version"
                " again.",
            )
        described = stored["topics"]
        topics = _topics_of(described)
        for topic in topics:
            for partition, folder in enumerate(topic.folders(self._path)):
                self._check_whole(folder, f'partition {partition} of topic "{topic.name}"')
        return {
            "node_id": meta["node_id"],
            "topics": described,
            "settings": settings or {},
            "next_producer_id": self._next_producer_id(topics),
        }

    def _check_whole(self, folder: Path, name: str) -> None:
        """A partition that nobody used since an earlier crash is recovered as that version would have done it."""
        checkpoint = read_checkpoint(folder)
        if checkpoint is None or not _is_exact(folder, checkpoint):
            found = recover(folder, self._context.files, _now_ms(), durable=True, known=DurablePoint(folder).read())
            last = found.segments[-1]
            checkpoint = Checkpoint(
                found.log_start_offset,
                last.base_offset,
                last.size,
                True,
                found.state,
                found.cleaning,
                found.began_ms,
                found.damage,
            )
            self._check_nothing_lost(checkpoint, name)
            write_checkpoint(folder, checkpoint, durable=True)
        self._check_nothing_lost(checkpoint, name)

    def _check_nothing_lost(self, checkpoint: Checkpoint, name: str) -> None:
        for lost in checkpoint.lost[:1]:
            raise self._refused(
                f"has lost records, in {name}, of offsets {lost.first_offset}..{lost.end_offset - 1}",
                "Give them up with the version before (millstream log accept-loss), open and close it there, and"
                " start this version again.",
            )

    def _next_producer_id(self, topics: Iterable[_Topic]) -> int:
        """The first unused producer id."""
        entries = [entry for topic in topics if topic.name == TRANSACTIONS_TOPIC for entry in self._entries(topic)]
        ranges = [decode_entry(key, value) for key, value in entries if is_producer_ids(key)]
        return max((entry.end for entry in ranges if isinstance(entry, ProducerIdRange)), default=0)

    def _refused(self, what: str, hint: str = "") -> UnsupportedDataDirectory:
        return UnsupportedDataDirectory(
            f"the data directory {self._path} {what}, so it cannot be upgraded; it is still that of the version"
            " that wrote it",
            hint=hint
            or "Open it once with the version of Millstream that wrote it, stop that with SIGTERM, and start"
            " this version again.",
        )

    # The steps

    def _write_node(self, disk: str) -> None:
        write_with_copy(self._path / NODE_FILE, node_meta(self._node, self._cluster, disk, alone=True), durable=True)
        fp("upgrade.node")

    def _write_metadata(self, topics: Iterable[_Topic], plan: Mapping[str, Any]) -> None:
        """Writes the metadata as one record, as if the node had decided it before."""
        folder = self._path / "quorum"
        shutil.rmtree(folder, ignore_errors=True)
        files = QuorumFiles(DiskFolder(folder), (self._node,), ImageCodec(), disk=plan["node_id"])
        records = Together(tuple(self._records(topics, plan)))
        files.apply(SaveVote(1, None))
        files.apply(SaveEntries(1, (Entry(1, records),)))
        files.sync()
        sync_folder(self._path)
        fp("upgrade.metadata")

    def _records(self, topics: Iterable[_Topic], plan: Mapping[str, Any]) -> Iterable[SingleRecord]:
        yield ProducerIdsReserved(plan["next_producer_id"])
        for topic in topics:
            yield TopicCreated(topic.id, topic.name)
            for partition in range(topic.partition_count):
                yield self._led_alone(topic.id, partition)
            for key, value in (COORDINATOR_CONFIG if topic.name in COORDINATORS else topic.config).items():
                yield ConfigChanged(topic.id, key, value)
        for resource, settings in plan["settings"].items():
            of = of_broker(self._node) if resource == of_broker(_ITS_NODE) else resource
            for key, value in settings.items():
                yield ConfigChanged(of, key, value)

    def _led_alone(self, topic_id: str, partition: int) -> PartitionState:
        alone = (self._node,)
        return PartitionState(
            topic_id,
            partition,
            leader=self._node,
            leader_epoch=0,
            partition_epoch=0,
            replicas=alone,
            isr=alone,
            elr=(),
            min_isr=1,
        )

    def _move(self, topic: _Topic, ids: Mapping[str, bytes]) -> None:
        replicas = self._path / "replicas"
        replicas.mkdir(exist_ok=True)
        sync_folder(self._path)
        for partition, folder in enumerate(topic.folders(self._path)):
            place = replicas / f"{topic.id}-{partition}"
            if topic.name in COORDINATORS and not place.exists():
                self._rewrite(topic, place, ids)
            if place.exists():
                sync_folder(replicas)  # it must be durable before its source is removed
                shutil.rmtree(folder, ignore_errors=True)
            else:
                folder.rename(place)
            fp("upgrade.moved")
            self._abort_open(place)
        sync_folder(replicas)
        sync_folder(self._path)

    def _abort_open(self, folder: Path) -> None:
        """Aborts open transactions. Their producers were fenced when the log was closed."""
        checkpoint = read_checkpoint(folder)
        assert checkpoint is not None, "it was found whole"
        if not checkpoint.state.transactions.open:
            return
        log = self._opened(folder)  # it may have the markers of an earlier start
        for found in list(log.state.transactions.open):
            epoch = min(max(found.epoch, log.state.producers.epoch_of(found.producer_id)) + 1, _EPOCH_MAX)
            marker = encode_marker(found.producer_id, epoch, committed=False, timestamp_ms=_now_ms())
            log.append([place(marker, log.end_offset, 0)])
        fp("upgrade.marked")
        log.close()
        fp("upgrade.aborted")

    def _rewrite(self, topic: _Topic, target: Path, ids: Mapping[str, bytes]) -> None:
        """Rewrites the state of coordinators in the format of a node's coordinators."""
        aside = target.with_name(f"{target.name}.new")
        shutil.rmtree(aside, ignore_errors=True)
        create_files(aside, durable=True)
        known = self._entries(topic)
        entries = _transactions(known) if topic.name == TRANSACTIONS_TOPIC else _groups(known, ids)
        log = self._opened(aside)
        for first in range(0, len(entries), _ENTRIES_AT_ONCE):
            batch = encode_key_values(entries[first : first + _ENTRIES_AT_ONCE], _now_ms())
            log.append([place(batch, log.end_offset, 0)])
        log.close()
        fp("upgrade.rewritten")
        aside.rename(target)

    def _finish(self) -> None:
        for name in (_CLOSED, _SETTINGS, _TOPICS, _META):
            for each in (name, f"{name}.copy"):
                (self._path / each).unlink(missing_ok=True)
        sync_folder(self._path)
        fp("upgrade.finished")
        (self._path / _PLAN).unlink()
        sync_folder(self._path)

    # Files

    def _entries(self, topic: _Topic) -> list[KeyValue]:
        """The keys and values in the topic. Raises `CorruptLog`."""
        log = self._opened(topic.folders(self._path)[0])
        found: dict[bytes, bytes | None] = {}
        offset = log.offsets().log_start_offset
        while offset < log.end_offset:
            for batch in log.read(offset, log.end_offset, _READ_BYTES):
                found.update(decode_key_values(batch))
                offset = batch.header.last_offset + 1
        return [KeyValue(key, value) for key, value in found.items() if value is not None]

    def _opened(self, folder: Path) -> DiskLog:
        return DiskLog(f"the log in {folder}", folder, settings_of({}), self._context)

    def _read(self, name: str) -> Any:
        """The content of a file; None if it does not exist. Raises `CorruptLog`."""
        path = self._path / name
        try:
            return read_checked_json(path) if name == _PLAN else read_with_copy(path, durable=True)
        except ValueError as error:
            raise CorruptLog(
                f"{path} is damaged at position 0: {error}",
                hint="Restore it from a backup; the data of the partitions was not touched.",
            ) from error


def _topics_of(described: Mapping[str, Any]) -> list[_Topic]:
    return [
        _Topic(name, fields["id"], fields["partition_count"], fields["config"]) for name, fields in described.items()
    ]


def _transactions(entries: Iterable[KeyValue]) -> list[KeyValue]:
    """Only the transactions: producer ids are in the metadata, and how the log was closed is no longer relevant."""
    return [entry for entry in entries if is_transaction(entry.key)]


def _groups(entries: Iterable[KeyValue], ids: Mapping[str, bytes]) -> list[KeyValue]:
    """Committed offsets, which now also have their topic's id. The record of applied commits is no longer needed."""
    found: list[KeyValue] = []
    for entry in entries:
        key = decode_offset_key(entry.key)
        if isinstance(key, OffsetKey) and entry.value is not None:
            id = ids.get(key.partition.topic)
            if id is not None:
                found.append(offset_record(key, decode_stored(entry.value)._replace(topic_id=id)))
        elif not isinstance(key, AppliedKey):
            found.append(entry)
    return found


def _is_exact(folder: Path, checkpoint: Checkpoint) -> bool:
    """Whether the checkpoint is durable, and the log ends where it says."""
    last = max(base_offsets(folder), default=-1)
    if not checkpoint.synced or last != checkpoint.segment:
        return False
    return (folder / file_name(last)).stat().st_size == checkpoint.position


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
