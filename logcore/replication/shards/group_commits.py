"""Committed offsets of groups, and offsets that undecided transactions may commit: a fold of a shard's records.

A change is a list of records, which `apply` applies, as it does with all records when the shard begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar

from ...client import TopicPartition
from ...coordination.group_offset_bytes import (
    Held,
    HeldKey,
    OffsetKey,
    Settled,
    SettledKey,
    StoredOffset,
    decode_held,
    decode_offset_key,
    decode_settled,
    decode_stored,
    held_record,
    offset_record,
    settled_record,
)
from ...cores.group_messages import CommittedOffset
from ...records.key_values import KeyValue


class Ids(Protocol):
    """The ids of existing topics."""

    def id_of(self, name: str) -> bytes | None: ...


class CommittedOffsets:
    """State: offsets by group; by group and producer, held offsets and the last settled transaction.

    Offsets also contain the id of their topic: those of a deleted topic do not count, even if another topic has its
    name now.
    """

    def __init__(self, ids: Ids) -> None:
        self._ids = ids
        self._groups: dict[str, dict[TopicPartition, StoredOffset]] = {}
        self._held: dict[str, dict[int, Held]] = {}
        self._settled: dict[SettledKey, Settled] = {}

    def apply(self, changes: Iterable[KeyValue]) -> None:
        """Applies records, in order; ignores records about something else. Raises ValueError."""
        for content, value in changes:
            match decode_offset_key(content):
                case OffsetKey(group, partition):
                    _put(self._groups, group, partition, None if value is None else decode_stored(value))
                case HeldKey(group, producer_id):
                    _put(self._held, group, producer_id, None if value is None else decode_held(value))
                case SettledKey() as key:
                    if value is None:
                        self._settled.pop(key, None)
                    else:
                        self._settled[key] = decode_settled(value)
                case _:
                    pass

    # Queries

    def of(self, group: str) -> dict[TopicPartition, CommittedOffset]:
        stored = self._groups.get(group, {})
        return {place: found.committed for place, found in stored.items() if self._is_of_now(place, found)}

    def groups(self) -> list[str]:
        """The groups with committed offsets."""
        return list(self._groups)

    def unsettled(self, group: str) -> frozenset[TopicPartition]:
        return frozenset(place for held in self._held.get(group, {}).values() for place in held.partitions)

    def is_settled(self, group: str, producer_id: int, number: int) -> bool:
        """Whether this transaction, or a later one, is decided and applied."""
        settled = self._settled.get(SettledKey(group, producer_id))
        return settled is not None and settled.number >= number

    def _is_of_now(self, place: TopicPartition, stored: StoredOffset) -> bool:
        return stored.topic_id is not None and stored.topic_id == self._ids.id_of(place.topic)

    # Records of changes

    def commit(self, group: str, offsets: Mapping[TopicPartition, CommittedOffset], at_ms: int) -> list[KeyValue]:
        """Leaves out topics that do not exist."""
        changes: list[KeyValue] = []
        for place, committed in offsets.items():
            topic_id = self._ids.id_of(place.topic)
            if topic_id is not None:
                stored = StoredOffset(committed._replace(at_ms=at_ms), topic_id)
                changes.append(offset_record(OffsetKey(group, TopicPartition(*place)), stored))
        return changes

    def forget(self, group: str, places: Iterable[TopicPartition]) -> list[KeyValue]:
        known = self._groups.get(group, {})
        return [offset_record(OffsetKey(group, place), None) for place in places if place in known]

    def forget_deleted(self) -> list[KeyValue]:
        """Removes the offsets of deleted topics."""
        return [
            offset_record(OffsetKey(group, place), None)
            for group, stored in self._groups.items()
            for place, found in stored.items()
            if not self._is_of_now(place, found)
        ]

    def hold(self, group: str, producer_id: int, number: int, places: Iterable[TopicPartition]) -> list[KeyValue]:
        """No records if all of them are held already."""
        known = self._held.get(group, {}).get(producer_id)
        wanted = frozenset(places)
        if known is not None and known.number == number:
            wanted |= known.partitions
        held = Held(number, wanted)
        return [] if held == known else [held_record(HeldKey(group, producer_id), held)]

    def settle(
        self, group: str, producer_id: int, number: int, offsets: Mapping[TopicPartition, CommittedOffset], at_ms: int
    ) -> list[KeyValue]:
        """The transaction is decided: it has committed these offsets, or none. No records if it was settled before."""
        if self.is_settled(group, producer_id, number):
            return []
        changes = self.commit(group, offsets, at_ms)
        if producer_id in self._held.get(group, {}):
            changes.append(held_record(HeldKey(group, producer_id), None))
        changes.append(settled_record(SettledKey(group, producer_id), Settled(number, at_ms)))
        return changes

    def forget_settled_of_none(self, before_ms: int) -> list[KeyValue]:
        """Forgets transactions that were settled before this time of day in groups that have nothing left."""
        return [
            settled_record(key, None)
            for key, settled in self._settled.items()
            if settled.at_ms < before_ms and key.group not in self._groups and not self._held.get(key.group)
        ]

    def forget_settled(self, before_ms: int) -> list[KeyValue]:
        """Forgets transactions that were settled before this time of day: no messages about them are under way."""
        return [settled_record(key, None) for key, settled in self._settled.items() if settled.at_ms < before_ms]


_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def _put(groups: dict[str, dict[_Key, _Value]], group: str, key: _Key, value: _Value | None) -> None:
    """Sets or removes an entry, and removes a group without entries."""
    if value is not None:
        groups.setdefault(group, {})[key] = value
        return
    entries = groups.get(group, {})
    entries.pop(key, None)
    if not entries:
        groups.pop(group, None)
