"""The example of MQTT in docs/connectors.md, against a real broker."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mosquitto_server import mosquitto_server
from repository import REPOSITORY
from waiting import eventually

from millstream.server.engine.embedded import open_engine
from millstream.server.engine.session import Session

publish = pytest.importorskip("paho.mqtt.publish")
subscribe = pytest.importorskip("paho.mqtt.subscribe")


def test_the_example_brings_messages_in_and_records_out(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "connectors.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^## MQTT\n\n```sql\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    properties = {"millstream.executor": "duckdb", "auto.offset.reset": "earliest"}
    with mosquitto_server(tmp_path) as broker, open_engine(tmp_path / "data", properties, sync="never") as engine:
        engine.execute(block.replace("1883", str(broker.port)), Session())
        message = {"topic": "site/roof/temperature", "payload": '{"celsius": 21.5}', "qos": 1, "retain": True}
        publish.multiple([message], hostname="127.0.0.1", port=broker.port)
        text = "SELECT place, celsius FROM temperatures;"
        expected = [["site/roof/temperature", 21.5]]
        eventually(lambda: [list(row.values) for row in engine.query(text, Session())] == expected)
        engine.execute("ALTER CONNECTOR board WITH ('mqtt.retained.enabled'='true');", Session())
        publish.multiple([message], hostname="127.0.0.1", port=broker.port)
        found = subscribe.simple("board/#", hostname="127.0.0.1", port=broker.port, qos=1)
        assert (found.topic, bytes(found.payload)) == ("board/site/roof/temperature", b'{"celsius": 21.5}')
