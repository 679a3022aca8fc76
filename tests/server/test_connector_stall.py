"""EXPLAIN STALL CONNECTOR: what a connector waits for, with positions, lag, the last error and the time of a retry."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from waiting import eventually

from millstream.logcore.clients.producer import Producer
from millstream.repl.text.entity_text import entity_lines
from millstream.server.engine.embedded import EmbeddedEngine, open_engine
from millstream.server.engine.session import Session
from millstream.server.handlers.connectors import UnknownConnector

DUCKDB = {"millstream.executor": "duckdb", "auto.offset.reset": "earliest"}


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[EmbeddedEngine]:
    with open_engine(tmp_path / "data", DUCKDB, sync="never") as opened:
        yield opened


def run(engine: EmbeddedEngine, text: str) -> list[dict[str, Any]]:
    return [entity.as_json() for entity in engine.execute(text, Session())]


def stall(engine: EmbeddedEngine, name: str) -> dict[str, Any]:
    (entity,) = run(engine, f"EXPLAIN STALL CONNECTOR {name};")
    return entity


def cause(engine: EmbeddedEngine, name: str, code: str) -> dict[str, Any]:
    """Once it is there."""
    return eventually(lambda: next((each for each in stall(engine, name)["causes"] if each["code"] == code), None), 20)


def send(engine: EmbeddedEngine, topic: str, *values: bytes) -> None:
    with Producer(engine.log) as producer:
        for value in values:
            producer.send(topic, value, None)


def sink(engine: EmbeddedEngine, url: str, **more: str) -> None:
    config = {"connector.class": "sql", "connection.url": url, "topics": "orders", "insert.mode": "insert",
              "pk.mode": "none", **more}  # fmt: skip
    given = ", ".join(f"'{name}'='{value}'" for name, value in config.items())
    run(engine, f"CREATE SINK CONNECTOR s WITH ({given});")


def test_a_sink_says_how_far_it_is(engine: EmbeddedEngine, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/out.db"
    sqlite3.connect(tmp_path / "out.db").execute("CREATE TABLE orders (id INT)")
    sink(engine, url)
    gone = cause(engine, "s", "SOURCE_TOPIC_GONE")
    assert (gone["message"], gone["blocks"]) == ('The topic "orders" does not exist.', True)
    engine.log.create_topic("orders", 1)
    assert cause(engine, "s", "NO_RECORDS")["figures"] == {"topic": "orders"}
    send(engine, "orders", b'{"id": 1}', b'{"id": 2}')
    done = cause(engine, "s", "UP_TO_DATE")
    assert (done["message"], done["blocks"]) == ('All records of "orders" are written.', False)
    assert done["figures"] == {"topic": "orders", "positions": {"0": 2}, "lag": {}}
    found = stall(engine, "s")
    assert (found["@type"], found["connector"], found["state"], found["stalled"]) == (
        "connector_stall", "S", "RUNNING", False)  # fmt: skip
    assert "Nothing blocks the connector: 2 records since it started here." in str(found)
    run(engine, "PAUSE CONNECTOR s;")
    send(engine, "orders", b'{"id": 3}')
    assert "RESUME CONNECTOR S;" in cause(engine, "s", "PAUSED")["hint"]
    behind = cause(engine, "s", "BEHIND")
    assert behind["message"] == '1 record of "orders" (partition 0) are not written yet.'
    assert (behind["blocks"], behind["figures"]["lag"]) == (True, {"0": 1})


def test_a_task_that_waits_for_its_system_says_the_error_and_the_retry(engine: EmbeddedEngine) -> None:
    engine.log.create_topic("orders", 1)
    send(engine, "orders", b'{"id": 1}')
    sink(engine, "postgresql://ana@127.0.0.1:1/shop")
    waits = eventually(
        lambda: cause(engine, "s", "RETRYING")["figures"]["retryInMs"] and cause(engine, "s", "RETRYING")
    )
    assert "the database does not answer" in waits["message"]
    assert "tries again" in waits["message"]
    assert waits["figures"]["restarts"] >= 1
    lines = entity_lines(stall(engine, "s"), None)
    assert lines[0] == "Connector S (RUNNING) is held back:"
    assert lines[1].startswith("✗ ")


def test_a_failed_task_says_what_to_do(engine: EmbeddedEngine, tmp_path: Path) -> None:
    engine.log.create_topic("orders", 1)
    send(engine, "orders", b"no json")
    sink(engine, f"sqlite:///{tmp_path}/out.db")
    failed = cause(engine, "s", "FAILED")
    assert "offset 0 is not in the format of its converter" in failed["message"]
    assert "RESTART CONNECTOR S;" in failed["hint"]


def test_a_source_says_its_position(engine: EmbeddedEngine) -> None:
    run(engine, """CREATE SOURCE CONNECTOR gen WITH ('connector.class'='datagen', 'quickstart'='users',
        'kafka.topic'='users', 'max.interval'=0, 'iterations'=7, 'key.converter'='string');""")  # fmt: skip
    found = eventually(lambda: cause(engine, "gen", "POSITION")["figures"]["position"] and stall(engine, "gen"), 20)
    assert found["stalled"] is False
    assert "Task 0 is at {" in str(found)


def test_a_lake_that_waits_for_its_next_commit_says_when_that_is(engine: EmbeddedEngine, tmp_path: Path) -> None:
    pytest.importorskip("deltalake")
    engine.log.create_topic("orders", 1)
    send(engine, "orders", b'{"id": 1}')
    run(engine, f"""CREATE SINK CONNECTOR s WITH ('connector.class'='delta', 'location'='{tmp_path}/lake',
        'topics'='orders', 'commit.interval.ms'=600000);""")  # fmt: skip
    cause(engine, "s", "UP_TO_DATE")
    send(engine, "orders", b'{"id": 2}')
    waits = cause(engine, "s", "WAITS_TO_COMMIT")
    assert not waits["blocks"]
    assert 500_000 < waits["figures"]["waitMs"] <= 600_000


def test_a_connector_that_is_not_there(engine: EmbeddedEngine) -> None:
    with pytest.raises(UnknownConnector, match="Connector NOPE does not exist"):
        stall(engine, "nope")
