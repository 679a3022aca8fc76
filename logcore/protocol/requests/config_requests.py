"""Answers about settings: of topics, brokers and groups, and changing them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, TypeVar

from millstream.errors import LogError

from ...cores.expiry import DEFAULT as USUAL_EXPIRY
from ...cores.group_messages import MEMBERS_MAX, SESSION_TIMEOUT_MS_MAX, SESSION_TIMEOUT_MS_MIN
from ...cores.share_settings import OF_ALL, of_all
from ...error_codes import ErrorCode
from ...errors import InvalidSetting, InvalidTopic, UnknownTopic
from ...log_settings import ALL_BROKERS, ALL_TOPICS, of_broker, of_group
from ...topic_settings import OF_MIRRORS, SETTINGS, TopicSetting
from ..fetch_sessions import SLOTS
from ..kafka_service import IDLE_MS, Desk
from ..other_settings import OF_BROKERS, OF_GROUPS, check_changes
from ..security.access import NotAllowed, check_changeable, check_cluster
from ..security.accesses import (
    ALTER_CLUSTER_CONFIGS,
    ALTER_GROUP_CONFIGS,
    ALTER_TOPIC_CONFIGS,
    DESCRIBE_GROUP_CONFIGS,
    DESCRIBE_TOPIC_CONFIGS,
    SEE_BROKER_CONFIGS,
    Access,
)
from ..security.peer import Peer
from ..security.read_only_topics import check_no_mirror_named
from ..setting_limits import NAME_BYTES_MAX, check_room, is_too_long
from ..setting_origins import SettingOrigin, described, fixed, unknown, without_synonyms
from ..wire.faults import code_of, message_of
from ..wire.messages import Fields
from .transaction_requests import TIMEOUT_MS_MAX

if TYPE_CHECKING:
    from .request_shapes import (
        AlterConfigsRequest,
        AlterConfigsResource,
        DescribeConfigsRequest,
        DescribeConfigsResource,
        IncrementalAlterConfigsEntry,
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResource,
    )


class Resource(IntEnum):
    """The kinds of resources with settings. The numbers are those of the protocol."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


class Operation(IntEnum):
    """The ways to change a setting. The numbers are those of the protocol."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class InvalidConfigChange(InvalidTopic):
    """A request to change settings that cannot be changed, or by an unknown operation."""

    code = "INVALID_CONFIG_CHANGE"


class InvalidResource(LogError):
    """A name that is not a broker's, or a kind of resource that has no settings here."""

    code = "INVALID_RESOURCE"


class GroupNotAllowed(NotAllowed):
    """A client has no right on a group."""

    code = "GROUP_NOT_ALLOWED"


# Reading settings


def describe_configs(broker: Desk, request: DescribeConfigsRequest, peer: Peer) -> Fields:
    """Every setting; its default if it is not set."""
    documented = getattr(request, "include_documentation", False)
    results: list[Fields] = []
    for asked in request.resources:
        result = {"resource_type": asked.resource_type, "resource_name": asked.resource_name}
        try:
            entries = list(_entries_of(broker, asked, peer, documented))
        except LogError as error:
            code, message = _code_of(error), message_of(error)
            results.append({**result, "error_code": code, "error_message": message, "configs": []})
            continue
        wanted = asked.configuration_keys
        chosen = [entry for entry in entries if wanted is None or entry["name"] in wanted]
        configs = chosen if request.include_synonyms else without_synonyms(chosen)
        results.append({**result, "error_code": ErrorCode.none, "configs": configs})
    return {"results": results}


def _entries_of(broker: Desk, asked: DescribeConfigsResource, peer: Peer, documented: bool) -> Iterable[Fields]:
    """Raises `LogError`."""
    name = asked.resource_name
    match asked.resource_type:
        case Resource.TOPIC:
            return _of_topic(broker, name, peer, documented)
        case Resource.BROKER:
            check_cluster(peer, SEE_BROKER_CONFIGS)
            return _of_broker(broker, _number(broker, name), documented)
        case Resource.GROUP:
            _check_group(broker, peer, name, DESCRIBE_GROUP_CONFIGS)
            return _of_group(broker, name, documented)
        case kind:
            raise InvalidResource(f"resources of kind {kind} have no settings here")


def _of_topic(broker: Desk, name: str, peer: Peer, documented: bool) -> Iterable[Fields]:
    if not peer.may(DESCRIBE_TOPIC_CONFIGS, name):
        raise NotAllowed(f'there is no right on topic "{name}"')
    topic = broker.log.topics().get(name)
    if topic is None:
        raise UnknownTopic(f'topic "{name}" does not exist')
    all_topics = broker.log.settings(ALL_TOPICS)
    for setting in SETTINGS.values():
        given = (
            (SettingOrigin.TOPIC, topic.config.get(setting.name)),
            (SettingOrigin.ALL_BROKERS, all_topics.get(setting.name)),
        )
        yield described(setting, given, documented=documented)
    yield from (unknown(key, value) for key, value in topic.config.items() if key not in SETTINGS)


