"""MirrorMaker 2's names and records (KIP-382, KIP-690), which its clients read."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

SEPARATOR: Final = "."
HEARTBEATS: Final = "heartbeats"
INTERNAL: Final = (".internal", "-internal", ".replica", "-replica")

_LENGTH: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_OFFSETS: Final = struct.Struct(">qq")
_VERSION: Final = struct.Struct(">h")
_TIME: Final = struct.Struct(">q")
_V0: Final = 0


def remote_topic(alias: str, topic: str) -> str:
    """
    >>> remote_topic("a", "orders")
    'a.orders'
    """
    return f"{alias}{SEPARATOR}{topic}"


def offset_syncs_topic(source: str) -> str:
    """The topic of offset syncs. A mirror keeps it at the target."""
    return f"mm2-offset-syncs.{source}.internal"


def checkpoints_topic(source: str) -> str:
    return f"{source}.checkpoints.internal"


def heartbeats_topic(source: str) -> str:
    return remote_topic(source, HEARTBEATS)


def sources_of(topic: str) -> Iterator[str]:
    """The aliases of the logs that the topic came through, nearest first. If the topic's own name has dots, its parts
    are included, too.

    >>> list(sources_of("b.a.orders"))
    ['b', 'a']
    """
    *aliases, _ = topic.split(SEPARATOR)
    yield from aliases


def is_copied(topic: str, source: str, target: str) -> bool:
    """False for topics that came through the source or the target, and for internal ones of MirrorMaker or Connect.

    >>> [is_copied(topic, "a", "here") for topic in ("orders", "b.orders", "here.orders", "b.a.orders")]
    [True, True, False, False]
    >>> is_copied("b.checkpoints.internal", "a", "here")
    False
    """
    return (
        not {source, target}.intersection(sources_of(topic))
        and not topic.endswith(INTERNAL)
        and not topic.startswith("mm2-")
    )


class OffsetSync(NamedTuple):
    """The record at offset `upstream` of a partition of the source is at offset `downstream` here."""

    topic: str
    partition: int
    upstream: int
    downstream: int

    @property
    def key(self) -> bytes:
        return _string(self.topic) + _INT32.pack(self.partition)

    @property
    def value(self) -> bytes:
        return _OFFSETS.pack(self.upstream, self.downstream)

    @classmethod
    def read(cls, key: bytes, value: bytes) -> OffsetSync:
        """Decodes an offset sync. Raises ValueError for other bytes."""
        try:
            (length,) = _LENGTH.unpack_from(key)
            (partition,) = _INT32.unpack_from(key, 2 + length)
            return cls(key[2 : 2 + length].decode(), partition, *_OFFSETS.unpack(value))
        except struct.error as error:
            raise ValueError(f"not an offset sync: {error}") from error


class GroupCheckpoint(NamedTuple):
    """`topic`: its name here. `upstream`: the offset committed at the source. `downstream`: the same position here."""

    group: str
    topic: str
    partition: int
    upstream: int
    downstream: int
    metadata: str

    @property
    def key(self) -> bytes:
        return _string(self.group) + _string(self.topic) + _INT32.pack(self.partition)

    @property
    def value(self) -> bytes:
        return _VERSION.pack(_V0) + _OFFSETS.pack(self.upstream, self.downstream) + _string(self.metadata)


class SourceHeartbeat(NamedTuple):
    source: str
    target: str
    time_ms: int

    @property
    def key(self) -> bytes:
        return _string(self.source) + _string(self.target)

    @property
    def value(self) -> bytes:
        return _VERSION.pack(_V0) + _TIME.pack(self.time_ms)


def _string(text: str) -> bytes:
    encoded = text.encode()
    return _LENGTH.pack(len(encoded)) + encoded
