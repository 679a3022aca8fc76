"""Encodes records about consumer groups in Kafka's format. Some of them name topics by their ids.

Keys are a version and texts. Values of the older kind use the same encoding; the newer ones are compact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from ..client import TopicPartition
from ..cores.group_messages import Protocol
from ..cores.group_records import (
    ClassicGroup,
    ClassicMember,
    ClassicMetadata,
    Current,
    Epoch,
    GroupKey,
    GroupValue,
    Kind,
    MemberRecord,
    ReadTopics,
    ShareMemberRecord,
    Target,
)
from .record_fields import (
    BYTE,
    INT,
    LONG,
    SHORT,
    RecordFieldReader,
    compact_field,
    no_tags,
    nullable_struct,
    tagged_field,
    text_field,
    varint,
)

_CLASSIC_VERSION: Final = 3
_VALUE_VERSION: Final = 0
_STABLE, _UNREVOKED = 0, 1
_OF_A_MEMBER: Final = (Kind.MEMBER, Kind.TARGET, Kind.CURRENT, Kind.SHARE_MEMBER, Kind.SHARE_CURRENT)
_IDBYTES: Final = 16
_CLASSIC_TAG: Final = 0

TopicIdOf = Callable[[str], bytes | None]
"""The id of a topic, 16 bytes; None if the topic was deleted."""
TopicNameOf = Callable[[bytes], str | None]


def encode_key(key: GroupKey) -> bytes:
    texts = (key.group, key.member) if key.kind in _OF_A_MEMBER else (key.group,)
    return SHORT.pack(key.kind) + b"".join(map(text_field, texts))


def decode_key(content: bytes) -> GroupKey | None:
    """The key; None if the record is about something else. Raises ValueError."""
    reader = RecordFieldReader(content)
    version = reader.number(SHORT)
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
            return SHORT.pack(_VALUE_VERSION) + INT.pack(epoch) + no_tags()
        case ReadTopics(counts):
            return SHORT.pack(_VALUE_VERSION) + _read_topics(counts, id_of) + no_tags()
        case MemberRecord():
            return SHORT.pack(_VALUE_VERSION) + _member(value)
        case ShareMemberRecord():
            return SHORT.pack(_VALUE_VERSION) + _share_member(value) + no_tags()
        case Target(places):
            return SHORT.pack(_VALUE_VERSION) + _places(places, id_of) + no_tags()
        case Current():
            state = _UNREVOKED if value.revoking else _STABLE
            numbers = INT.pack(value.epoch) + INT.pack(value.previous_epoch) + BYTE.pack(state)
            places = _places(value.assigned, id_of) + _places(value.revoking, id_of)
            return SHORT.pack(_VALUE_VERSION) + numbers + places + no_tags()


def decode_value(kind: Kind, content: bytes, name_of: TopicNameOf) -> GroupValue:
    """The value, without deleted topics. Raises ValueError."""
    reader = RecordFieldReader(content)
    version = reader.number(SHORT)
    match kind:
        case Kind.CLASSIC:
            return _read_classic(reader, version)
        case Kind.EPOCH | Kind.TARGET_EPOCH | Kind.SHARE_EPOCH:
            return Epoch(reader.number(INT))
        case Kind.TOPICS:
            return _read_counts(reader, name_of)
        case Kind.MEMBER:
            return _read_member(reader)
        case Kind.TARGET:
            return Target(_read_places(reader, name_of))
        case Kind.SHARE_MEMBER:
            return _read_share_member(reader)
        case Kind.CURRENT | Kind.SHARE_CURRENT:
            epoch, previous_epoch = reader.number(INT), reader.number(INT)
            reader.number(BYTE)
            return Current(epoch, previous_epoch, _read_places(reader, name_of), _read_places(reader, name_of))


# Groups whose members assign


def _classic(group: ClassicGroup) -> bytes:
    out = bytearray(SHORT.pack(_CLASSIC_VERSION) + text_field(group.protocol_type) + INT.pack(group.generation))
    out += text_field(group.protocol) + text_field(group.leader_id) + LONG.pack(group.since_ms)
    out += INT.pack(len(group.members))
    for member in group.members:
        out += text_field(member.member_id) + text_field(member.instance_id)
        out += text_field(member.client_id) + text_field(member.client_host)
        out += INT.pack(member.rebalance_timeout_ms) + INT.pack(member.session_timeout_ms)
        for content in (member.subscription, member.assignment):
            out += INT.pack(len(content)) + content
    return bytes(out)


def _read_classic(reader: RecordFieldReader, version: int) -> ClassicGroup:
    if version != _CLASSIC_VERSION:
        raise ValueError(f"version {version} of a group's record")
    protocol_type, generation = reader.text() or "", reader.number(INT)
    protocol, leader_id, since_ms = reader.text(), reader.text(), reader.number(LONG)
    members = tuple(_read_classic_member(reader) for _ in range(reader.number(INT)))
    return ClassicGroup(protocol_type, generation, protocol, leader_id, members, since_ms)


def _read_classic_member(reader: RecordFieldReader) -> ClassicMember:
    member_id, instance_id = reader.text() or "", reader.text()
    client_id, client_host = reader.text() or "", reader.text() or ""
    rebalance_ms, session_ms = reader.number(INT), reader.number(INT)
    subscription = reader.take(reader.number(INT))
    assignment = reader.take(reader.number(INT))
    return ClassicMember(
        member_id, instance_id, client_id, client_host, rebalance_ms, session_ms, subscription, assignment
    )


# Groups whose coordinator assigns


def _member(member: MemberRecord) -> bytes:
    out = compact_field(member.instance_id) + compact_field(None)  # no rack
    out += compact_field(member.client_id) + compact_field(member.client_host)
    out += varint(len(member.topics) + 1) + b"".join(map(compact_field, member.topics))
    out += compact_field(member.pattern) + INT.pack(member.rebalance_timeout_ms) + compact_field(None)  # no assignor
    return out + (no_tags() if member.classic is None else tagged_field(_CLASSIC_TAG, _metadata(member.classic)))


def _metadata(classic: ClassicMetadata) -> bytes:
    out = INT.pack(classic.session_timeout_ms) + varint(len(classic.protocols) + 1)
    for protocol in classic.protocols:
        out += compact_field(protocol.name) + varint(len(protocol.metadata) + 1) + protocol.metadata + no_tags()
    return nullable_struct(out + no_tags())


def _read_member(reader: RecordFieldReader) -> MemberRecord:
    instance_id, _rack = reader.compact(), reader.compact()
    client_id, client_host = reader.compact() or "", reader.compact() or ""
    topics = tuple(reader.compact() or "" for _ in reader.elements())
    pattern, rebalance_timeout_ms, _assignor = reader.compact(), reader.number(INT), reader.compact()
    tagged = reader.tags()
    classic = _read_metadata(tagged[_CLASSIC_TAG]) if _CLASSIC_TAG in tagged else None
    return MemberRecord(instance_id, client_id, client_host, topics, pattern, rebalance_timeout_ms, classic)


def _read_metadata(content: bytes) -> ClassicMetadata | None:
    reader = RecordFieldReader(content)
    if reader.is_null():
        return None
    session_timeout_ms = reader.number(INT)
    return ClassicMetadata(session_timeout_ms, tuple(_read_protocol(reader) for _ in reader.elements()))


def _read_protocol(reader: RecordFieldReader) -> Protocol:
    protocol = Protocol(reader.compact() or "", reader.compact_bytes())
    reader.tags()
    return protocol


def _share_member(member: ShareMemberRecord) -> bytes:
    out = compact_field(None) + compact_field(member.client_id) + compact_field(member.client_host)  # no rack
    return out + varint(len(member.topics) + 1) + b"".join(map(compact_field, member.topics))


def _read_share_member(reader: RecordFieldReader) -> ShareMemberRecord:
    _rack, client_id, client_host = reader.compact(), reader.compact() or "", reader.compact() or ""
    return ShareMemberRecord(client_id, client_host, tuple(reader.compact() or "" for _ in reader.elements()))


def _read_topics(counts: Iterable[tuple[str, int]], id_of: TopicIdOf) -> bytes:
    known = [(id, name, count) for name, count in counts if (id := id_of(name)) is not None]
    out = bytearray(varint(len(known) + 1))
    for id, name, count in known:
        out += id + compact_field(name) + INT.pack(count) + varint(1) + no_tags()  # no racks
    return bytes(out)


def _read_counts(reader: RecordFieldReader, name_of: TopicNameOf) -> ReadTopics:
    counts: list[tuple[str, int]] = []
    for _ in reader.elements():
        id, name, count = reader.take(_IDBYTES), reader.compact() or "", reader.number(INT)
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
    out = bytearray(varint(len(by_id) + 1))
    for id, partitions in by_id.items():
        out += id + varint(len(partitions) + 1) + b"".join(map(INT.pack, partitions)) + no_tags()
    return bytes(out)


def _read_places(reader: RecordFieldReader, name_of: TopicNameOf) -> frozenset[TopicPartition]:
    found: set[TopicPartition] = set()
    for _ in reader.elements():
        name = name_of(reader.take(_IDBYTES))
        partitions = [reader.number(INT) for _ in reader.elements()]
        reader.tags()
        found |= {TopicPartition(name, partition) for partition in partitions if name is not None}
    return frozenset(found)
