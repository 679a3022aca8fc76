"""The source `mqtt`: reads messages of an MQTT broker. At least once: it acknowledges messages after their commit.

The broker keeps the session while the task does not run, and sends messages again that were not acknowledged. QoS 2 is
received as QoS 1: with the packets of QoS 2, a message would for some time only be in the memory of this process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import structlog
from paho.mqtt.client import MQTTMessage, topic_matches_sub

from ..connector import Chunk, ConnectRecord, Guarantee, Position, RefusedRecord, SourceConnector, TaskInfo
from ..connector_errors import InvalidConnector
from ..connector_settings import setting
from ..mqtt_session import MqttSession, MqttSettings
from .json_pointers import exact_json

_MESSAGES_MAX: Final = 1000
_TOPIC_BYTES_MAX: Final = 65_535
_log = structlog.get_logger("millstream.connect")


@dataclass(frozen=True)
class MqttSourceSettings(MqttSettings):
    mqtt_topics: tuple[str, ...] = setting("Topics of MQTT, + and # among them.", default=())
    kafka_topic: str = setting("Topic that is written; keys are the topics of MQTT.", default="mqtt")
    format: str = setting(
        "What a value is: the bytes as they came, or JSON, for transforms.", default="raw", choices=("raw", "json")
    )
    max_payload_bytes: int = setting("A longer message is wrong.", default=1_000_000)

    def __post_init__(self) -> None:
        super().__post_init__()
        for topic in self.mqtt_topics or ("",):
            if not _is_filter(topic):
                raise InvalidConnector(f'mqtt.topics has "{topic}", which is no topic of MQTT', setting="mqtt.topics")


class MqttSource(SourceConnector):
    """Messages of an MQTT broker. State: the connection, and the messages that are not committed yet."""

    settings = MqttSourceSettings
    guarantee: ClassVar[Guarantee] = "at least once"

    def __init__(self, settings: MqttSourceSettings, task: TaskInfo) -> None:
        self._settings = settings
        self._under_way: list[MQTTMessage] = []
        self._subscribed = False
        self._session = MqttSession(settings, task.connector, task.clock, clean=False, take=True)

    def read(self, position: Position | None, timeout_s: float) -> Chunk | None:
        wanted = {"topics": list(self._settings.mqtt_topics), "qos": min(self._settings.mqtt_qos, 1)}
        if not self._subscribed:
            self._subscribe(wanted, position)
        self._session.wait(0 if self._session.came else timeout_s)
        while 0 < len(self._session.came) < _MESSAGES_MAX:
            before = len(self._session.came)
            self._session.wait(0)
            if len(self._session.came) == before:
                break
        came, self._session.came = self._session.came, []
        if not came:
            return None
        self._under_way += came
        count = 0 if position is None else position["messages"]
        records, refused = self._records(came)
        return Chunk(records, {"messages": count + len(came), **wanted}, refused=refused)

    def acknowledge(self, position: Position) -> None:
        under_way, self._under_way = self._under_way, []
        for message in under_way:
            self._session.done(message)

    def close(self) -> None:
        self._session.close()

    @classmethod
    def keeps(cls, settings: MqttSourceSettings, task: TaskInfo) -> str | None:
        broker = f"{settings.address.hostname}:{settings.address.port or ''}".rstrip(":")
        return f"the session {settings.client_id(task.connector)} of the MQTT broker {broker}, which keeps messages,"

    @classmethod
    def forget(cls, settings: MqttSourceSettings, task: TaskInfo) -> None:
        MqttSession(settings, task.connector, task.clock, clean=True).close()

    def _subscribe(self, wanted: dict[str, Any], position: Position | None) -> None:
        """Subscribes, unless the session already has these topics: the broker would send retained messages again."""
        known = None if position is None else {name: position[name] for name in wanted}
        if not (self._session.present and known == wanted):
            timeout_s = self._settings.mqtt_connect_timeout_seconds
            self._session.subscribe(self._settings.mqtt_topics, wanted["qos"], timeout_s)
        self._subscribed = True

    def _records(self, came: Sequence[MQTTMessage]) -> tuple[list[ConnectRecord], list[RefusedRecord]]:
        records: list[ConnectRecord] = []
        refused: list[RefusedRecord] = []
        topic = self._settings.kafka_topic
        for message in came:
            if not any(topic_matches_sub(wanted, message.topic) for wanted in self._settings.mqtt_topics):
                continue  # of topics that ALTER CONNECTOR has removed, but which the session still has
            try:
                value = self._value(bytes(message.payload))
            except ValueError as error:
                reason = f"a message of the topic {message.topic} cannot be written: {error}"
                raw = bytes(message.payload)[: self._settings.max_payload_bytes]
                refused.append(RefusedRecord(topic, raw, reason, "Set format=raw.", message.topic.encode()))
                continue
            headers = (("mqtt.retained", b"true"),) if message.retain else ()
            records.append(ConnectRecord(topic, message.topic, value, headers=headers))
        return records, refused

    def _value(self, payload: bytes) -> Any:
        """The value of a message. An empty message, which removes a retained one, deletes the key. Raises
        ValueError."""
        if len(payload) > self._settings.max_payload_bytes:
            raise ValueError(f"it is longer than {self._settings.max_payload_bytes} bytes")
        if not payload:
            return None
        return exact_json(payload) if self._settings.format == "json" else payload


def _is_filter(topic: str) -> bool:
    levels = topic.split("/")
    return (
        0 < len(topic.encode(errors="replace")) <= _TOPIC_BYTES_MAX
        and "\0" not in topic
        and all("+" not in level or level == "+" for level in levels)
        and all("#" not in level or (level == "#" and number == len(levels) - 1) for number, level in enumerate(levels))
    )
