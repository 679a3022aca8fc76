"""Answers about the configuration of topics: what is set, and changing it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from kio.schema.errors import ErrorCode

from millstream.errors import LogError

from ..client import Topic
from ..errors import InvalidTopic
from ..groups import SESSION_TIMEOUT_MS_MAX, SESSION_TIMEOUT_MS_MIN
from ..topic_settings import SETTINGS, Kind
from .access import check_administrable, may_see
from .broker import Broker
from .faults import code_of, message_of
from .messages import Fields
from .peer import Peer
from .producers import TIMEOUT_MS_MAX

TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
_STATIC: Final = 4
_SET_ON_TOPIC: Final = 1
_DEFAULT: Final = 5
_TYPES: Final[Mapping[Kind, int]] = {"boolean": 1, "string": 2, "int": 3, "long": 5, "double": 6, "list": 7}
_STRING_TYPE: Final = 2


class InvalidConfigChange(InvalidTopic):
    """A request to change what cannot be changed, or in a way that there is not."""

    code = "INVALID_CONFIG_CHANGE"


def describe_configs(broker: Broker, request: Any, peer: Peer) -> Fields:
    """Of topics: every setting, with its default where it is not set."""
    topics = broker.log.topics()
    documented = getattr(request, "include_documentation", False)
    return {
        "results": [
            _configs_of(broker, topics.get(asked.resource_name), asked, peer, documented) for asked in request.resources
        ]
    }


def _configs_of(broker: Broker, topic: Topic | None, asked: Any, peer: Peer, documented: bool) -> Fields:
    result = {"resource_type": asked.resource_type, "resource_name": asked.resource_name}
    wanted = asked.configuration_keys
    if asked.resource_type != TOPIC_RESOURCE:
        entries = _broker_entries(broker) if asked.resource_type == BROKER_RESOURCE else ()
        chosen = [entry for entry in entries if wanted is None or entry["name"] in wanted]
        return {**result, "error_code": ErrorCode.none, "configs": chosen}
    if not may_see(peer, asked.resource_name):
        return {**result, "error_code": ErrorCode.topic_authorization_failed, "configs": []}
    if topic is None:
        return {**result, "error_code": ErrorCode.unknown_topic_or_partition, "configs": []}
    entries = [entry for entry in _entries(topic, documented) if wanted is None or entry["name"] in wanted]
    return {**result, "error_code": ErrorCode.none, "configs": entries}


def _entries(topic: Topic, documented: bool) -> Iterable[Fields]:
    for setting in SETTINGS.values():
        is_set = setting.name in topic.config
        yield {
            "name": setting.name,
            "value": topic.config.get(setting.name, setting.default),
            "config_source": _SET_ON_TOPIC if is_set else _DEFAULT,
            "config_type": _TYPES[setting.kind],
            "documentation": setting.doc if documented else None,
        }
    yield from config_entries({name: value for name, value in topic.config.items() if name not in SETTINGS})


def _broker_entries(broker: Broker) -> Iterable[Fields]:
    """Settings that Kafka has, too, as far as they are what they are there."""
    expiry = broker.log.expiry
    values: dict[str, object] = {
        "broker.id": broker.layout.node,
        "auto.create.topics.enable": str(broker.settings.creates_topics).lower(),
        "connections.max.idle.ms": broker.settings.idle_ms,
        "delete.topic.enable": "true",
        "num.partitions": 1,
        "default.replication.factor": broker.layout.default_replication(),
        "group.min.session.timeout.ms": SESSION_TIMEOUT_MS_MIN,
        "group.max.session.timeout.ms": SESSION_TIMEOUT_MS_MAX,
        "offsets.retention.minutes": expiry.offsets_ms // 60_000,
        "transaction.max.timeout.ms": TIMEOUT_MS_MAX,
        "transactional.id.expiration.ms": expiry.transactional_ids_ms,
        "producer.id.expiration.ms": expiry.producer_ids_ms,
        "max.incremental.fetch.session.cache.slots": broker.settings.fetch_sessions,
    }
    return [
        {
            "name": name,
            "value": str(value),
            "read_only": True,
            "config_source": _STATIC,
            "config_type": _STRING_TYPE if isinstance(value, str) else _TYPES["long"],
        }
        for name, value in values.items()
    ]


def config_entries(config: Mapping[str, str]) -> Iterable[Fields]:
    return [
        {"name": name, "value": value, "config_source": _SET_ON_TOPIC, "config_type": _STRING_TYPE}
        for name, value in config.items()
    ]


def alter_configs(broker: Broker, request: Any, peer: Peer) -> Fields:
    """The older way: what is not named goes back to its default."""

    def change(asked: Any, config: Mapping[str, str]) -> dict[str, str]:
        return {entry.name: entry.value for entry in asked.configs if entry.value is not None}

    return _alter(broker, request, peer, change)


def incremental_alter_configs(broker: Broker, request: Any, peer: Peer) -> Fields:
    """What is not named stays."""

    def change(asked: Any, config: Mapping[str, str]) -> dict[str, str]:
        changed = dict(config)
        for entry in asked.configs:
            _apply(changed, entry)
        return changed

    return _alter(broker, request, peer, change)


def _apply(config: dict[str, str], entry: Any) -> None:
    value = entry.value or ""
    present = [part for part in config.get(entry.name, "").split(",") if part]
    match entry.config_operation:
        case 0:
            config[entry.name] = value
        case 1:
            config.pop(entry.name, None)
        case 2:
            config[entry.name] = ",".join(dict.fromkeys([*present, *value.split(",")]))
        case 3:
            config[entry.name] = ",".join(part for part in present if part not in value.split(","))
        case other:
            raise InvalidConfigChange(f"there is no way {other} to change a setting")


_Change = Callable[[Any, Mapping[str, str]], dict[str, str]]


def _alter(broker: Broker, request: Any, peer: Peer, change: _Change) -> Fields:
    return {"responses": [_altered(broker, asked, peer, change, request.validate_only) for asked in request.resources]}


def _altered(broker: Broker, asked: Any, peer: Peer, change: _Change, only_check: bool) -> Fields:
    result: Fields = {"resource_type": asked.resource_type, "resource_name": asked.resource_name}
    try:
        if asked.resource_type != TOPIC_RESOURCE:
            raise InvalidConfigChange("only topics have settings that can be changed here")
        check_administrable(peer, asked.resource_name)
        topic = broker.log.topics().get(asked.resource_name)
        if topic is None:
            return {**result, "error_code": ErrorCode.unknown_topic_or_partition, "error_message": None}
        broker.log.alter_topic(topic.name, change(asked, topic.config), only_check=only_check)
    except LogError as error:
        code = ErrorCode.invalid_config if isinstance(error, InvalidTopic) else code_of(error)
        return {**result, "error_code": code, "error_message": message_of(error)}
    return {**result, "error_code": ErrorCode.none, "error_message": None}