def _number(broker: Desk, name: str) -> int | None:
    """None means all brokers. Raises `InvalidResource`."""
    if name == "":
        return None
    known = [each.node for each in broker.layout.nodes(("", 0))]
    if not name.isdecimal() or int(name) not in known:
        raise InvalidResource(f'"{name}" is no broker: there are {", ".join(map(str, sorted(known)))}')
    return int(name)


def _of_broker(broker: Desk, node: int | None, documented: bool) -> Iterable[Fields]:
    """The settings that were set, as in Kafka; for one broker also those of its configuration that Kafka has, too."""
    everywhere = broker.log.settings(ALL_BROKERS)
    own = {} if node is None else broker.log.settings(of_broker(node))
    for setting in OF_BROKERS.values():
        given = (
            (SettingOrigin.BROKER, own.get(setting.name)),
            (SettingOrigin.ALL_BROKERS, everywhere.get(setting.name)),
        )
        of_shares = node is not None and setting.name.startswith(OF_ALL)  # in Kafka: a broker's own configuration
        if of_shares or any(value is not None for _, value in given):
            yield described(setting, given, documented=documented)
    if node is not None:
        yield from (fixed(name, value, usual) for name, (value, usual) in _configured(broker, node).items())


def _configured(broker: Desk, node: int) -> Mapping[str, tuple[object, object | None]]:
    """The configured values, each with its default; None if the default depends on something else."""
    expiry = broker.log.expiry
    return {
        "broker.id": (node, None),
        "auto.create.topics.enable": (str(broker.settings.creates_topics).lower(), "true"),
        "connections.max.idle.ms": (broker.settings.idle_ms, IDLE_MS),
        "delete.topic.enable": ("true", "true"),
        "num.partitions": (1, 1),
        "default.replication.factor": (broker.layout.default_replication(), None),
        "group.min.session.timeout.ms": (SESSION_TIMEOUT_MS_MIN, SESSION_TIMEOUT_MS_MIN),
        "group.max.session.timeout.ms": (SESSION_TIMEOUT_MS_MAX, SESSION_TIMEOUT_MS_MAX),
        "group.max.size": (MEMBERS_MAX, None),
        "group.consumer.max.size": (MEMBERS_MAX, None),
        "group.consumer.migration.policy": ("bidirectional", "bidirectional"),
        "offsets.retention.minutes": (expiry.offsets_ms // 60_000, USUAL_EXPIRY.offsets_ms // 60_000),
        "transaction.max.timeout.ms": (TIMEOUT_MS_MAX, TIMEOUT_MS_MAX),
        "transactional.id.expiration.ms": (expiry.transactional_ids_ms, USUAL_EXPIRY.transactional_ids_ms),
        "producer.id.expiration.ms": (expiry.producer_ids_ms, USUAL_EXPIRY.producer_ids_ms),
        "max.incremental.fetch.session.cache.slots": (broker.settings.fetch_sessions, SLOTS),
    }


def _of_group(broker: Desk, name: str, documented: bool) -> Iterable[Fields]:
    settings = broker.log.settings(of_group(name))
    brokers = broker.log.settings(ALL_BROKERS)
    for setting in OF_GROUPS.values():
        given = [
            (SettingOrigin.GROUP, settings.get(setting.name)),
            (SettingOrigin.ALL_BROKERS, brokers.get(of_all(setting.name))),
        ]
        yield described(setting, given, documented=documented)


def _check_group(broker: Desk, peer: Peer, name: str, access: Access) -> None:
    """Raises `GroupNotAllowed`, `InvalidResource`."""
    if broker.refuses(peer, name, access):
        raise GroupNotAllowed(f'there is no right "group" on group "{name}"')
    if not name:
        raise InvalidResource("a group has a name")


def config_entries(config: Mapping[str, str]) -> Iterable[Fields]:
    """The settings of a new topic, for an answer."""
    return [unknown(name, value) for name, value in config.items()]


# Changing settings


def alter_configs(broker: Desk, request: AlterConfigsRequest, peer: Peer) -> Fields:
    """The older request: settings that it does not name return to their defaults, except those of mirrors, which the
    client cannot know."""

    def change(asked: AlterConfigsResource, config: Mapping[str, str]) -> dict[str, str]:
        kept = {} if peer.trusted else {name: config[name] for name in OF_MIRRORS if name in config}
        return kept | {entry.name: entry.value for entry in asked.configs if entry.value is not None}

    return _alter(broker, request.resources, peer, change, only_check=request.validate_only)


def incremental_alter_configs(broker: Desk, request: IncrementalAlterConfigsRequest, peer: Peer) -> Fields:
    """Settings that it does not name stay unchanged."""

    def change(asked: IncrementalAlterConfigsResource, config: Mapping[str, str]) -> dict[str, str]:
        changed = dict(config)
        for entry in asked.configs:
            _apply(changed, entry, SETTINGS if asked.resource_type == Resource.TOPIC else {})
        return changed

    return _alter(broker, request.resources, peer, change, only_check=request.validate_only)


def _apply(config: dict[str, str], entry: IncrementalAlterConfigsEntry, known: Mapping[str, TopicSetting]) -> None:
    """Raises `InvalidConfigChange`."""
    value, setting, operation = entry.value or "", known.get(entry.name), entry.config_operation
    is_list = setting is not None and setting.kind == "list"
    if operation in (Operation.APPEND, Operation.SUBTRACT) and not is_list:
        raise InvalidConfigChange(f"nothing can be appended to, or subtracted from, {entry.name}: it is not a list")
    usual = "" if setting is None else setting.default
    present = [part for part in config.get(entry.name, usual).split(",") if part]
    match operation:
        case Operation.SET:
            config[entry.name] = value
        case Operation.DELETE:
            config.pop(entry.name, None)
        case Operation.APPEND:
            config[entry.name] = ",".join(dict.fromkeys([*present, *value.split(",")]))
        case Operation.SUBTRACT:
            config[entry.name] = ",".join(part for part in present if part not in value.split(","))
        case other:
            raise InvalidConfigChange(f"there is no way {other} to change a setting")


_Asked = TypeVar("_Asked", "AlterConfigsResource", "IncrementalAlterConfigsResource")
_Change = Callable[[_Asked, Mapping[str, str]], dict[str, str]]


def _alter(
    broker: Desk, resources: Sequence[_Asked], peer: Peer, change: _Change[_Asked], *, only_check: bool
) -> Fields:
    return {"responses": [_altered(broker, asked, peer, change, only_check) for asked in resources]}


def _altered(broker: Desk, asked: _Asked, peer: Peer, change: _Change[_Asked], only_check: bool) -> Fields:
    result: Fields = {"resource_type": asked.resource_type, "resource_name": asked.resource_name}
    try:
        _change(broker, asked, peer, change, only_check=only_check)
    except LogError as error:
        return {**result, "error_code": _code_of(error), "error_message": message_of(error)}
    return {**result, "error_code": ErrorCode.none, "error_message": None}


def _code_of(error: LogError) -> ErrorCode:
    match error:
        case InvalidResource():
            return ErrorCode.invalid_request
        case GroupNotAllowed():
            return ErrorCode.group_authorization_failed
        case InvalidTopic():
            return ErrorCode.invalid_config
        case _:
            return code_of(error)


def _change(broker: Desk, asked: _Asked, peer: Peer, change: _Change[_Asked], *, only_check: bool) -> None:
    """Raises `LogError`."""
    name = asked.resource_name
    match asked.resource_type:
        case Resource.TOPIC:
            check_changeable(peer, name, ALTER_TOPIC_CONFIGS)
            topic = broker.log.topics().get(name)
            if topic is None:
                raise UnknownTopic(f'topic "{name}" does not exist')
            changed = change(asked, topic.config)
            check_no_mirror_named(topic.config, changed, peer)
            broker.log.alter_topic(name, changed, only_check=only_check)
            return
        case Resource.BROKER:
            check_cluster(peer, ALTER_CLUSTER_CONFIGS)
            known, resource = OF_BROKERS, of_broker(_number(broker, name))
        case Resource.GROUP:
            _check_group(broker, peer, name, ALTER_GROUP_CONFIGS)
            if is_too_long(name):
                what = f"a group whose name has more than {NAME_BYTES_MAX} bytes has no settings of its own"
                raise InvalidResource(what)
            known, resource = OF_GROUPS, of_group(name)
        case kind:
            raise InvalidResource(f"resources of kind {kind} have no settings that can be changed here")
    before = {key: value for key, value in broker.log.settings(resource).items() if key in known}
    after = change(asked, before)
    changes = {key: after.get(key) for key in sorted({*before, *after}) if before.get(key) != after.get(key)}
    if known is OF_BROKERS and resource != ALL_BROKERS and any(key.startswith(OF_ALL) for key in changes):
        raise InvalidSetting("share groups are no matter of one broker", hint="Set it for all: leave the name empty.")
    check_changes(known, before, changes, broker.log.settings(ALL_BROKERS))
    check_room(broker.log, resource, changes)
    if not only_check:
        broker.log.change_settings(resource, changes)
