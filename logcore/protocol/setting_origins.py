"""The origin of a setting's value, and the values that would apply without it, which Kafka calls synonyms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final

from ..topic_settings import Kind, TopicSetting
from .wire.messages import Fields


class SettingOrigin(IntEnum):
    """The numbers are those of the protocol."""

    TOPIC = 1
    BROKER = 2
    ALL_BROKERS = 3
    CONFIGURATION = 4
    DEFAULT = 5
    GROUP = 8


_TYPES: Final[Mapping[Kind, int]] = {"boolean": 1, "string": 2, "int": 3, "long": 5, "double": 6, "list": 7}

_AT_BROKERS: Final[Mapping[str, str]] = {
    "cleanup.policy": "log.cleanup.policy",
    "consumer.heartbeat.interval.ms": "group.consumer.heartbeat.interval.ms",
    "consumer.session.timeout.ms": "group.consumer.session.timeout.ms",
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.type": "compression.type",
    "compression.zstd.level": "compression.zstd.level",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "preallocate": "log.preallocate",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.ms": "log.roll.ms",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}
"""For each setting of a topic or a group, the name of the brokers' setting that is its default."""


def described(setting: TopicSetting, given: Iterable[tuple[SettingOrigin, str | None]], *, documented: bool) -> Fields:
    """In: `given`: the values by origin, in order of precedence; None if not set there."""
    found = [(origin, value) for origin, value in given if value is not None]
    origin, value = found[0] if found else (SettingOrigin.DEFAULT, setting.default)
    return {
        "name": setting.name,
        "value": value,
        "config_source": origin,
        "config_type": _TYPES[setting.kind],
        "documentation": setting.doc if documented else None,
        "synonyms": [*(_synonym(setting.name, origin, value) for origin, value in found), *_default_of(setting)],
    }


def unknown(name: str, value: str) -> Fields:
    """A setting of a topic that only an older version accepted."""
    origin = SettingOrigin.TOPIC
    synonyms = [_synonym(name, origin, value)]
    return {
        "name": name,
        "value": value,
        "config_source": origin,
        "config_type": _TYPES["string"],
        "synonyms": synonyms,
    }


def fixed(name: str, value: object, default: object | None) -> Fields:
    """A setting that only the server's configuration can change."""
    text = str(value)
    origin = SettingOrigin.DEFAULT if value == default else SettingOrigin.CONFIGURATION
    own = [] if origin is SettingOrigin.DEFAULT else [{"name": name, "value": text, "source": origin}]
    usual = [] if default is None else [{"name": name, "value": str(default), "source": SettingOrigin.DEFAULT}]
    return {
        "name": name,
        "value": text,
        "read_only": True,
        "config_source": origin,
        "config_type": _TYPES["string" if isinstance(value, str) else "long"],
        "synonyms": [*own, *usual],
    }


def without_synonyms(entries: Iterable[Fields]) -> list[Fields]:
    return [{**entry, "synonyms": []} for entry in entries]


def _synonym(name: str, origin: SettingOrigin, value: str) -> Fields:
    shown = name if origin in (SettingOrigin.TOPIC, SettingOrigin.GROUP) else _AT_BROKERS.get(name, name)
    return {"name": shown, "value": value, "source": origin}


def _default_of(setting: TopicSetting) -> Iterable[Fields]:
    """In Kafka, settings that only topics have are without this synonym."""
    if setting.name in _AT_BROKERS:
        yield _synonym(setting.name, SettingOrigin.DEFAULT, setting.default)
