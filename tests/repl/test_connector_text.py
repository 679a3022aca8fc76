"""Answers about connectors, as the shell prints them."""

from __future__ import annotations

from pathlib import Path

from waiting import eventually

from millstream.repl.text.entity_text import entity_lines
from millstream.server.engine.embedded import open_engine
from millstream.server.engine.session import Session

CREATE = """CREATE SOURCE CONNECTOR gen WITH ('connector.class'='datagen', 'quickstart'='users', 'kafka.topic'='users',
    'max.interval'=0, 'iterations'=7, 'pasword'='x');"""


def test_a_connector_is_shown_as_text(tmp_path: Path) -> None:
    with open_engine(tmp_path, {"millstream.executor": "duckdb"}, sync="never") as engine:

        def shown(text: str) -> str:
            entities = engine.execute(text, Session())
            return "\n".join(line.rstrip() for entity in entities for line in entity_lines(entity.as_json(), None))

        created = shown(CREATE).splitlines()
        assert created[:2] == ["Connector GEN runs, with 1 task.", "warning: pasword has no effect."]
        (sealed,) = created[2:]  # a misspelt password is a secret, too
        assert sealed.startswith("warning: pasword is written out in the statement. It was sealed.")
        eventually(lambda: engine.connectors.status("GEN").tasks[0].records == 7)
        listed = shown("SHOW CONNECTORS;")
        assert "GEN" in listed and "RUNNING (1/1 tasks RUNNING)" in listed
        described = shown("DESCRIBE CONNECTOR gen;")
        assert "Guarantee : transactional\nTopics    : users" in described
        assert "********" in described and "pasword" in described
        assert shown("SHOW CONNECTOR PLUGINS;").count("source") >= 3
        assert shown("DROP CONNECTOR gen;") == "Dropped connector GEN."
