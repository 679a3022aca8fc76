"""Answers about the configuration of topics: what is set, and changing it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from kio.schema.errors import ErrorCode

from millstream.errors import LogError

from ..client import Topic
from ..errors import InvalidTopic
from ..topic_settings import SETTINGS, Kind
from .access import check_administrable
from .broker import Broker
from .faults import code_of, message_of
from .messages import Fields
from .peer import Peer

_TOPIC_RESOURCE: Final = 2
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
    return {"results": [_configs_of(topics.get(asked.resource_name), asked, documented) for asked in request.resources]}


def _configs_of(topic: Topic | None, asked: Any, documented: bool) -> Fields:
    result = {"resource_type": asked.resource_type, "resource_name": asked.resource_name}
    if asked.resource_type != _TOPIC_RESOURCE:
        return {**result, "error_code": ErrorCode.none, "configs": []}
    if topic is None:
        return {**result, "error_code": ErrorCode.unknown_topic_or_partition, "configs": []}
    wanted = asked.configuration_keys
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
        if asked.resource_type != _TOPIC_RESOURCE:
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
