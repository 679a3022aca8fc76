"""What groups have committed, and what transactions that are not decided yet may commit: a fold of a shard's records.

A change is a list of records: `apply` takes them in, as it does when the shard begins.
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
    """The ids of topics that there are."""

    def id_of(self, name: str) -> bytes | None: ...


class CommittedOffsets:
    """State: offsets by group, and by group and producer what is held and which transaction was settled last.

    Offsets name their topic by its id, too: those of a topic that was deleted count for nothing, even if another one
    has its name now.
    """

    def __init__(self, ids: Ids) -> None:
        self._ids = ids
        self._groups: dict[str, dict[TopicPartition, StoredOffset]] = {}
        self._held: dict[str, dict[int, Held]] = {}
        self._settled: dict[SettledKey, Settled] = {}

    def apply(self, changes: Iterable[KeyValue]) -> None:
        """Takes in records, in order; those of something else say nothing here. Raises ValueError."""
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

    # What there is

    def of(self, group: str) -> dict[TopicPartition, CommittedOffset]:
        stored = self._groups.get(group, {})
        return {place: found.committed for place, found in stored.items() if self._is_of_now(place, found)}

    def groups(self) -> list[str]:
        """Those that have committed something."""
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
        """Topics that are not there are left out."""
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
        """The offsets of topics that are gone."""
        return [
            offset_record(OffsetKey(group, place), None)
            for group, stored in self._groups.items()
            for place, found in stored.items()
            if not self._is_of_now(place, found)
        ]

    def hold(self, group: str, producer_id: int, number: int, places: Iterable[TopicPartition]) -> list[KeyValue]:
        """None where all of them are held already."""
        known = self._held.get(group, {}).get(producer_id)
        wanted = frozenset(places)
        if known is not None and known.number == number:
            wanted |= known.partitions
        held = Held(number, wanted)
        return [] if held == known else [held_record(HeldKey(group, producer_id), held)]

    def settle(
        self, group: str, producer_id: int, number: int, offsets: Mapping[TopicPartition, CommittedOffset], at_ms: int
    ) -> list[KeyValue]:
        """The transaction is decided: it has committed these, or nothing. None where it was settled before."""
        if self.is_settled(group, producer_id, number):
            return []
        changes = self.commit(group, offsets, at_ms)
        if producer_id in self._held.get(group, {}):
            changes.append(held_record(HeldKey(group, producer_id), None))
        changes.append(settled_record(SettledKey(group, producer_id), Settled(number, at_ms)))
        return changes

    def forget_settled_of(self, group: str) -> list[KeyValue]:
        """Nothing where a transaction holds offsets of the group: it is going to be settled."""
        if self._held.get(group):
            return []
        return [settled_record(key, None) for key in self._settled if key.group == group]

    def forget_settled(self, before_ms: int) -> list[KeyValue]:
        """Of transactions that were settled before this time of day: nothing of them is on its way any more."""
        return [settled_record(key, None) for key, settled in self._settled.items() if settled.at_ms < before_ms]


_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def _put(groups: dict[str, dict[_Key, _Value]], group: str, key: _Key, value: _Value | None) -> None:
    """Sets or removes an entry; no group stays without entries."""
    if value is not None:
        groups.setdefault(group, {})[key] = value
        return
    entries = groups.get(group, {})
    entries.pop(key, None)
    if not entries:
        groups.pop(group, None)
