"""Encodes records about what share groups have acquired.

| version of the key | fields of the key | value |
| --- | --- | --- |
| 0x4D56 | group, topic's id, partition | a snapshot: its number, and the whole state |
| 0x4D57 | group, topic's id, partition, slot | an update: its number, and the changes |

Snapshots and updates of a partition share one sequence of numbers. An update is applied if its number is above that of
the snapshot. Updates use a few slots in turn, so compaction keeps only a few of them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ..cores.share_partition import ShareChange, ShareSpan, ShareStanding
from ..records.key_values import KeyValue
from .record_fields import BYTE, INT, LONG, SHORT, RecordFieldReader, text_field

_SNAPSHOT: Final = 0x4D56
_UPDATE: Final = 0x4D57


class ShareKey(NamedTuple):
    """`topic`: the topic's id. `slot`: None for a snapshot."""

    group: str
    topic: str
    partition: int
    slot: int | None = None


class NumberedChange(NamedTuple):
    number: int
    change: ShareChange


def share_record(key: ShareKey, value: NumberedChange | None) -> KeyValue:
    kind = _SNAPSHOT if key.slot is None else _UPDATE
    content = SHORT.pack(kind) + text_field(key.group) + text_field(key.topic) + INT.pack(key.partition)
    content += b"" if key.slot is None else SHORT.pack(key.slot)
    return KeyValue(content, None if value is None else _encoded(value))


def decode_share_key(content: bytes) -> ShareKey | None:
    """The key; None if the record is about something else. Raises ValueError."""
    reader = RecordFieldReader(content)
    kind = reader.number(SHORT)
    if kind not in (_SNAPSHOT, _UPDATE):
        return None
    group, topic, partition = reader.text() or "", reader.text() or "", reader.number(INT)
    return ShareKey(group, topic, partition, None if kind == _SNAPSHOT else reader.number(SHORT))


def _encoded(value: NumberedChange) -> bytes:
    """Names each owner once; spans refer to owners by position."""
    start_offset, spans = value.change
    owners = {owner: at for at, owner in enumerate(dict.fromkeys(span.owner for span in spans))}
    out = bytearray(LONG.pack(value.number) + LONG.pack(start_offset) + INT.pack(len(owners)))
    for owner in owners:
        out += text_field(owner)
    out += INT.pack(len(spans))
    for span in spans:
        out += LONG.pack(span.first) + LONG.pack(span.last) + BYTE.pack(span.standing)
        out += INT.pack(span.deliveries) + INT.pack(owners[span.owner])
    return bytes(out)


def decode_numbered(content: bytes) -> NumberedChange:
    """Raises ValueError. Records contain no deadlines: a new coordinator sets them."""
    reader = RecordFieldReader(content)
    number, start_offset = reader.number(LONG), reader.number(LONG)
    owners = [reader.text() or "" for _ in range(reader.number(INT))]
    spans = tuple(_span(reader, owners) for _ in range(reader.number(INT)))
    return NumberedChange(number, ShareChange(start_offset, spans))


def _span(reader: RecordFieldReader, owners: list[str]) -> ShareSpan:
    first, last, standing = reader.number(LONG), reader.number(LONG), reader.number(BYTE)
    deliveries, owner = reader.number(INT), reader.number(INT)
    if owner >= len(owners):
        raise ValueError("an owner that is not named")
    return ShareSpan(first, last, ShareStanding(standing), deliveries, owners[owner])
