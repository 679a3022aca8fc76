"""A connection to an MQTT broker (3.1.1), driven by the thread that uses it. Unread messages stay in the broker."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from paho.mqtt.client import Client, MQTTErrorCode, MQTTMessage, MQTTMessageInfo, error_string
from paho.mqtt.enums import CallbackAPIVersion

from .connector_errors import ConnectorFailed, InvalidConnector, SystemUnavailable
from .connector_settings import setting
from .task_clock import TaskClock

URI: Final = "mqtt.server.uri"
_PORTS: Final = {"tcp": 1883, "mqtt": 1883, "ssl": 8883, "mqtts": 8883}
_NOT_ALLOWED: Final = frozenset({"Bad user name or password", "Not authorized", "Client identifier not valid",
                                 "Unsupported protocol version"})  # fmt: skip
_REFUSED_FROM: Final = 128
_IN_FLIGHT_MAX: Final = 100
_LOOP_S: Final = 0.5
_KEEPALIVE_MAX: Final = 65_535


@dataclass(frozen=True)
class MqttSettings:
    """The settings of both source and sink."""

    mqtt_server_uri: str = setting("Broker: tcp://host:1883, or ssl://host:8883 for TLS.")
    mqtt_username: str | None = setting("User.", default=None)
    mqtt_password: str | None = setting("Password.", default=None, secret=True)
    mqtt_client_id: str | None = setting(
        "Name of the session in the broker; without it millstream- and the connector's name.", default=None
    )
    mqtt_connect_timeout_seconds: int = setting("How long to wait for the broker.", default=30)
    mqtt_keepalive_interval_seconds: int = setting("How often to say that the connection lives.", default=60)
    mqtt_ssl_ca_file: str | None = setting("Certificates to trust, in place of the system's.", default=None)
    mqtt_ssl_certificate_file: str | None = setting("Certificate to show.", default=None)
    mqtt_ssl_key_file: str | None = setting("Its private key.", default=None)
    mqtt_qos: int = setting("Quality of service: 0, 1 or 2.", default=1)

    def __post_init__(self) -> None:
        self.address  # noqa: B018 - it is looked at
        if self.mqtt_qos not in (0, 1, 2):
            raise InvalidConnector(f"mqtt.qos is {self.mqtt_qos}, but must be 0, 1 or 2", setting="mqtt.qos")
        if self.mqtt_connect_timeout_seconds < 1:
            raise InvalidConnector("mqtt.connect.timeout.seconds is too small", setting="mqtt.connect.timeout.seconds")
        if not 0 <= self.mqtt_keepalive_interval_seconds <= _KEEPALIVE_MAX:
            raise InvalidConnector(
                f"mqtt.keepalive.interval.seconds must be from 0 to {_KEEPALIVE_MAX}",
                setting="mqtt.keepalive.interval.seconds",
            )
        if self.mqtt_ssl_key_file is not None and self.mqtt_ssl_certificate_file is None:
            raise InvalidConnector("mqtt.ssl.certificate.file is missing", setting="mqtt.ssl.certificate.file")

    def client_id(self, connector: str) -> str:
        return self.mqtt_client_id or f"millstream-{connector}"

    @property
    def address(self) -> SplitResult:
        """The broker's address. Raises `InvalidConnector`."""
        with contextlib.suppress(ValueError):
            parts = urlsplit(self.mqtt_server_uri)
            if parts.scheme in _PORTS and parts.hostname and parts.port != 0:
                return parts
        raise InvalidConnector(f"{URI} must look like tcp://host:1883 or ssl://host:8883", setting=URI)


