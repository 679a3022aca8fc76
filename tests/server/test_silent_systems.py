"""Statements about a connector whose other system takes connections and never answers: nobody else waits for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from silent_server import SilentServer
from waiting import eventually

from millstream.server.engine.embedded import EmbeddedEngine, open_engine
from millstream.server.engine.session import Session

DUCKDB = {"millstream.executor": "duckdb", "auto.offset.reset": "earliest"}
OTHERS_S = 1.0
"""What an answer to somebody else may take on a busy machine."""
ANSWER_S = 6.0


@pytest.fixture
def silent() -> Iterator[SilentServer]:
    with SilentServer() as server:
        yield server


@pytest.fixture
def engine(tmp_path: Path, silent: SilentServer) -> Iterator[EmbeddedEngine]:
    """A sink waits for the answer to its first record."""
    with open_engine(tmp_path, DUCKDB, sync="never") as opened:
        run(opened, "CREATE SECRET token ('value'='first one');")
        run(opened, "CREATE STREAM s (n INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);")
        run(opened, "INSERT INTO s (n) VALUES (1);")
        run(opened, sink(silent))
        eventually(lambda: silent.taken == 1, otherwise="the sink has not sent its record")
        yield opened


def sink(silent: SilentServer, **more: str) -> str:
    config = {
        "connector.class": "http", "http.api.url": silent.url, "topics": "s", "headers": "a: ${secret:token}",
        "request.timeout.ms": "60000", **more,
    }  # fmt: skip
    given = ", ".join(f"'{name}'='{value}'" for name, value in config.items())
    return f"CREATE SINK CONNECTOR h WITH ({given});"


def run(engine: EmbeddedEngine, text: str) -> list[dict[str, Any]]:
    return [entity.as_json() for entity in engine.execute(text, Session())]


@pytest.mark.parametrize(
    ("statement", "waits"),
    [
        ("ALTER CONNECTOR h WITH ('request.method'='PUT');", True),
        ("PAUSE CONNECTOR h;", False),
        ("RESTART CONNECTOR h;", True),
        ("DROP CONNECTOR h;", True),
        ("CREATE OR REPLACE SECRET token ('value'='second one');", True),
    ],
)
def test_statements_of_others_go_on_while_a_task_does_not_end(
    engine: EmbeddedEngine, statement: str, waits: bool
) -> None:
    answers: list[list[dict[str, Any]]] = []
    begin = time.monotonic()
    changing = threading.Thread(target=lambda: answers.append(run(engine, statement)))
    changing.start()
    time.sleep(0.2)  # it has the lock by then, if it takes it
    asked = time.monotonic()
    run(engine, "CREATE STREAM other (n INT) WITH (kafka_topic='other', value_format='JSON', partitions=1);")
    others_s = time.monotonic() - asked
    changing.join()
    ((answer,),) = answers
    assert others_s < OTHERS_S
    assert time.monotonic() - begin < ANSWER_S
    said = [warning["message"] for warning in answer.get("warnings", ())]
    assert [text for text in said if "Connector H: the other system does not answer a task" in text] == said
    assert bool(said) == waits


def test_a_connector_that_waits_for_its_tasks_of_before_says_so(engine: EmbeddedEngine, silent: SilentServer) -> None:
    run(engine, "DROP CONNECTOR h;")
    run(engine, sink(silent))
    (described,) = run(engine, "DESCRIBE CONNECTOR h;")
    (task,) = described["status"]["tasks"]
    assert (task["state"], "does not answer a task that is to end" in task["trace"]) == ("RUNNING", True)
    run(engine, "PAUSE CONNECTOR h;")
    eventually(lambda: engine.connectors.status("H").tasks[0].state == "PAUSED")
    run(engine, "DROP CONNECTOR h;")
    assert run(engine, "SHOW CONNECTORS;")[0]["connectors"] == []
