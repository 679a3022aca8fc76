"""Encodes records about committed offsets: the offsets in Kafka's format, and our own records about transactions.

| version of the key | fields of the key | value |
| --- | --- | --- |
| 1 | group, topic, partition | a committed offset; in a cluster of several nodes with the topic's id |
| 0x4D53 | transactional id | on a single node: the number of the last commit of this id that was applied |
| 0x4D54 | group, producer id | the partitions whose offsets an undecided transaction may commit |
| 0x4D55 | group, producer id | the number of the last transaction of this producer that was settled, and when |
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ..client import TopicPartition
from ..cores.group_messages import CommittedOffset
from ..records.key_values import KeyValue
from .record_fields import INT, LONG, SHORT, RecordFieldReader, compact_field, text_field, varint

_OFFSET: Final = 1
_APPLIED: Final = 0x4D53
_HELD: Final = 0x4D54
_SETTLED: Final = 0x4D55
_WITHOUT_ID: Final = 3
_WITH_ID: Final = 4
_ID_TAG: Final = 0


class OffsetKey(NamedTuple):
    group: str
    partition: TopicPartition


class AppliedKey(NamedTuple):
    transactional_id: str


class HeldKey(NamedTuple):
    group: str
    producer_id: int


class SettledKey(NamedTuple):
    group: str
    producer_id: int


class StoredOffset(NamedTuple):
    """`topic_id`: 16 bytes; None in the records of a single node."""

    committed: CommittedOffset
    topic_id: bytes | None = None


class Held(NamedTuple):
    """`number`: the producer's number of the transaction."""

    number: int
    partitions: frozenset[TopicPartition]


class Settled(NamedTuple):
    number: int
    at_ms: int


Key = OffsetKey | AppliedKey | HeldKey | SettledKey


def offset_record(key: OffsetKey, stored: StoredOffset | None) -> KeyValue:
    group, (topic, number) = key
    content = SHORT.pack(_OFFSET) + text_field(group) + text_field(topic) + INT.pack(number)
    return KeyValue(content, None if stored is None else _stored(stored))


def applied_record(transactional_id: str, number: int | None) -> KeyValue:
    """In: `number`: None removes the record of this id."""
    content = SHORT.pack(_APPLIED) + text_field(transactional_id)
    return KeyValue(content, None if number is None else LONG.pack(number))


def held_record(key: HeldKey, held: Held | None) -> KeyValue:
    value = None
    if held is not None:
        places = [text_field(topic) + INT.pack(number) for topic, number in sorted(held.partitions)]
        value = LONG.pack(held.number) + INT.pack(len(places)) + b"".join(places)
    return KeyValue(SHORT.pack(_HELD) + text_field(key.group) + LONG.pack(key.producer_id), value)


def settled_record(key: SettledKey, settled: Settled | None) -> KeyValue:
    value = None if settled is None else LONG.pack(settled.number) + LONG.pack(settled.at_ms)
    return KeyValue(SHORT.pack(_SETTLED) + text_field(key.group) + LONG.pack(key.producer_id), value)


def decode_offset_key(content: bytes) -> Key | None:
    """The key; None if the record is about something else. Raises ValueError."""
    reader = RecordFieldReader(content)
    match reader.number(SHORT):
        case version if version == _OFFSET:
            group, topic = reader.text() or "", reader.text() or ""
            return OffsetKey(group, TopicPartition(topic, reader.number(INT)))
        case version if version == _APPLIED:
            return AppliedKey(reader.text() or "")
        case version if version == _HELD:
            return HeldKey(reader.text() or "", reader.number(LONG))
        case version if version == _SETTLED:
            return SettledKey(reader.text() or "", reader.number(LONG))
        case _:
            return None


def decode_stored(content: bytes) -> StoredOffset:
    """Raises ValueError."""
    reader = RecordFieldReader(content)
    version, offset, leader_epoch = reader.number(SHORT), reader.number(LONG), reader.number(INT)
    metadata = (reader.text() if version < _WITH_ID else reader.compact()) or ""
    committed = CommittedOffset(offset, metadata, leader_epoch, reader.number(LONG))
    return StoredOffset(committed, reader.tags().get(_ID_TAG) if version >= _WITH_ID else None)


def decode_applied(content: bytes) -> int:
    return RecordFieldReader(content).number(LONG)


def decode_held(content: bytes) -> Held:
    """Raises ValueError."""
    reader = RecordFieldReader(content)
    number = reader.number(LONG)
    places = [TopicPartition(reader.text() or "", reader.number(INT)) for _ in range(reader.number(INT))]
    return Held(number, frozenset(places))


def decode_settled(content: bytes) -> Settled:
    """Raises ValueError."""
    reader = RecordFieldReader(content)
    return Settled(reader.number(LONG), reader.number(LONG))


def _stored(stored: StoredOffset) -> bytes:
    committed, topic_id = stored
    head = LONG.pack(committed.offset) + INT.pack(committed.leader_epoch)
    if topic_id is None:
        return SHORT.pack(_WITHOUT_ID) + head + text_field(committed.metadata) + LONG.pack(committed.at_ms)
    tags = varint(1) + varint(_ID_TAG) + varint(len(topic_id)) + topic_id
    return SHORT.pack(_WITH_ID) + head + compact_field(committed.metadata) + LONG.pack(committed.at_ms) + tags
