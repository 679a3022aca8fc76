"""The sink `mqtt`: sends a message for each record. At least once: it repeats a message if the outcome is unknown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from ....logcore.client import TopicPartition
from ....logcore.failpoints import fp
from ..connector import ConnectRecord, Guarantee, RecordsRefused, SinkConnector, TaskInfo
from ..connector_errors import InvalidConnector
from ..connector_settings import setting
from ..converters import json_text
from ..mqtt_session import MqttSession, MqttSettings

_NO_TOPIC: Final = "its key cannot be part of a topic of MQTT"


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
        sent = [(self._topic(record), record) for record in records if record.value is not None or retain]
        refused = [(record, _NO_TOPIC) for topic, record in sent if not _is_topic(topic)]
        if refused:
            raise RecordsRefused(refused, others_written=False, hint="Change mqtt.topic or the key.")
        under_way = [
            self._session.publish(topic, _payload(record.value), self._settings.mqtt_qos, retain=retain)
            for topic, record in sent
        ]
        self._session.sent(under_way, self._settings.mqtt_connect_timeout_seconds)
        fp("connect.mqtt_after_publish")

    def close(self) -> None:
        self._session.close()

    def _topic(self, record: ConnectRecord) -> str:
        key = record.key if isinstance(record.key, str) else json_text(record.key)
        return self._settings.mqtt_topic.replace("${topic}", record.topic).replace("${key}", key)


def _is_topic(name: str) -> bool:
    return bool(name) and not any(sign in name for sign in "+#\0") and len(name.encode()) <= 65_535


def _payload(value: object) -> bytes:
    if value is None:
        return b""
    return (
        value if isinstance(value, bytes) else value.encode() if isinstance(value, str) else json_text(value).encode()
    )
