"""Records about consumer groups as bytes, laid out as Kafka does. Topics go by their ids in some of them.

Keys are a version and texts with two bytes of length. Values of the older kind are written likewise; the newer ones
have compact texts and arrays, and tagged fields at the end of each struct.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Final, cast

from .client import TopicPartition
from .group_records import (
    ClassicGroup,
    ClassicMember,
    Current,
    Epoch,
    GroupKey,
    GroupValue,
    Kind,
    MemberRecord,
    ReadTopics,
    Target,
)

_CLASSIC_VERSION: Final = 3
_VALUE_VERSION: Final = 0
_STABLE, _UNREVOKED = 0, 1
_OF_A_MEMBER: Final = (Kind.MEMBER, Kind.TARGET, Kind.CURRENT)
_BYTE: Final = struct.Struct(">b")
_SHORT: Final = struct.Struct(">h")
_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")
_ID_BYTES: Final = 16

TopicIdOf = Callable[[str], bytes | None]
"""The id of a topic, 16 bytes; None where it is gone."""
TopicNameOf = Callable[[bytes], str | None]


def encode_key(key: GroupKey) -> bytes:
    texts = (key.group, key.member) if key.kind in _OF_A_MEMBER else (key.group,)
    return _SHORT.pack(key.kind) + b"".join(map(_text, texts))


def decode_key(content: bytes) -> GroupKey | None:
    """None for a key of something else. Raises ValueError."""
    reader = _Reader(content)
    version = reader.number(_SHORT)
    if version not in Kind.__members__.values():
        return None
    kind = Kind(version)
    group = reader.text() or ""
    return GroupKey(kind, group, (reader.text() or "") if kind in _OF_A_MEMBER else "")


def encode_value(value: GroupValue, id_of: TopicIdOf) -> bytes:
    match value:
        case ClassicGroup():
            return _classic(value)
        case Epoch(epoch):
            return _SHORT.pack(_VALUE_VERSION) + _INT.pack(epoch) + _no_tags()
        case ReadTopics(counts):
            return _SHORT.pack(_VALUE_VERSION) + _read_topics(counts, id_of) + _no_tags()
        case MemberRecord():
            return _SHORT.pack(_VALUE_VERSION) + _member(value) + _no_tags()
        case Target(places):
            return _SHORT.pack(_VALUE_VERSION) + _places(places, id_of) + _no_tags()
        case Current():
            state = _UNREVOKED if value.revoking else _STABLE
            numbers = _INT.pack(value.epoch) + _INT.pack(value.previous_epoch) + _BYTE.pack(state)
            places = _places(value.assigned, id_of) + _places(value.revoking, id_of)
            return _SHORT.pack(_VALUE_VERSION) + numbers + places + _no_tags()


def decode_value(kind: Kind, content: bytes, name_of: TopicNameOf) -> GroupValue:
    """What is said of topics that are gone is left out. Raises ValueError."""
    reader = _Reader(content)
    version = reader.number(_SHORT)
    match kind:
        case Kind.CLASSIC:
            return _read_classic(reader, version)
        case Kind.EPOCH | Kind.TARGET_EPOCH:
            return Epoch(reader.number(_INT))
        case Kind.TOPICS:
            return _read_counts(reader, name_of)
        case Kind.MEMBER:
            return _read_member(reader)
        case Kind.TARGET:
            return Target(_read_places(reader, name_of))
        case Kind.CURRENT:
            epoch, previous_epoch = reader.number(_INT), reader.number(_INT)
            reader.number(_BYTE)
            return Current(epoch, previous_epoch, _read_places(reader, name_of), _read_places(reader, name_of))


# Groups whose members assign


def _classic(group: ClassicGroup) -> bytes:
    out = bytearray(_SHORT.pack(_CLASSIC_VERSION) + _text(group.protocol_type) + _INT.pack(group.generation))
    out += _text(group.protocol) + _text(group.leader_id) + _LONG.pack(group.since_ms)
    out += _INT.pack(len(group.members))
    for member in group.members:
        out += _text(member.member_id) + _text(member.instance_id)
        out += _text(member.client_id) + _text(member.client_host)
        out += _INT.pack(member.rebalance_timeout_ms) + _INT.pack(member.session_timeout_ms)
        for content in (member.subscription, member.assignment):
            out += _INT.pack(len(content)) + content
    return bytes(out)


def _read_classic(reader: _Reader, version: int) -> ClassicGroup:
    if version != _CLASSIC_VERSION:
        raise ValueError(f"version {version} of a group's record")
    protocol_type, generation = reader.text() or "", reader.number(_INT)
    protocol, leader_id, since_ms = reader.text(), reader.text(), reader.number(_LONG)
    members = tuple(_read_classic_member(reader) for _ in range(reader.number(_INT)))
    return ClassicGroup(protocol_type, generation, protocol, leader_id, members, since_ms)


def _read_classic_member(reader: _Reader) -> ClassicMember:
    member_id, instance_id = reader.text() or "", reader.text()
    client_id, client_host = reader.text() or "", reader.text() or ""
    rebalance_ms, session_ms = reader.number(_INT), reader.number(_INT)
    subscription = reader.take(reader.number(_INT))
    assignment = reader.take(reader.number(_INT))
    return ClassicMember(
        member_id, instance_id, client_id, client_host, rebalance_ms, session_ms, subscription, assignment
    )


# Groups whose coordinator assigns


def _member(member: MemberRecord) -> bytes:
    out = _compact(member.instance_id) + _compact(None)  # no rack
    out += _compact(member.client_id) + _compact(member.client_host)
    out += _varint(len(member.topics) + 1) + b"".join(map(_compact, member.topics))
    return out + _compact(member.pattern) + _INT.pack(member.rebalance_timeout_ms) + _compact(None)  # no assignor


def _read_member(reader: _Reader) -> MemberRecord:
    instance_id, _rack = reader.compact(), reader.compact()
    client_id, client_host = reader.compact() or "", reader.compact() or ""
    topics = tuple(reader.compact() or "" for _ in reader.elements())
    return MemberRecord(instance_id, client_id, client_host, topics, reader.compact(), reader.number(_INT))


def _read_topics(counts: Iterable[tuple[str, int]], id_of: TopicIdOf) -> bytes:
    known = [(id, name, count) for name, count in counts if (id := id_of(name)) is not None]
    out = bytearray(_varint(len(known) + 1))
    for id, name, count in known:
        out += id + _compact(name) + _INT.pack(count) + _varint(1) + _no_tags()  # no racks
    return bytes(out)


def _read_counts(reader: _Reader, name_of: TopicNameOf) -> ReadTopics:
    counts: list[tuple[str, int]] = []
    for _ in reader.elements():
        id, name, count = reader.take(_ID_BYTES), reader.compact() or "", reader.number(_INT)
        for _ in reader.elements():
            raise ValueError("racks of partitions")
        reader.tags()
        if name_of(id) == name:
            counts.append((name, count))
    return ReadTopics(tuple(counts))


def _places(places: Iterable[TopicPartition], id_of: TopicIdOf) -> bytes:
    by_id: dict[bytes, list[int]] = {}
    for topic, partition in sorted(places):
        id = id_of(topic)
        if id is not None:
            by_id.setdefault(id, []).append(partition)
    out = bytearray(_varint(len(by_id) + 1))
    for id, partitions in by_id.items():
        out += id + _varint(len(partitions) + 1) + b"".join(map(_INT.pack, partitions)) + _no_tags()
    return bytes(out)


def _read_places(reader: _Reader, name_of: TopicNameOf) -> frozenset[TopicPartition]:
    found: set[TopicPartition] = set()
    for _ in reader.elements():
        name = name_of(reader.take(_ID_BYTES))
        partitions = [reader.number(_INT) for _ in reader.elements()]
        reader.tags()
        found |= {TopicPartition(name, partition) for partition in partitions if name is not None}
    return frozenset(found)


# Values


def _text(text: str | None) -> bytes:
    encoded = None if text is None else text.encode()
    return _SHORT.pack(-1) if encoded is None else _SHORT.pack(len(encoded)) + encoded


def _compact(text: str | None) -> bytes:
    encoded = None if text is None else text.encode()
    return _varint(0) if encoded is None else _varint(len(encoded) + 1) + encoded


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _no_tags() -> bytes:
    return b"\0"


class _Reader:
    """Raises ValueError where the bytes end too early."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._position = 0

    def take(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > len(self._content):
            raise ValueError("a record about a group ends too early")
        taken = self._content[self._position : end]
        self._position = end
        return taken

    def number(self, layout: struct.Struct) -> int:
        return cast(int, layout.unpack(self.take(layout.size))[0])

    def text(self) -> str | None:
        length = self.number(_SHORT)
        return None if length < 0 else self.take(length).decode()

    def compact(self) -> str | None:
        length = self._varint()
        return None if length == 0 else self.take(length - 1).decode()

    def elements(self) -> Iterator[int]:
        return iter(range(self._varint() - 1))

    def tags(self) -> None:
        for _ in range(self._varint()):
            self._varint()
            self.take(self._varint())

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
