"""Records about what share groups have acquired, as bytes.

| version of the key | fields of the key | value |
| --- | --- | --- |
| 0x4D56 | group, topic's id, partition | a snapshot: its number, and all that is known |
| 0x4D57 | group, topic's id, partition, slot | an update: its number, and what has changed |

Snapshots and updates of a partition are numbered together. An update counts where its number is above the snapshot's.
Updates use few slots in turn, so compaction keeps few of them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ..cores.share_partition import ShareChange, ShareSpan, ShareStanding
from ..records.key_values import KeyValue
from .record_fields import BYTE, INT, LONG, SHORT, RecordFieldReader, text_field

_SNAPSHOT: Final = 0x4D56
_UPDATE: Final = 0x4D57


class ShareKey(NamedTuple):
    """`topic`: its id. `slot`: None of a snapshot."""

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
    """None for a key of something else. Raises ValueError."""
    reader = RecordFieldReader(content)
    kind = reader.number(SHORT)
    if kind not in (_SNAPSHOT, _UPDATE):
        return None
    group, topic, partition = reader.text() or "", reader.text() or "", reader.number(INT)
    return ShareKey(group, topic, partition, None if kind == _SNAPSHOT else reader.number(SHORT))


def _encoded(value: NumberedChange) -> bytes:
    """Each owner is named once."""
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
    """Raises ValueError. Deadlines are not written: who begins to coordinate sets them."""
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
