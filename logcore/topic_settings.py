"""The settings of a topic: Kafka's properties with their defaults, and the values that the log uses."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from .errors import InvalidSetting, ReadOnlyTopic

MIRROR: Final = "millstream.mirror"
MIRRORED_ID: Final = "millstream.mirror.topic.id"
MIRROR_ORIGINS: Final = "millstream.mirror.origins"
OF_MIRRORS: Final = (MIRROR, MIRRORED_ID, MIRROR_ORIGINS)
"""Only mirrors set these."""
OWN_SETTINGS: Final = frozenset({"arrow.passthrough", "millstream.value.format", *OF_MIRRORS})
"""Settings that Kafka does not have."""
TIME_BEFORE: Final = "message.timestamp.before.max.ms"
TIME_AFTER: Final = "message.timestamp.after.max.ms"
NEVER_MS: Final = (1 << 63) - 1
_INTEGER: Final = re.compile(r"-?\d{1,19}")
_SEGMENT_BYTES_MIN: Final = 1024
_DAY_MS: Final = 24 * 60 * 60 * 1000
_CLEANUP: Final = ("delete", "compact")
_COMPRESSIONS: Final = ("uncompressed", "producer", "gzip", "snappy", "lz4", "zstd")

Kind = Literal["int", "long", "double", "boolean", "string", "list"]


@dataclass(frozen=True, slots=True)
class TopicSetting:
    """One property. `problem` returns None for a valid value, else a sentence that says what the value should be.

    `heeded` is False for a property that Kafka knows and that has no effect here.
    """

    name: str
    kind: Kind
    default: str
    doc: str
    problem: Callable[[str], str | None]
    heeded: bool = True


def whole_number(low: int, high: int = NEVER_MS) -> Callable[[str], str | None]:
    """A check that a text is a whole number between `low` and `high`; it returns the problem, or None."""

    def problem(text: str) -> str | None:
        if _INTEGER.fullmatch(text) and low <= int(text) <= high:
            return None
        return f"It is a whole number, at least {low}." if high == NEVER_MS else f"It is between {low} and {high}."

    return problem


def one_of(*values: str) -> Callable[[str], str | None]:
    """A check that a text is one of these; it returns the problem, or None."""
    return lambda text: None if text in values else f"It is one of {', '.join(values)}."


def _share(text: str) -> str | None:
    try:
        return None if 0 <= float(text) <= 1 else "It is between 0 and 1."
    except ValueError:
        return "It is a number between 0 and 1."


def _cleanup(text: str) -> str | None:
    named = [part.strip() for part in text.split(",")]
    fine = all(part in _CLEANUP for part in named) and len(set(named)) == len(named)
    return None if fine else "It is delete, compact, or compact,delete."


def _anything(text: str) -> str | None:
    return None


_boolean: Final = one_of("true", "false")

SETTINGS: Final[Mapping[str, TopicSetting]] = {
    setting.name: setting
    for setting in (
        TopicSetting("cleanup.policy", "list", "delete",
                "delete drops old segments, compact keeps the latest record of each key.", _cleanup),
        TopicSetting("retention.ms", "long", str(7 * _DAY_MS),
                "A segment is dropped when it is so old, by its records and by when it was written; -1: never.",
                whole_number(-1)),
        TopicSetting("retention.bytes", "long", "-1", "The oldest segments of a larger partition go; -1: never.",
                whole_number(-1)),
        TopicSetting("segment.bytes", "int", str(128 * 1024 * 1024), "The size at which a new segment begins.",
                whole_number(_SEGMENT_BYTES_MIN, (1 << 31) - 1)),
        TopicSetting("segment.ms", "long", str(7 * _DAY_MS), "The age at which a new segment begins.", whole_number(1)),
        TopicSetting("max.message.bytes", "int", "1048588",
                "The largest record batch that a client may send; columnar batches are not bound by it.",
                whole_number(0)),
        TopicSetting("message.timestamp.type", "string", "CreateTime",
                "Whose time a record has: its producer's, or that of the append.",
                one_of("CreateTime", "LogAppendTime")),
        TopicSetting(TIME_BEFORE, "long", str(NEVER_MS),
                "How far a record's time may be before that of the append, where it is its producer's.",
                whole_number(0)),
        TopicSetting(TIME_AFTER, "long", str(NEVER_MS),
                "How far a record's time may be after that of the append, where it is its producer's.",
                whole_number(0)),
        TopicSetting("delete.retention.ms", "long", str(_DAY_MS),
                "So long compaction keeps a tombstone after it has removed what the tombstone deletes.",
                whole_number(0)),
        TopicSetting("min.cleanable.dirty.ratio", "double", "0.5",
                "The share of bytes not compacted yet at which compaction begins.", _share),
        TopicSetting("min.compaction.lag.ms", "long", "0", "Younger records are not compacted.", whole_number(0)),
        TopicSetting("max.compaction.lag.ms", "long", str(NEVER_MS), "Older records are compacted, however few.",
                whole_number(1)),
        TopicSetting("arrow.passthrough", "boolean", "false",
                "Kafka clients get columnar batches as they are stored, not as rows.", _boolean),
        TopicSetting("millstream.value.format", "string", "JSON",
                "The format in which Kafka clients get the values of columnar batches.", one_of("JSON", "DELIMITED")),
        TopicSetting(MIRROR, "string", "", "The mirror that writes the topic; nobody else does.",
                _anything),
        TopicSetting(MIRRORED_ID, "string", "", "The id of the topic that the mirror copies.", _anything),
        TopicSetting(MIRROR_ORIGINS, "list", "",
                "CLUSTER/TOPIC, by their ids, for each topic that the records have come through.", _anything),
        TopicSetting("compression.type", "string", "producer", "Records are stored as they are sent.",
                one_of(*_COMPRESSIONS), heeded=False),
        TopicSetting("compression.gzip.level", "int", "-1", "", whole_number(-1), heeded=False),
        TopicSetting("compression.lz4.level", "int", "9", "", whole_number(-1), heeded=False),
        TopicSetting("compression.zstd.level", "int", "3", "", whole_number(-200000), heeded=False),
        TopicSetting("file.delete.delay.ms", "long", "60000", "", whole_number(0), heeded=False),
        TopicSetting("flush.messages", "long", str(NEVER_MS), "Every append is synced.", whole_number(1), heeded=False),
        TopicSetting("flush.ms", "long", str(NEVER_MS), "Every append is synced.", whole_number(0), heeded=False),
        TopicSetting("follower.replication.throttled.replicas", "list", "", "", _anything, heeded=False),
        TopicSetting("leader.replication.throttled.replicas", "list", "", "", _anything, heeded=False),
        TopicSetting("index.interval.bytes", "int", "4096", "", whole_number(0), heeded=False),
        TopicSetting("local.retention.bytes", "long", "-2", "", whole_number(-2), heeded=False),
        TopicSetting("local.retention.ms", "long", "-2", "", whole_number(-2), heeded=False),
        TopicSetting("message.downconversion.enable", "boolean", "true", "", _boolean, heeded=False),
        TopicSetting("message.format.version", "string", "3.0-IV1", "", _anything, heeded=False),
        TopicSetting("message.timestamp.difference.max.ms", "long", str(NEVER_MS), "", whole_number(0), heeded=False),
        TopicSetting("min.insync.replicas", "int", "1", "Each record has one copy.", whole_number(1), heeded=False),
        TopicSetting("preallocate", "boolean", "false", "", _boolean, heeded=False),
        TopicSetting("remote.storage.enable", "boolean", "false", "", _boolean, heeded=False),
        TopicSetting("segment.index.bytes", "int", "10485760", "", whole_number(4), heeded=False),
        TopicSetting("segment.jitter.ms", "long", "0", "", whole_number(0), heeded=False),
        TopicSetting("unclean.leader.election.enable", "boolean", "false", "", _boolean, heeded=False),
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The settings that have an effect, as values. None means no bound, or no mirror."""

    compacted: bool
    deleting: bool
    retention_ms: int | None
    retention_bytes: int | None
    segment_bytes: int
    segment_ms: int
    message_bytes_max: int
    append_time: bool
    time_before_ms_max: int | None
    time_after_ms_max: int | None
    delete_retention_ms: int
    dirty_share_min: float
    compaction_lag_ms_min: int
    compaction_lag_ms_max: int
    mirror: str | None = None

    def check_writer(self, topic: str, mirror: str | None) -> None:
        """In: `mirror`: the mirror that writes; None: the writer is no mirror. Raises `ReadOnlyTopic`."""
        if mirror == self.mirror:
            return
        if self.mirror is None:
            raise ReadOnlyTopic(f'topic "{topic}" is not a copy that mirror "{mirror}" writes any more')
        raise ReadOnlyTopic(f'topic "{topic}" is read-only: the mirror "{self.mirror}" writes it')

    def times(self, now_ms: int) -> tuple[int, int] | None:
        """The earliest and the latest timestamp allowed for a record that is appended now; None: any is allowed."""
        if self.time_before_ms_max is None and self.time_after_ms_max is None:
            return None
        earliest = -NEVER_MS if self.time_before_ms_max is None else now_ms - self.time_before_ms_max
        latest = NEVER_MS if self.time_after_ms_max is None else min(NEVER_MS, now_ms + self.time_after_ms_max)
        return earliest, latest


