"""The settings in WITH of a mirror: how to reach the source, with the names of Kafka's clients, and what to copy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from millstream.errors import StatementError, did_you_mean

from ...logcore.external.kafka_properties import (
    BOOTSTRAP,
    IN_SYNC_MIN,
    PROCESSING_LOG_RETENTION_MS,
    REPLICATION_FACTOR,
    TRANSACTION_TIMEOUT_MS,
    InvalidKafkaProperty,
    KafkaProperties,
    documented,
)
from ...logcore.mirrors.mirror_source import TopicFilter
from ...planner.mirror_info import MirrorInfo
from ...sql.settings.property import says_true

MirrorMode = Literal["exact", "renamed"]

MODE: Final = "mode"
ALIAS: Final = "alias"
TARGET_ALIAS: Final = "target.alias"
COMMITS: Final = "sync.group.offsets.enabled"
ACLS: Final = "sync.topic.acls.enabled"
EXCLUDED: Final = "topics.exclude"
GROUPS: Final = "groups"
GROUPS_EXCLUDED: Final = "groups.exclude"
EXISTING: Final = "existing.topics"
LOOK_MS: Final = "refresh.interval.ms"
_LOOK_MS_MIN: Final = 100
_ALIAS: Final = re.compile(r"[A-Za-z0-9_-]{1,100}")

DOCS: Final[Mapping[str, str]] = {
    MODE: "exact (default): the same names and offsets. renamed: names as MirrorMaker 2 gives them.",
    ALIAS: "Of the source, in mode renamed: its topic t is alias.t here. Letters, digits, _ and -.",
    TARGET_ALIAS: "Of this log, in mode renamed: topics that came from it are not copied back. Default millstream.",
    COMMITS: "true (default), or false: in mode renamed, offsets of groups are told in checkpoints only.",
    ACLS: "true (default), or false: ACLs of the topics are not copied.",
    EXCLUDED: "Topics that are not copied, as in TOPICS, separated by commas.",
    GROUPS: "Consumer groups whose committed offsets are copied, in the same way. Default: *; empty for none.",
    GROUPS_EXCLUDED: "Groups that are not copied.",
    EXISTING: "refuse (default), or adopt: a topic that is here already is taken over where it is a beginning of the"
    " source's.",
    LOOK_MS: "How often topics, settings and groups of the source are looked at. Default 3000.",
}
_NOT_OF_A_SOURCE: Final = (
    BOOTSTRAP, TRANSACTION_TIMEOUT_MS, REPLICATION_FACTOR, IN_SYNC_MIN, PROCESSING_LOG_RETENTION_MS,
)  # fmt: skip


class InvalidMirrorSetting(StatementError):
    """A setting of a mirror that is unknown or wrong."""

    code = "INVALID_MIRROR_SETTING"


@dataclass(frozen=True, slots=True)
class MirrorSettings:
    """`name`: the name of the mirror."""

    name: str
    mode: MirrorMode
    source: KafkaProperties
    topics: TopicFilter
    groups: TopicFilter
    adopts: bool
    look_ms: int
    alias: str = ""
    target: str = ""
    commits: bool = True
    acls: bool = True


def kafka_settings() -> list[str]:
    """The names of the properties of Kafka's clients that are allowed in WITH."""
    return [name for name in documented() if name not in _NOT_OF_A_SOURCE]


def mirror_settings(info: MirrorInfo, config: Mapping[str, str]) -> MirrorSettings:
    """In: `config`: the mirror's settings, with resolved references to secrets. Raises `InvalidMirrorSetting`."""
    kafka = kafka_settings()
    for name in config:
        if name not in DOCS and name not in kafka:
            hint = did_you_mean(name, [*DOCS, *kafka]) or f"There are {', '.join([*DOCS, *kafka])}."
            raise InvalidMirrorSetting(f'a mirror has no setting "{name}"', hint=hint)
    mode: MirrorMode = "renamed" if _one_of(config, MODE, "exact", "renamed") == "renamed" else "exact"
    chosen = tuple(name for text in info.topics for name in _names(text))
    if not chosen:
        raise InvalidMirrorSetting("a mirror of no topics", hint="TOPICS '*' copies all that are not internal.")
    try:
        source = KafkaProperties({BOOTSTRAP: info.brokers, **{name: config[name] for name in kafka if name in config}})
        source.tls()
    except InvalidKafkaProperty as error:
        raise InvalidMirrorSetting(error.message, hint=error.hint) from None
    return MirrorSettings(
        info.name,
        mode,
        source,
        TopicFilter(chosen, _names(config.get(EXCLUDED, ""))),
        TopicFilter(_names(config.get(GROUPS, "*")), _names(config.get(GROUPS_EXCLUDED, ""))),
        _one_of(config, EXISTING, "refuse", "adopt") == "adopt",
        _look_ms(config),
        _alias(config, ALIAS, "") if mode == "renamed" else "",
        _alias(config, TARGET_ALIAS, "millstream") if mode == "renamed" else "",
        says_true(_one_of(config, COMMITS, "true", "false")),
        says_true(_one_of(config, ACLS, "true", "false")),
    )


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _one_of(config: Mapping[str, str], name: str, *values: str) -> str:
    """The value of the setting, which must be one of `values`; the first one is the default."""
    value = config.get(name, values[0]).lower()
    if value not in values:
        raise InvalidMirrorSetting(f'{name} is "{value}"', hint=f"It is {' or '.join(values)}.")
    return value


def _alias(config: Mapping[str, str], name: str, otherwise: str) -> str:
    """The alias. It must not contain a dot, because the first dot in a topic's name ends the alias."""
    text = config.get(name, otherwise)
    if not _ALIAS.fullmatch(text):
        raise InvalidMirrorSetting(
            f'{name} is "{text}"', hint="It has letters, digits, _ and - only, and is not empty."
        )
    return text


def _look_ms(config: Mapping[str, str]) -> int:
    text = config.get(LOOK_MS, "3000")
    if not text.isdecimal() or int(text) < _LOOK_MS_MIN:
        raise InvalidMirrorSetting(f'{LOOK_MS} is "{text}"', hint=f"It is a number, at least {_LOOK_MS_MIN}.")
    return int(text)
