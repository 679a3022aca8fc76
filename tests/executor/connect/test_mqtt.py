"""Messages of a real broker in topics, and records in the broker."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from certificates import make_certificates
from connectors import read_topic
from mosquitto_server import Mosquitto, mosquitto_server
from waiting import eventually

from millstream.executor.connect.connector import TaskInfo
from millstream.executor.connect.connector_errors import ConnectorFailed, InvalidConnector, SystemUnavailable
from millstream.executor.connect.connector_settings import read_settings
from millstream.testing import ConnectorSandbox

pytest.importorskip("paho.mqtt.client")
from paho.mqtt import publish, subscribe

from millstream.executor.connect.sinks.mqtt_sink import MqttSink, MqttSinkSettings
from millstream.executor.connect.sources.mqtt_source import MqttSource, MqttSourceSettings


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    with mosquitto_server(tmp_path_factory.mktemp("mosquitto")) as started:
        yield started


@pytest.fixture(autouse=True)
def unused_session(request: pytest.FixtureRequest) -> str:
    """A name of a session that no other test has."""
    return f"c{abs(hash(request.node.nodeid))}"


def source(broker: Mosquitto, session: str, topics: str, **more: str) -> ConnectorSandbox:
    config = {"mqtt.server.uri": broker.uri, "mqtt.topics": topics, "kafka.topic": "t", "mqtt.client.id": session,
              "key.converter": "string", "value.converter": "string",
              **{name.replace("_", "."): value for name, value in more.items()}}  # fmt: skip
    return ConnectorSandbox(MqttSource, config)


def send(broker: Mosquitto, *messages: tuple[str, str], qos: int = 1, retain: bool = False) -> None:
    sent: list[Any] = [{"topic": topic, "payload": text, "qos": qos, "retain": retain} for topic, text in messages]
    publish.multiple(sent, hostname="127.0.0.1", port=broker.port)


def taken(box: ConnectorSandbox, count: int) -> list[tuple[str, Any]]:
    """What is there once it is as much."""

    def found() -> list[tuple[str, Any]]:
        box.run()
        return [(record.key, record.value) for record in box.records("t")]

    eventually(lambda: len(found()) >= count, 30)
    return found()


@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_messages_of_topics_with_wildcards_are_records(broker: Mosquitto, unused_session: str, qos: str) -> None:
    place = f"w{qos}"
    with source(broker, unused_session, f"{place}/+/temp, {place}/door/#", mqtt_qos=qos) as box:
        box.run()
        send(broker, (f"{place}/a/temp", "1"), (f"{place}/a/other", "no"), (f"{place}/door/x/y", "2"), qos=int(qos))
        assert taken(box, 2) == [(f"{place}/a/temp", "1"), (f"{place}/door/x/y", "2")]


def test_the_broker_keeps_what_comes_while_the_task_is_away_also_where_it_restarts(
    broker: Mosquitto, unused_session: str
) -> None:
    with source(broker, unused_session, "away/#") as box:
        box.run()
        box.restart()
        send(broker, *(("away/a", str(number)) for number in range(50)))
        broker.stop()
        broker.start()
        assert [value for _, value in taken(box, 50)] == [str(number) for number in range(50)]


@pytest.mark.parametrize("point", ["after_read", "after_records", "after_position"])
def test_a_message_is_acknowledged_once_it_is_committed(broker: Mosquitto, unused_session: str, point: str) -> None:
    with source(broker, unused_session, f"{point}/#") as box:
        box.run()
        box.kill_at(point)
        send(broker, *((f"{point}/a", str(number)) for number in range(5)))
        assert {value for _, value in taken(box, 5)} == {"0", "1", "2", "3", "4"}
        assert box.deaths == 1


def test_retained_messages_come_once_and_an_empty_one_deletes(broker: Mosquitto, unused_session: str) -> None:
    send(broker, ("kept/a", "1"), retain=True)
    with source(broker, unused_session, "kept/#") as box:
        assert taken(box, 1) == [("kept/a", "1")]
        assert box.records("t")[0].headers == (("mqtt.retained", b"true"),)
        box.restart()
        send(broker, ("kept/a", ""), retain=True)
        assert taken(box, 2) == [("kept/a", "1"), ("kept/a", None)]


def test_what_is_no_json_stops_the_task_or_is_a_dead_letter(broker: Mosquitto, unused_session: str) -> None:
    settings = {"format": "json", "value_converter": "json", "max_payload_bytes": "20"}
    dead = {"errors_tolerance": "all", "errors_deadletterqueue_topic_name": "dead"}
    with source(broker, unused_session, "json/#", **settings, **dead) as box:
        box.run()
        send(broker, ("json/a", "{no"), ("json/a", '"' + "x" * 30 + '"'), ("json/a", '{"n": 1}'))
        assert taken(box, 1) == [("json/a", {"n": 1})]
        assert [(letter.key, (letter.value or b"")[:4]) for letter in read_topic(box.log, "dead")] == [
            (b"json/a", b"{no"), (b"json/a", b'"xxx')]  # fmt: skip
    with source(broker, f"{unused_session}x", "json2/#", **settings) as box:
        box.run()
        send(broker, ("json2/a", "{no"))
        with pytest.raises(ConnectorFailed, match="the topic json2/a cannot be written"):
            taken(box, 1)


def test_records_are_messages_and_tombstones_take_back_what_is_retained(broker: Mosquitto) -> None:
    config = {"mqtt.server.uri": broker.uri, "topics": "t", "mqtt.topic": "out/${topic}/${key}", "mqtt.qos": "2",
              "mqtt.retained.enabled": "true", "key.converter": "string"}  # fmt: skip
    with ConnectorSandbox(MqttSink, config) as box:
        for number in range(3):
            box.produce("t", f"k{number}", {"n": number})
        box.produce("t", "k0", None)
        box.kill_at("mqtt_after_publish")
        box.run()
        assert box.deaths == 1
        found: Any = subscribe.simple("out/#", hostname="127.0.0.1", port=broker.port, msg_count=2, qos=1)
        assert sorted((message.topic, bytes(message.payload)) for message in found) == [
            ("out/t/k1", b'{"n":1}'), ("out/t/k2", b'{"n":2}')]  # fmt: skip
        box.produce("t", "a/#", {"n": 1})
        with pytest.raises(ConnectorFailed, match="cannot be part of a topic of MQTT"):
            box.run()


def test_a_key_that_is_no_topic_makes_a_dead_letter(broker: Mosquitto) -> None:
    config = {"mqtt.server.uri": broker.uri, "topics": "t", "mqtt.topic": "lost/${key}", "key.converter": "string",
              "mqtt.retained.enabled": "true", "errors.tolerance": "all",
              "errors.deadletterqueue.topic.name": "letters"}  # fmt: skip
    with ConnectorSandbox(MqttSink, config) as box:
        for key in ("a", "b/#", "c"):
            box.produce("t", key, {"n": 1})
        box.run()
        found: Any = subscribe.simple("lost/#", hostname="127.0.0.1", port=broker.port, msg_count=2, qos=1)
        assert sorted(message.topic for message in found) == ["lost/a", "lost/c"]
        assert [letter.key for letter in read_topic(box.log, "letters")] == [b"b/#"]


def test_users_passwords_and_certificates(tmp_path: Path, unused_session: str) -> None:
    tool = shutil.which("mosquitto_passwd")
    if tool is None:
        pytest.skip("mosquitto_passwd is not installed")
    make_certificates(tmp_path)
    (tmp_path / "users").touch(0o600)
    subprocess.run([tool, "-b", str(tmp_path / "users"), "ana", "geheim"], check=True, capture_output=True)
    lines = ("allow_anonymous false", f"password_file {tmp_path}/users", f"certfile {tmp_path}/server.pem",
             f"keyfile {tmp_path}/server.key")  # fmt: skip
    with mosquitto_server(tmp_path, *lines) as secured:
        uri = {"mqtt_server_uri": f"ssl://127.0.0.1:{secured.port}", "mqtt_ssl_ca_file": f"{tmp_path}/ca.pem"}
        with source(secured, unused_session, "x", **uri, mqtt_username="ana", mqtt_password="geheim") as box:
            box.run()
        with source(secured, unused_session, "x", **uri, mqtt_username="ana", mqtt_password="falsch") as box:
            with pytest.raises(ConnectorFailed, match="refused") as caught:
                box.run()
            assert "falsch" not in str(caught.value)
        untrusted = {"mqtt_server_uri": uri["mqtt_server_uri"]}
        with source(secured, unused_session, "x", **untrusted) as box, pytest.raises(SystemUnavailable):
            box.run()


@pytest.mark.parametrize(
    ("kind", "changed", "name"),
    [
        (MqttSourceSettings, {"mqtt.server.uri": "http://h"}, "mqtt.server.uri"),
        (MqttSourceSettings, {"mqtt.server.uri": "tcp://h:port"}, "mqtt.server.uri"),
        (MqttSourceSettings, {"mqtt.qos": "3"}, "mqtt.qos"),
        (MqttSourceSettings, {"mqtt.keepalive.interval.seconds": "-1"}, "mqtt.keepalive.interval.seconds"),
        (MqttSinkSettings, {"mqtt.keepalive.interval.seconds": "65536"}, "mqtt.keepalive.interval.seconds"),
        (MqttSourceSettings, {"mqtt.topics": "a/#/b"}, "mqtt.topics"),
        (MqttSourceSettings, {"mqtt.topics": "a+"}, "mqtt.topics"),
        (MqttSourceSettings, {"mqtt.topics": ""}, "mqtt.topics"),
        (MqttSinkSettings, {"mqtt.topic": "a/#"}, "mqtt.topic"),
        (MqttSinkSettings, {"mqtt.ssl.key.file": "/k"}, "mqtt.ssl.certificate.file"),
    ],
)
def test_an_error_points_at_its_property(kind: type[Any], changed: dict[str, str], name: str) -> None:
    with pytest.raises(InvalidConnector) as caught:
        read_settings(kind, {"mqtt.server.uri": "tcp://h", "mqtt.topics": "a", **changed})
    assert caught.value.setting == name


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({}, ["millstream-out-0", "millstream-out-1", "millstream-out-2"]),
        ({"mqtt.client.id": "bridge"}, ["bridge", "bridge-1", "bridge-2"]),
    ],
)
def test_each_task_of_a_sink_has_a_session_of_its_own(given: dict[str, str], names: list[str]) -> None:
    """A broker ends a connection when another one has its name: the tasks would take turns in that forever."""
    settings = read_settings(MqttSinkSettings, {"mqtt.server.uri": "tcp://localhost", **given})
    assert [settings.of_task(TaskInfo("out", number)).client_id("out") for number in range(3)] == names