class MqttSession:
    """One connection, and the session that the broker keeps for it.

    State: `came`: messages that arrived and were not taken yet; `present`: whether the broker had the session.
    """

    def __init__(
        self, settings: MqttSettings, connector: str, clock: TaskClock, *, clean: bool, take: bool = False
    ) -> None:
        """In: `clean`: whether the broker should delete the session; `take`: whether to receive messages, which `done`
        acknowledges. Raises `ConnectorFailed`, `SystemUnavailable`."""
        self.present = False
        self.came: list[MQTTMessage] = []
        self._clock = clock
        self._connected: str | None = None
        self._granted: list[int] | None = None
        self._server = f"the broker {settings.address.hostname}"
        self._client = Client(
            CallbackAPIVersion.VERSION2,
            settings.client_id(connector),
            clean_session=clean,
            manual_ack=True,
            reconnect_on_failure=False,
        )
        self._client.max_inflight_messages_set(_IN_FLIGHT_MAX)
        if settings.mqtt_username is not None:
            self._client.username_pw_set(settings.mqtt_username, settings.mqtt_password)
        self._client.on_connect = self._on_connect
        self._client.on_subscribe = self._on_subscribe
        if take:
            self._client.on_message = lambda client, data, message: self.came.append(message)
        self._connect(settings)

    def subscribe(self, topics: Sequence[str], qos: int, timeout_s: float) -> None:
        """Raises `ConnectorFailed` for topics that the broker refuses."""
        self._granted = None
        self._client.subscribe([(topic, qos) for topic in topics])
        self._until(lambda: self._granted is not None, timeout_s, "does not answer")
        refused = [topic for topic, code in zip(topics, self._granted or (), strict=True) if code >= _REFUSED_FROM]
        if refused:
            raise ConnectorFailed(
                f"{self._server} refuses the topic {refused[0]}", hint="Change mqtt.topics, or the broker's rights."
            )

    def publish(self, topic: str, payload: bytes, qos: int, *, retain: bool) -> MQTTMessageInfo:
        """Raises ValueError for an invalid topic or a payload that is too long."""
        return self._client.publish(topic, payload, qos, retain)

    def sent(self, messages: Sequence[MQTTMessageInfo], timeout_s: float) -> None:
        """Waits until the broker has acknowledged the messages. Raises `SystemUnavailable`."""
        for message in messages:
            self._until(message.is_published, timeout_s, "acknowledges nothing")

    def wait(self, timeout_s: float) -> None:
        """Sends and receives packets. Raises `SystemUnavailable`."""
        code = self._client.loop(timeout_s)
        if code != MQTTErrorCode.MQTT_ERR_SUCCESS:
            raise SystemUnavailable(f"{self._server} ended the connection: {error_string(code)}")

    def done(self, message: MQTTMessage) -> None:
        """Acknowledges the message, so that the broker may delete it."""
        self._client.ack(message.mid, message.qos)

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._client.disconnect()

    def _connect(self, settings: MqttSettings) -> None:
        parts = settings.address
        try:
            if parts.scheme in ("ssl", "mqtts"):
                self._client.tls_set_context(_tls(settings))
            self._client.connect_timeout = settings.mqtt_connect_timeout_seconds
            self._client.connect(
                parts.hostname or "", parts.port or _PORTS[parts.scheme], settings.mqtt_keepalive_interval_seconds
            )
            self._until(lambda: self._connected is not None, settings.mqtt_connect_timeout_seconds, "does not answer")
        except (OSError, ValueError) as error:
            raise SystemUnavailable(f"{self._server} does not answer: {error}") from None
        if self._connected in _NOT_ALLOWED:
            raise ConnectorFailed(
                f"{self._server} refused: {self._connected}",
                hint="Change mqtt.username, mqtt.password or mqtt.client.id.",
            )
        if self._connected != "Success":
            raise SystemUnavailable(f"{self._server} refused: {self._connected}")

    def _until(self, holds: Callable[[], bool], timeout_s: float, otherwise: str) -> None:
        deadline = self._clock.monotonic() + timeout_s
        while not holds():
            code = self._client.loop(_LOOP_S)
            if self._connected is not None and self._connected != "Success":
                return
            if code != MQTTErrorCode.MQTT_ERR_SUCCESS or self._clock.monotonic() > deadline:
                raise SystemUnavailable(f"{self._server} {otherwise}")

    def _on_connect(self, client: Client, data: Any, flags: Any, code: Any, properties: Any) -> None:
        del client, data, properties
        self._connected, self.present = str(code), bool(flags.session_present)

    def _on_subscribe(self, client: Client, data: Any, mid: int, codes: Sequence[Any], properties: Any) -> None:
        del client, data, mid, properties
        self._granted = [code.value for code in codes]


def _tls(settings: MqttSettings) -> ssl.SSLContext:
    """Raises `ConnectorFailed` for a file that cannot be read."""
    try:
        context = ssl.create_default_context(cafile=settings.mqtt_ssl_ca_file)
        if settings.mqtt_ssl_certificate_file is not None:
            context.load_cert_chain(settings.mqtt_ssl_certificate_file, settings.mqtt_ssl_key_file)
    except OSError as error:
        raise ConnectorFailed(
            f"a certificate or key cannot be read: {error.strerror or error}",
            hint="Look at mqtt.ssl.ca.file, mqtt.ssl.certificate.file and mqtt.ssl.key.file.",
        ) from None
    return context
