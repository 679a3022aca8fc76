"""The records that share groups of a shard have acquired: a fold of the shard's log, and the log records of changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import structlog

from ...coordination.share_record_bytes import (
    NumberedChange,
    ShareKey,
    decode_numbered,
    decode_share_key,
    share_record,
)
from ...cores.share_partition import SharePartition
from ...cores.share_settings import ShareLimits
from ...records.key_values import KeyValue
from ..replica.replica_messages import PartitionId

_SLOTS: Final = 64  # updates between two snapshots
_log: Final = structlog.get_logger("millstream.logcore")


@dataclass(slots=True)
class _Kept:
    """`number`: that of the last written change. `slots`: the slots with an update."""

    partition: SharePartition
    number: int = 0
    slots: set[int] = field(default_factory=set)


class ShareStates:
    """State: by group and partition, the acquired records, and the number of the last change."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[PartitionId, _Kept]] = {}

    def load(self, entries: Mapping[bytes, bytes]) -> None:
        """Loads the newest record of each key; ignores records about something else."""
        snapshots: dict[ShareKey, NumberedChange] = {}
        updates: dict[ShareKey, list[tuple[int, NumberedChange]]] = {}
        for content, value in entries.items():
            try:
                key = decode_share_key(content)
                if key is not None and key.slot is None:
                    snapshots[key] = decode_numbered(value)
                elif key is not None and key.slot is not None:
                    updates.setdefault(key._replace(slot=None), []).append((key.slot, decode_numbered(value)))
            except ValueError as error:
                _log.error("a record about a share group cannot be read", error=str(error))
        for key, snapshot in snapshots.items():
            kept = _Kept(SharePartition(snapshot.change.start_offset), snapshot.number)
            kept.partition.apply(snapshot.change)
            for slot, update in sorted(updates.get(key, ()), key=lambda each: each[1].number):
                kept.slots.add(slot)
                if update.number > kept.number:
                    kept.partition.apply(update.change)
                    kept.number = update.number
            self._groups.setdefault(key.group, {})[PartitionId(key.topic, key.partition)] = kept

    # Queries

    def of(self, group: str, place: PartitionId) -> SharePartition | None:
        kept = self._groups.get(group, {}).get(place)
        return None if kept is None else kept.partition

    def all_of(self, group: str) -> Mapping[PartitionId, SharePartition]:
        return {place: kept.partition for place, kept in self._groups.get(group, {}).items()}

    def everything(self) -> Iterator[tuple[str, PartitionId, SharePartition]]:
        for group, places in self._groups.items():
            for place, kept in places.items():
                yield group, place, kept.partition

    def begin(self, group: str, now_ms: int, limits: ShareLimits) -> None:
        for kept in self._groups.get(group, {}).values():
            kept.partition.begin(now_ms, limits)

    def groups(self) -> list[str]:
        return list(self._groups)

    # Records of changes

    def put(self, group: str, place: PartitionId, offset: int) -> list[KeyValue]:
        """Sets the offset at which the group begins or continues."""
        places = self._groups.setdefault(group, {})
        kept = places.get(place)
        if kept is None:
            kept = places[place] = _Kept(SharePartition(offset))
        kept.partition.reset(offset)
        return self._snapshot(group, place, kept)

    def changes(self, group: str, places: Iterable[PartitionId]) -> list[KeyValue]:
        """The log records for changes of these partitions."""
        records: list[KeyValue] = []
        for place in dict.fromkeys(places):
            kept = self._groups.get(group, {}).get(place)
            if kept is not None:
                records += self._changes_of(group, place, kept)
        return records

    def _changes_of(self, group: str, place: PartitionId, kept: _Kept) -> list[KeyValue]:
        change = kept.partition.take_change()
        if change is None:
            return []
        if (kept.number + 1) % _SLOTS == 0:
            return self._snapshot(group, place, kept)
        kept.number += 1
        slot = kept.number % _SLOTS
        kept.slots.add(slot)
        return [share_record(ShareKey(group, *place, slot), NumberedChange(kept.number, change))]

    def _snapshot(self, group: str, place: PartitionId, kept: _Kept) -> list[KeyValue]:
        kept.number += 1
        return [share_record(ShareKey(group, *place), NumberedChange(kept.number, kept.partition.whole()))]

    def forget(self, group: str, places: Iterable[PartitionId]) -> list[KeyValue]:
        known = self._groups.get(group, {})
        records: list[KeyValue] = []
        for place in list(places):
            kept = known.pop(place, None)
            if kept is not None:
                slots: list[int | None] = [None, *sorted(kept.slots)]
                records += [share_record(ShareKey(group, *place, slot), None) for slot in slots]
        if not known:
            self._groups.pop(group, None)
        return records
