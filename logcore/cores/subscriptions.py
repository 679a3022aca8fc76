"""Subscriptions and assignments, which consumers exchange through a group, in the format of Kafka clients."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from ..client import TopicPartition

CONSUMER: Final = "consumer"
"""The protocol type of groups whose members read topics."""

_VERSION: Final = 1
_SHORT: Final = struct.Struct(">h")
_INT: Final = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class Subscription:
    """The topics that a member wants to read, and the partitions that it reads now."""

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    user_data: bytes = b""


def encode_subscription(subscription: Subscription) -> bytes:
    out = bytearray(_SHORT.pack(_VERSION) + _INT.pack(len(subscription.topics)))
    for topic in subscription.topics:
        out += _text(topic)
    out += _bytes(subscription.user_data)
    out += _partitions(subscription.owned)
    return bytes(out)


def decode_subscription(metadata: bytes) -> Subscription:
    """Raises ValueError."""
    reader = _Reader(metadata)
    version = reader.short()
    topics = tuple(reader.text() for _ in range(reader.count()))
    user_data = reader.byte_string()
    owned = reader.partitions() if version >= 1 else ()
    return Subscription(topics, tuple(owned), user_data)


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    return _SHORT.pack(_VERSION) + _partitions(partitions) + _bytes(b"")


def decode_assignment(assignment: bytes) -> tuple[TopicPartition, ...]:
    """The partitions; none for empty bytes. Raises ValueError."""
    if not assignment:
        return ()
    reader = _Reader(assignment)
    reader.short()
    return tuple(reader.partitions())


def user_data_of(assignment: bytes) -> bytes:
    """The data that an assignor adds for its own use. Raises ValueError."""
    if not assignment:
        return b""
    reader = _Reader(assignment)
    reader.short()
    reader.partitions()
    return reader.byte_string()


def topics_of(metadata: bytes) -> tuple[str, ...]:
    """The topics of a subscription; none if the group is of another kind, whose data has another format."""
    try:
        return decode_subscription(metadata).topics
    except ValueError:
        return ()


def topics_assigned(assignment: bytes) -> tuple[str, ...]:
    """The topics of an assignment; none if the group is of another kind, whose data has another format."""
    try:
        return tuple(topic for topic, _ in decode_assignment(assignment))
    except ValueError:
        return ()


def _text(text: str) -> bytes:
    encoded = text.encode()
    return _SHORT.pack(len(encoded)) + encoded


def _bytes(content: bytes) -> bytes:
    return _INT.pack(len(content)) + content


def _partitions(partitions: Iterable[TopicPartition]) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    out = bytearray(_INT.pack(len(by_topic)))
    for topic, numbers in by_topic.items():
        out += _text(topic) + _INT.pack(len(numbers))
        for number in numbers:
            out += _INT.pack(number)
    return bytes(out)


class _Reader:
    """Reads the fields one after the other. Raises ValueError if the bytes end too early."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._position = 0

    def _take(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > len(self._content):
            raise ValueError("not a subscription or an assignment of a consumer")
        taken = self._content[self._position : end]
        self._position = end
        return taken

    def short(self) -> int:
        return _SHORT.unpack(self._take(2))[0]

    def count(self) -> int:
        count = _INT.unpack(self._take(4))[0]
        if count > len(self._content):
            raise ValueError(f"a count of {count}")
        return max(count, 0)

    def text(self) -> str:
        return self._take(self.short()).decode()

    def byte_string(self) -> bytes:
        length = _INT.unpack(self._take(4))[0]
        return self._take(length) if length > 0 else b""

    def partitions(self) -> Sequence[TopicPartition]:
        return [
            TopicPartition(topic, _INT.unpack(self._take(4))[0])
            for _ in range(self.count())
            for topic in [self.text()]
            for _ in range(self.count())
        ]
