"""Offsets of connectors in the form of Kafka Connect's API: for a source the position of each task, for a sink the
offset of each partition. They can only be changed while the connector is stopped, so that no task overwrites them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...executor.connect.connector import Position, SinkConnector
from ...executor.connect.connector_plugins import find_plugin
from ...executor.connect.connectors import Connectors
from ...executor.connect.sink_runner import group_of
from ...executor.connect.task_positions import read_positions
from ...logcore.client import LogClient, TopicPartition
from ...planner.connector_info import ConnectorInfo
from ..http.errors import BAD_REQUEST, RequestRefused

_MAX: Final = 2**63 - 1
_DIGITS_MAX: Final = 19


def shown_offsets(info: ConnectorInfo, log: LogClient) -> list[dict[str, Any]]:
    if info.kind == "SINK":
        committed = sorted(log.committed_offsets(group_of(info.name)).items())
        return [
            {
                "partition": {"kafka_topic": at.topic, "kafka_partition": at.partition},
                "offset": {"kafka_offset": offset},
            }
            for at, offset in committed
        ]
    positions = sorted(read_positions(log).items(), key=lambda item: item[0])
    return [{"partition": {"task": task}, "offset": position} for (of, task), position in positions if of == info.name]


def alter_offsets(info: ConnectorInfo, body: Mapping[str, Any], connectors: Connectors, log: LogClient) -> None:
    """In: `body`: offsets in the form of `shown_offsets`, under "offsets"; null resets an offset. Raises
    `RequestRefused`."""
    for member in body.keys() - {"offsets"}:
        raise RequestRefused(BAD_REQUEST, f'"{member}" is unknown', hint='The only member is "offsets".')
    given = body.get("offsets")
    if not isinstance(given, list) or not given:
        raise RequestRefused(BAD_REQUEST, "Partitions / offsets need to be provided for an alter offsets request")
    pairs = [_pair(item) for item in given]
    _check_stopped(info, connectors)
    if info.kind == "SOURCE":
        known = read_positions(log)
        connectors.set_positions(info, dict(_position(info, *pair, known) for pair in pairs))
        return
    _check_in_log(info)
    log.commit_offsets(group_of(info.name), dict(_offset(*pair, log) for pair in pairs))


def reset_offsets(info: ConnectorInfo, connectors: Connectors, log: LogClient) -> None:
    """Resets all offsets, so that the connector starts from the beginning. Raises `RequestRefused`."""
    _check_stopped(info, connectors)
    if info.kind == "SOURCE":
        connectors.set_positions(info, {task: None for of, task in read_positions(log) if of == info.name})
        return
    _check_in_log(info)
    log.forget_group(group_of(info.name))


def _pair(item: Any) -> tuple[dict[str, Any], dict[str, Any] | None]:
    partition, offset = (item.get("partition"), item.get("offset")) if isinstance(item, dict) else (None, None)
    if not isinstance(partition, dict) or not (offset is None or isinstance(offset, dict)):
        raise RequestRefused(
            BAD_REQUEST, 'each of the offsets is an object with "partition", an object, and "offset", an object or null'
        )
    return partition, offset


def _check_stopped(info: ConnectorInfo, connectors: Connectors) -> None:
    if not info.stopped:
        raise RequestRefused(
            BAD_REQUEST,
            f"Connectors must be in the STOPPED state before their offsets can be modified. This can be done for the"
            f" specified connector by issuing a 'PUT' request to the '/connectors/{info.name}/stop' endpoint",
        )
    for waits_for in connectors.settled([info.name]).values():
        raise RequestRefused(BAD_REQUEST, f"the tasks have not ended yet: {waits_for}", hint="Try again later.")


def _check_in_log(info: ConnectorInfo) -> None:
    """Refuses a sink that stores its offsets with its rows, in the other system."""
    loaded: Any = find_plugin(info.config.get("connector.class"), "SINK").load()
    if loaded.positions is not SinkConnector.positions:
        raise RequestRefused(
            BAD_REQUEST,
            "this sink keeps its offsets with the rows, in the other system, where they cannot be changed from here",
            hint="DROP CONNECTOR and create it anew to write all records again.",
        )


def _position(
    info: ConnectorInfo, partition: Mapping[str, Any], offset: Any, known: Mapping[tuple[str, int], Position]
) -> tuple[int, Any]:
    """In: `known`: the positions of all tasks, by connector and number."""
    task = partition.get("task")
    if set(partition) != {"task"} or isinstance(task, bool) or not isinstance(task, int) or not 0 <= task < 1000:
        raise RequestRefused(BAD_REQUEST, 'the partition of a source is {"task": number}')
    if offset is not None:
        _check_form(task, offset, known.get((info.name, task), {}))
    return task, offset


def _check_form(task: int, offset: Mapping[str, Any], now: Position) -> None:
    """A source reads the members of its own positions, and would wait for ever with an offset that lacks one."""
    for name, value in now.items():
        if type(offset.get(name)) is not type(value):
            raise RequestRefused(
                BAD_REQUEST,
                f'the offset of task {task} needs "{name}", of the type that GET of the same path shows',
                hint="Send what GET shows with other values; null begins from the start.",
            )


def _offset(partition: Mapping[str, Any], offset: Any, log: LogClient) -> tuple[TopicPartition, int]:
    topic: Any = partition.get("kafka_topic")
    number = _number(partition.get("kafka_partition"))
    if set(partition) != {"kafka_topic", "kafka_partition"} or not isinstance(topic, str) or number is None:
        raise RequestRefused(BAD_REQUEST, 'the partition of a sink is {"kafka_topic": name, "kafka_partition": number}')
    if log.topic(topic) is None or number >= log.partition_count(topic):
        raise RequestRefused(BAD_REQUEST, f'there is no partition {number} of a topic "{topic}"')
    if offset is None:
        return TopicPartition(topic, number), log.offsets(topic, number).log_start_offset
    at = _number(offset.get("kafka_offset"))
    if set(offset) != {"kafka_offset"} or at is None:
        raise RequestRefused(BAD_REQUEST, 'the offset of a sink is {"kafka_offset": number}, not negative')
    return TopicPartition(topic, number), at


def _number(value: Any) -> int | None:
    """Also one that is written as a text, as Kafka Connect takes it; None if it is none, or negative."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= _DIGITS_MAX:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MAX:
        return None
    return value
