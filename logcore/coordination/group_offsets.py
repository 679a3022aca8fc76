"""The committed offsets of groups, in the topic `__consumer_offsets` of a single node.

A key of a version of our own says which commit of a transactional id was applied last, so that recovery does not set
offsets back that moved on since.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from ..client import TopicPartition
from ..cores.group_messages import NO_NOTE, CommitNote, CommittedOffset
from ..storage.partition import Appended, Mark
from .group_offset_bytes import (
    AppliedKey,
    OffsetKey,
    StoredOffset,
    applied_record,
    decode_applied,
    decode_offset_key,
    decode_stored,
    offset_record,
)
from .state_log import KeyValue, StateLog

TOPIC: Final = "__consumer_offsets"

_Offsets = Mapping[TopicPartition, CommittedOffset]


class _Committed(NamedTuple):
    log_offset: int  # of the record: of two commits that become durable together the later one counts
    committed: CommittedOffset


@dataclass(frozen=True, slots=True)
class PendingCommit:
    """Written, but perhaps not durable, and not shown yet."""

    group: str
    offsets: _Offsets
    appended: Appended


@dataclass(frozen=True, slots=True)
class _Applied:
    """Offsets of a decided transaction: shown, but perhaps not durable."""

    mark: Mark
    first_offset: int  # of its records
    groups: Mapping[str, _Offsets]
    changes: tuple[KeyValue, ...]


class GroupOffsets:
    """State: the committed offsets that readers see, each durable or part of a durable transaction.

    A sync that fails takes all that was not durable from the log, whoever wrote it. What a transaction has committed
    is then written again, before anything else is written or called durable.
    """

    def __init__(self, log: StateLog) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._writing = threading.RLock()
        self._undurable: list[_Applied] = []  # in the order of their records
        self._groups: dict[str, dict[TopicPartition, _Committed]] = {}
        self._applied: dict[str, int] = {}
        for key, value in log.entries().items():
            self._load(key, value)

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """Raises `CorruptLog` where what was committed is not known any more."""
        self._log.check_known()
        with self._lock:
            offsets = self._groups.get(group, {})
            return {partition: found.committed.offset for partition, found in offsets.items()}

    def committed_with_metadata(self, group: str) -> dict[TopicPartition, CommittedOffset]:
        self._log.check_known()
        with self._lock:
            offsets = self._groups.get(group, {})
            return {partition: found.committed for partition, found in offsets.items()}

    def groups(self) -> list[str]:
        """Those that have committed something."""
        with self._lock:
            return [group for group, offsets in self._groups.items() if offsets]

    def commit(self, group: str, offsets: Mapping[TopicPartition, int], now_ms: int) -> None:
        """Durable on return."""
        if offsets:
            self.finish_commit(self.begin_commit(group, offsets, now_ms, {}))

    def begin_commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int],
        now_ms: int,
        notes: Mapping[TopicPartition, CommitNote],
    ) -> PendingCommit:
        """Decides its place among the other commits, without waiting for the disk."""
        committed = {
            TopicPartition(*partition): CommittedOffset(offset, *notes.get(partition, NO_NOTE), now_ms)
            for partition, offset in offsets.items()
        }
        changes = [_offset_record(group, *entry) for entry in committed.items()]
        with self._writing:
            self._write_lost()
            return PendingCommit(group, committed, self._log.append(changes))

    def finish_commit(self, pending: PendingCommit) -> None:
        """Durable and visible on return."""
        self._log.sync(pending.appended.mark)
        self._show(pending.appended.first_offset, {pending.group: pending.offsets})

    # What else is known of groups

    def entries(self) -> Mapping[bytes, bytes]:
        """All records of the topic, by their keys."""
        return self._log.entries()

    def write(self, changes: Iterable[KeyValue]) -> Mark:
        """Records of the groups themselves; durable once `settle` returns. Raises `LogError`."""
        with self._writing:
            self._write_lost()
            return self._log.append(changes).mark

    def settle(self, mark: Mark) -> None:
        """Raises `LogError`; then what was written up to the mark, and is not durable, is lost."""
        if not self._log.is_durable(mark):
            self._log.sync(mark)

    def forget(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Drops what the group committed for these; durable on return."""
        gone = list(partitions)
        with self._lock:
            for partition in gone:
                self._drop(group, partition)
        self._write_forgotten([(group, partition) for partition in gone])

    def apply_transaction(
        self,
        transactional_id: str,
        number: int,
        groups: Mapping[str, _Offsets],
        now_ms: int,
    ) -> Mark | None:
        """The offsets of a transaction whose commit is decided: visible on return, durable with the next sync.

        None where they were applied before.
        """
        if self._applied.get(transactional_id, 0) >= number or not groups:
            return None
        groups = {
            group: {partition: committed._replace(at_ms=now_ms) for partition, committed in offsets.items()}
            for group, offsets in groups.items()
        }
        changes = [_offset_record(group, *entry) for group, offsets in groups.items() for entry in offsets.items()]
        changes.append(applied_record(transactional_id, number))  # last: all are there then
        with self._writing:
            self._write_lost()
            appended = self._log.append(changes)
            self._show(appended.first_offset, groups)
            self._applied[transactional_id] = number
            self._undurable.append(_Applied(appended.mark, appended.first_offset, groups, tuple(changes)))
            self._forget_durable()
        return appended.mark

    def forget_topic(self, topic: str) -> None:
        """Drops what groups committed for a topic that was deleted; a new one of that name starts afresh."""
        with self._lock:
            gone = [
                (group, partition)
                for group, offsets in self._groups.items()
                for partition in offsets
                if partition.topic == topic
            ]
            for group, partition in gone:
                self._drop(group, partition)
        self._write_forgotten(gone)

    def forget_applied(self, transactional_id: str) -> None:
        """Nobody has this id any more: its next owner counts commits from 1. Durable on return. Raises `LogError`."""
        with self._writing:
            if self._applied.pop(transactional_id, None) is None:
                return
            self._write_lost()
            self._log.append([applied_record(transactional_id, None)])
        self._log.sync()

    def _drop(self, group: str, partition: TopicPartition) -> None:
        """The caller has the lock."""
        offsets = self._groups.get(group, {})
        offsets.pop(partition, None)
        if not offsets:
            self._groups.pop(group, None)

    def _write_forgotten(self, gone: list[tuple[str, TopicPartition]]) -> None:
        if gone:
            with self._writing:
                self._write_lost()
                self._log.append([_offset_record(group, partition, None) for group, partition in gone])
            self._log.sync()

    def sync(self) -> None:
        """Makes durable what transactions have committed."""
        with self._writing:
            self._write_lost()
        self._log.sync()
        with self._writing:
            self._forget_durable()

    def _write_lost(self) -> None:
        for index, applied in enumerate(self._undurable):
            if not self._log.holds(applied.mark):
                appended = self._log.append(applied.changes)
                self._move(applied, appended.first_offset)
                self._undurable[index] = replace(applied, mark=appended.mark, first_offset=appended.first_offset)

    def _forget_durable(self) -> None:
        self._undurable = [applied for applied in self._undurable if not self._log.is_durable(applied.mark)]

    def _move(self, applied: _Applied, first_offset: int) -> None:
        """What is shown because of these records has them elsewhere in the log now."""
        with self._lock:
            for group, offsets in applied.groups.items():
                known = self._groups.get(group, {})
                for partition in offsets:
                    if partition in known and known[partition].log_offset == applied.first_offset:
                        known[partition] = known[partition]._replace(log_offset=first_offset)

    def _show(self, log_offset: int, groups: Mapping[str, _Offsets]) -> None:
        with self._lock:
            for group, offsets in groups.items():
                known = self._groups.setdefault(group, {})
                for partition, committed in offsets.items():
                    if partition not in known or known[partition].log_offset <= log_offset:
                        known[partition] = _Committed(log_offset, committed)

    def _load(self, content: bytes, value: bytes) -> None:
        key = decode_offset_key(content)
        if isinstance(key, AppliedKey):
            self._applied[key.transactional_id] = decode_applied(value)
        elif isinstance(key, OffsetKey):
            self._groups.setdefault(key.group, {})[key.partition] = _Committed(-1, decode_stored(value).committed)


def _offset_record(group: str, partition: TopicPartition, committed: CommittedOffset | None) -> KeyValue:
    stored = None if committed is None else StoredOffset(committed)
    return offset_record(OffsetKey(group, partition), stored)