def check_config(topic: str, config: Mapping[str, str]) -> None:
    """Raises `InvalidSetting` for an unknown property or an invalid value."""
    for name, value in config.items():
        setting = SETTINGS.get(name)
        if setting is None:
            raise InvalidSetting(
                f'topic "{topic}" cannot have the property "{name}": there is none of that name',
                hint="The properties of a topic are Kafka's, as retention.ms or cleanup.policy.",
            )
        problem = setting.problem(value)
        if problem is not None:
            raise InvalidSetting(f'{name} of topic "{topic}" cannot be "{value}"', hint=problem)


def settings_of(config: Mapping[str, str]) -> TopicSettings:
    """The settings of a topic. A value that `check_config` would refuse counts as not set: older versions accepted any
    value."""
    return _settings(tuple(sorted(config.items())))


@lru_cache(maxsize=64)
def _settings(items: tuple[tuple[str, str], ...]) -> TopicSettings:
    config = dict(items)

    def value(name: str) -> str:
        setting = SETTINGS[name]
        text = config.get(name, setting.default)
        return setting.default if setting.problem(text) else text

    append_time = value("message.timestamp.type") == "LogAppendTime"
    policy = {part.strip() for part in value("cleanup.policy").split(",")}
    return TopicSettings(
        compacted="compact" in policy,
        deleting="delete" in policy,
        retention_ms=_bound(value("retention.ms")),
        retention_bytes=_bound(value("retention.bytes")),
        segment_bytes=int(value("segment.bytes")),
        segment_ms=int(value("segment.ms")),
        message_bytes_max=int(value("max.message.bytes")),
        append_time=append_time,
        time_before_ms_max=None if append_time else _distance(value(TIME_BEFORE)),
        time_after_ms_max=None if append_time else _distance(value(TIME_AFTER)),
        delete_retention_ms=int(value("delete.retention.ms")),
        dirty_share_min=float(value("min.cleanable.dirty.ratio")),
        compaction_lag_ms_min=int(value("min.compaction.lag.ms")),
        compaction_lag_ms_max=int(value("max.compaction.lag.ms")),
        mirror=value(MIRROR) or None,
    )


def _bound(text: str) -> int | None:
    return None if int(text) < 0 else int(text)


def _distance(text: str) -> int | None:
    return None if int(text) == NEVER_MS else int(text)
