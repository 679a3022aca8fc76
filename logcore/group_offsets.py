"""The committed offsets of groups, in the topic `__consumer_offsets`. Keys and values are laid out as Kafka does.

A key of a version of our own says which commit of a transactional id was applied last, so that recovery does not set
offsets back that moved on since.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Mapping
from typing import Final, NamedTuple

from .client import TopicPartition
from .partition import Mark
from .state_log import KeyValue, StateLog

TOPIC: Final = "__consumer_offsets"

_VERSION: Final = struct.Struct(">h")
_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")
_KEY_OF_OFFSET: Final = 1
_KEY_OF_TRANSACTION: Final = 0x4D53
_VALUE_VERSION: Final = 3


class _Committed(NamedTuple):
    log_offset: int  # of the record: of two commits that become durable together the later one counts
    offset: int


class GroupOffsets:
    """State: the committed offsets that readers see, each durable or part of a durable transaction."""

    def __init__(self, log: StateLog) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._groups: dict[str, dict[TopicPartition, _Committed]] = {}
        self._applied: dict[str, int] = {}
        for key, value in log.entries().items():
            self._load(key, value)

    def committed(self, group: str) -> dict[TopicPartition, int]:
        with self._lock:
            offsets = self._groups.get(group, {})
            return {partition: committed.offset for partition, committed in offsets.items()}

    def commit(self, group: str, offsets: Mapping[TopicPartition, int], now_ms: int) -> None:
        """Durable on return."""
        if offsets:
            changes = [_offset_record(group, partition, offset, now_ms) for partition, offset in offsets.items()]
            appended = self._log.append(changes)
            self._log.sync(appended.mark)
            self._show(appended.first_offset, {group: offsets})

    def apply_transaction(
        self,
        transactional_id: str,
        number: int,
        groups: Mapping[str, Mapping[TopicPartition, int]],
        now_ms: int,
    ) -> Mark | None:
        """The offsets of a transaction whose commit is decided: visible on return, durable with the next sync.

        None where they were applied before.
        """
        if self._applied.get(transactional_id, 0) >= number or not groups:
            return None
        changes = [
            _offset_record(group, partition, offset, now_ms)
            for group, offsets in groups.items()
            for partition, offset in offsets.items()
        ]
        changes.append(KeyValue(_transaction_key(transactional_id), _LONG.pack(number)))  # last: all are there then
        appended = self._log.append(changes)
        self._show(appended.first_offset, groups)
        self._applied[transactional_id] = number
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
                del self._groups[group][partition]
        if gone:
            self._log.append([KeyValue(_offset_key(group, partition), None) for group, partition in gone])
            self._log.sync()

    def sync(self) -> None:
        self._log.sync()

    def _show(self, log_offset: int, groups: Mapping[str, Mapping[TopicPartition, int]]) -> None:
        with self._lock:
            for group, offsets in groups.items():
                known = self._groups.setdefault(group, {})
                for partition, offset in offsets.items():
                    if partition not in known or known[partition].log_offset <= log_offset:
                        known[TopicPartition(*partition)] = _Committed(log_offset, offset)

    def _load(self, key: bytes, value: bytes) -> None:
        (version,) = _VERSION.unpack_from(key)
        if version == _KEY_OF_TRANSACTION:
            transactional_id, _ = _read_text(key, 2)
            self._applied[transactional_id] = _LONG.unpack(value)[0]
        elif version == _KEY_OF_OFFSET:
            group, position = _read_text(key, 2)
            topic, position = _read_text(key, position)
            partition = TopicPartition(topic, _INT.unpack_from(key, position)[0])
            self._groups.setdefault(group, {})[partition] = _Committed(-1, _LONG.unpack_from(value, 2)[0])


def _offset_record(group: str, partition: TopicPartition, offset: int, now_ms: int) -> KeyValue:
    value = _VERSION.pack(_VALUE_VERSION) + _LONG.pack(offset) + _INT.pack(-1) + _text("") + _LONG.pack(now_ms)
    return KeyValue(_offset_key(group, partition), value)


def _offset_key(group: str, partition: TopicPartition) -> bytes:
    topic, number = partition
    return _VERSION.pack(_KEY_OF_OFFSET) + _text(group) + _text(topic) + _INT.pack(number)


def _transaction_key(transactional_id: str) -> bytes:
    return _VERSION.pack(_KEY_OF_TRANSACTION) + _text(transactional_id)


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


def _read_text(content: bytes, position: int) -> tuple[str, int]:
    (length,) = _VERSION.unpack_from(content, position)
    start = position + _VERSION.size
    return content[start : start + length].decode(), start + length
