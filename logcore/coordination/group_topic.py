"""Encodes and decodes the records of consumer groups, except offsets, as entries of the topic `__consumer_offsets`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import structlog

from ..cores.group_records import ClassicGroup, GroupRecord, Kind
from ..records.key_values import KeyValue
from .group_record_bytes import decode_key, decode_value, encode_key, encode_value

_log = structlog.get_logger("millstream.logcore")


class TopicIds(Protocol):
    """Topic ids, of 16 bytes. They tell a topic from a later topic of the same name."""

    def id_of(self, name: str) -> bytes | None: ...

    def name_of(self, id: bytes) -> str | None: ...


class GroupTopic:
    """State: since when each group has been empty (time of day), if its records contain that."""

    def __init__(self, ids: TopicIds, wall_ms: Callable[[], int]) -> None:
        self._ids = ids
        self._wall_ms = wall_ms
        self.empty_since_ms: dict[str, int] = {}

    def decode(self, entries: Mapping[bytes, bytes]) -> list[GroupRecord]:
        """The records about groups, in an order in which they can be applied: members before their assignments."""
        records: list[GroupRecord] = []
        for key, content in entries.items():
            try:
                about = decode_key(key)
                if about is not None:
                    records.append(GroupRecord(about, decode_value(about.kind, content, self._ids.name_of)))
            except ValueError as error:
                _log.error("a record about a group cannot be read", error=str(error))
        records.sort(key=lambda record: record.key.kind)
        for record in records:
            self._note(record)
        return records

    def encode(self, records: Iterable[GroupRecord]) -> list[KeyValue]:
        """The entries to write for these records, in the same order."""
        changes: list[KeyValue] = []
        for key, value in records:
            if isinstance(value, ClassicGroup):
                value = dataclasses.replace(value, since_ms=self._wall_ms())
            self._note(GroupRecord(key, value))
            changes.append(KeyValue(encode_key(key), None if value is None else encode_value(value, self._ids.id_of)))
        return changes

    def _note(self, record: GroupRecord) -> None:
        if record.key.kind is Kind.CLASSIC:
            self.empty_since_ms.pop(record.key.group, None)
            if isinstance(record.value, ClassicGroup) and not record.value.members:
                self.empty_since_ms[record.key.group] = record.value.since_ms
