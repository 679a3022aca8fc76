"""The sink `mqtt`: sends a message for each record. At least once: it repeats a message if the outcome is unknown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from ....logcore.client import TopicPartition
from ....logcore.failpoints import fp
from ..connector import ConnectRecord, Guarantee, SinkConnector, TaskInfo
from ..connector_errors import ConnectorFailed, InvalidConnector
from ..connector_settings import setting
from ..converters import json_text
from ..mqtt_session import MqttSession, MqttSettings


@dataclass(frozen=True)
class MqttSinkSettings(MqttSettings):
    mqtt_topic: str = setting("Topic of MQTT; ${topic} and ${key} are those of the record.", default="${topic}")
    mqtt_retained_enabled: bool = setting(
        "The broker keeps the last message of each topic, and a tombstone takes it back.", default=False
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.mqtt_topic or any(sign in self.mqtt_topic for sign in "+#\0"):
            raise InvalidConnector("mqtt.topic must be a topic of MQTT, without + and #", setting="mqtt.topic")

    def of_task(self, task: TaskInfo) -> MqttSinkSettings:
        """The settings with a session of the task's own: a broker ends a connection when another one has its name."""
        if self.mqtt_client_id is None:
            return replace(self, mqtt_client_id=f"millstream-{task.connector}-{task.number}")
        return self if task.number == 0 else replace(self, mqtt_client_id=f"{self.mqtt_client_id}-{task.number}")


class MqttSink(SinkConnector):
    """Messages to an MQTT broker. State: the connection."""

    settings = MqttSinkSettings
    guarantee: ClassVar[Guarantee] = "at least once"
    batch_records: ClassVar[int] = 1000
    kill_points: ClassVar[tuple[str, ...]] = ("mqtt_after_publish",)

    def __init__(self, settings: MqttSinkSettings, task: TaskInfo) -> None:
        self._settings = settings
        self._session = MqttSession(settings.of_task(task), task.connector, task.clock, clean=True)

    def write(self, records: Sequence[ConnectRecord], positions: Mapping[TopicPartition, int]) -> None:
        del positions
        retain = self._settings.mqtt_retained_enabled
        under_way = [
            self._session.publish(self._topic(record), _payload(record.value), self._settings.mqtt_qos, retain=retain)
            for record in records
            if record.value is not None or retain
        ]
        self._session.sent(under_way, self._settings.mqtt_connect_timeout_seconds)
        fp("connect.mqtt_after_publish")

    def close(self) -> None:
        self._session.close()

    def _topic(self, record: ConnectRecord) -> str:
        """The MQTT topic for the record. Raises `ConnectorFailed`."""
        key = record.key if isinstance(record.key, str) else json_text(record.key)
        topic = self._settings.mqtt_topic.replace("${topic}", record.topic).replace("${key}", key)
        if not topic or any(sign in topic for sign in "+#\0") or len(topic.encode()) > 65_535:
            raise ConnectorFailed(
                f"the record at {record.topic}, partition {record.partition}, offset {record.offset} has a key that "
                "cannot be part of a topic of MQTT",
                hint="Change mqtt.topic or the key.",
            )
        return topic


def _payload(value: object) -> bytes:
    if value is None:
        return b""
    return (
        value if isinstance(value, bytes) else value.encode() if isinstance(value, str) else json_text(value).encode()
    )
