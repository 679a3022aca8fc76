"""The statements about connectors, one after the other, against whatever speaks Kafka Connect's REST API."""

from __future__ import annotations

from typing import Any

import pytest
from waiting import eventually, without_error

from millstream.errors import MillstreamError
from millstream.server.engine.embedded import EmbeddedEngine
from millstream.server.engine.session import Session
from millstream.server.handlers.connectors import ConnectorExists, UnknownConnector


def run(engine: EmbeddedEngine, text: str) -> Any:
    """The answer of one statement."""
    (entity,) = engine.execute(text, Session())
    return entity.as_json()


def live_of_a_connector(engine: EmbeddedEngine, config: dict[str, str], changed: tuple[str, str], kind: str) -> None:
    """From CREATE to DROP. In: `changed`: a setting, and what ALTER makes of it."""
    pairs = ", ".join(f"'{name}'='{value}'" for name, value in config.items())
    create = f"CREATE {kind} CONNECTOR gen WITH ({pairs});"
    created = without_error(lambda: run(engine, create), MillstreamError)
    assert (created["@type"], created["info"]["name"], created["info"]["type"]) == (
        "connector_info", "GEN", kind.lower(),
    )  # fmt: skip
    assert created["info"]["config"] == {**config, "name": "GEN"}
    with pytest.raises(ConnectorExists, match="Connector GEN already exists"):
        run(engine, create)
    again = run(engine, create.replace("CONNECTOR gen", "CONNECTOR IF NOT EXISTS gen"))
    assert (again["@type"], again["message"]) == ("warning_entity", "Connector GEN already exists")

    def state() -> str:
        (line,) = run(engine, "SHOW CONNECTORS;")["connectors"]
        assert (line["name"], line["type"], line["className"]) == ("GEN", kind.lower(), config["connector.class"])
        return line["state"]

    assert run(engine, "DESCRIBE CONNECTOR gen;")["status"]["name"] == "GEN"
    eventually(lambda: state() == "RUNNING (1/1 tasks RUNNING)")
    assert run(engine, "SHOW SINK CONNECTORS;")["connectors"] == [] or kind == "SINK"
    described = run(engine, "DESCRIBE CONNECTOR gen;")
    assert described["@type"] == "connector_description"
    assert (described["connectorClass"], described["status"]["connector"]["state"]) == (
        config["connector.class"], "RUNNING",
    )  # fmt: skip
    assert {**described["config"], **config} == described["config"]
    assert not run(engine, "EXPLAIN STALL CONNECTOR gen;")["stalled"]
    plugins = {plugin["className"] for plugin in run(engine, "LIST CONNECTOR PLUGINS;")["connectorPlugins"]}
    assert config["connector.class"] in plugins

    for statement, wanted in (("PAUSE", "PAUSED"), ("RESUME", "RUNNING"), ("RESTART", "RUNNING")):
        assert run(engine, f"{statement} CONNECTOR gen;")["commandStatus"]["status"] == "SUCCESS"
        eventually(lambda wanted=wanted: state().startswith(f"{wanted} ("), otherwise=f"not {wanted}")
    altered = run(engine, f"ALTER CONNECTOR gen WITH ('{changed[0]}'='{changed[1]}');")
    assert altered["info"]["config"] == {**config, changed[0]: changed[1], "name": "GEN"}

    dropped = run(engine, "DROP CONNECTOR gen;")
    assert (dropped["@type"], dropped["connectorName"]) == ("drop_connector", "GEN")
    with pytest.raises(UnknownConnector, match="Connector GEN does not exist"):
        run(engine, "DROP CONNECTOR gen;")
    assert run(engine, "DROP CONNECTOR IF EXISTS gen;")["message"] == "Connector 'GEN' does not exist."
    assert run(engine, "SHOW CONNECTORS;")["connectors"] == []
