"""Statements that are accepted and cannot be carried out at once: they are, later, and only what is still wanted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from waiting import eventually

from millstream.logcore.client import FetchedRows
from millstream.logcore.errors import LogFull, TopicExists
from millstream.logcore.log import Log
from millstream.server.catalog import owed_effects
from millstream.server.catalog.command_topic import CommandTopic
from millstream.server.catalog.owed_effects import EffectsDelayed
from millstream.server.engine.embedded import EmbeddedEngine, open_engine
from millstream.server.engine.entities import Queries
from millstream.server.engine.session import Session

PROPERTIES = {"auto.offset.reset": "earliest", "millstream.executor": "duckdb"}
STREAM = "CREATE STREAM s (id INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);"
COPY = "CREATE STREAM c AS SELECT id, v FROM s WHERE v > 0;"
QUERY = "CSAS_C_1"


class Disk:
    """There is no room for the topic C while it is `full`, and topics stay that are to `stay`."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.full = False
        self.stay: set[str] = set()
        create, delete = Log.create_topic, Log.delete_topic

        def delete_topic(log: Log, name: str) -> None:
            if name in self.stay:
                raise LogFull(f"no room to delete {name}")
            delete(log, name)

        def create_topic(log: Log, name: str, *arguments: Any) -> object:
            if self.full and name == "C":
                raise LogFull(f"no room to write topic {name}")
            return create(log, name, *arguments)

        patch.setattr(Log, "create_topic", create_topic)
        patch.setattr(Log, "delete_topic", delete_topic)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    monkeypatch.setattr(owed_effects, "_AGAIN_S", 0.01)
    return Disk(monkeypatch)


@pytest.fixture
def engine(tmp_path: Path, disk: Disk) -> Iterator[EmbeddedEngine]:
    """The statement that began its query was accepted when the disk was full."""
    with opened(tmp_path) as engine:
        engine.execute(STREAM, Session())
        disk.full = True
        with pytest.raises(EffectsDelayed, match="accepted, but not complete yet: no room to write topic C") as caught:
            engine.execute(COPY, Session())
        assert "Do not send it again" in (caught.value.hint or "")
        yield engine


def opened(folder: Path) -> EmbeddedEngine:
    return open_engine(folder, PROPERTIES, sync="never")


def states(engine: EmbeddedEngine) -> dict[str, str]:
    (shown,) = engine.execute("SHOW QUERIES;", Session())
    assert isinstance(shown, Queries)
    return {query.id: query.state for query in shown.queries}


def values(engine: EmbeddedEngine, topic: str) -> list[bytes]:
    runs = engine.log.fetch(topic, 0, 0).runs
    return [value for run in runs if isinstance(run, FetchedRows) for value in run.table["value"].to_pylist()]


def test_a_query_starts_when_there_is_room_for_its_topic(engine: EmbeddedEngine, disk: Disk) -> None:
    assert states(engine) == {QUERY: "ERROR"}
    assert "could not be started yet" in str(engine.executor.status(QUERY).error)
    assert "C" not in engine.log.topics()
    disk.full = False
    eventually(lambda: states(engine) == {QUERY: "RUNNING"})
    engine.execute("INSERT INTO s (id, v) VALUES (1, 7);", Session())
    eventually(lambda: values(engine, "C") == [b'{"V":7}'])


def test_a_query_that_is_dropped_before_it_could_start_leaves_nothing(engine: EmbeddedEngine, disk: Disk) -> None:
    engine.execute("DROP STREAM c;", Session())
    disk.full = False
    engine.execute("CREATE STREAM d WITH (kafka_topic='d') AS SELECT id, v FROM s;", Session())
    assert states(engine) == {"CSAS_D_3": "RUNNING"}
    assert "C" not in engine.log.topics()


def test_a_query_that_is_paused_before_it_could_start_starts_paused(engine: EmbeddedEngine, disk: Disk) -> None:
    engine.execute(f"PAUSE {QUERY};", Session())
    disk.full = False
    eventually(lambda: states(engine) == {QUERY: "PAUSED"})


@pytest.mark.parametrize("still_full", [True, False])
def test_what_is_owed_is_done_after_a_restart(
    engine: EmbeddedEngine, disk: Disk, tmp_path: Path, still_full: bool
) -> None:
    engine.execute("CREATE TYPE later AS INT;", Session())
    engine.close()
    disk.full = still_full
    with opened(tmp_path) as again:
        if still_full:
            assert "C" not in again.log.topics()
            disk.full = False
        eventually(lambda: states(again) == {QUERY: "RUNNING"} and "C" in again.log.topics())


def test_a_topic_that_is_made_anew_is_not_deleted_by_an_older_statement(engine: EmbeddedEngine, tmp_path: Path) -> None:
    """The next start looks again at all statements from the first on that was not carried out."""
    made = STREAM.replace("STREAM s", "STREAM t").replace("'s'", "'t'")
    engine.execute(f"{made} DROP STREAM t DELETE TOPIC; {made} INSERT INTO t (id, v) VALUES (1, 7);", Session())
    engine.close()
    with opened(tmp_path) as again:
        assert values(again, "t") == [b'{"V":7}']


MADE = STREAM.replace("STREAM s", "STREAM t").replace("'s'", "'t'")


def test_a_topic_that_somebody_made_is_not_deleted_by_a_statement_that_was_done(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    engine.execute(f"{MADE} DROP STREAM t DELETE TOPIC;", Session())
    engine.log.create_topic("t", 1)
    engine.close()
    with opened(tmp_path) as again:
        assert "t" in again.log.topics()


def test_a_crash_behind_a_pause_keeps_no_engine_from_starting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path) as engine:
        engine.execute(f"{STREAM} {COPY}", Session())
        monkeypatch.setattr(CommandTopic, "mark_applied", lambda topic, offset: None)
        engine.execute(f"PAUSE {QUERY};", Session())
    with opened(tmp_path) as again:
        assert states(again) == {QUERY: "PAUSED"}


def test_a_stream_has_its_topic_also_if_its_query_ends_before_it_starts(engine: EmbeddedEngine, disk: Disk) -> None:
    engine.execute(f"TERMINATE {QUERY};", Session())
    disk.full = False
    eventually(lambda: "C" in engine.log.topics())
    assert states(engine) == {}


def test_a_query_that_replaces_another_late_takes_its_place(tmp_path: Path, disk: Disk) -> None:
    with opened(tmp_path) as engine:
        engine.execute(f"{STREAM} {COPY}", Session())
        engine.log.delete_topic("C")
        disk.full = True
        other = COPY.replace("CREATE", "CREATE OR REPLACE").replace("v > 0", "v > 5")
        with pytest.raises(EffectsDelayed):
            engine.execute(other, Session())
        disk.full = False
        eventually(lambda: "C" in engine.log.topics())
        engine.execute("INSERT INTO s (id, v) VALUES (1, 3); INSERT INTO s (id, v) VALUES (1, 9);", Session())
        eventually(lambda: b'{"V":9}' in values(engine, "C"))
        assert values(engine, "C") == [b'{"V":9}']


def test_a_query_that_is_replaced_takes_the_topic_that_the_statement_makes(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        engine.execute(f"{STREAM} {COPY} INSERT INTO s (id, v) VALUES (1, 7);", Session())
        eventually(lambda: values(engine, "C"))
        engine.log.delete_topic("C")
        engine.execute(COPY.replace("CREATE", "CREATE OR REPLACE").replace("v > 0", "v > 5"), Session())
        engine.execute("INSERT INTO s (id, v) VALUES (1, 3); INSERT INTO s (id, v) VALUES (1, 9);", Session())
        eventually(lambda: values(engine, "C") == [b'{"V":9}'])
    with opened(tmp_path) as engine:
        engine.execute("INSERT INTO s (id, v) VALUES (1, 8);", Session())
        eventually(lambda: values(engine, "C") == [b'{"V":9}', b'{"V":8}'])


def test_no_stream_is_made_on_a_topic_that_is_still_to_be_deleted(tmp_path: Path, disk: Disk) -> None:
    with opened(tmp_path) as engine:
        engine.execute(f"{STREAM} INSERT INTO s (id, v) VALUES (1, 7);", Session())
        disk.stay = {"s"}
        with pytest.raises(EffectsDelayed):
            engine.execute("DROP STREAM s DELETE TOPIC;", Session())
        with pytest.raises(TopicExists, match="is not deleted yet after DROP S DELETE TOPIC"):
            engine.execute(STREAM, Session())
        disk.stay = set()
        eventually(lambda: "s" not in engine.log.topics())
        engine.execute(STREAM, Session())
        assert values(engine, "s") == []


def test_a_statement_has_its_number_when_it_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients wait for the number, and then use what the statement made."""
    numbers: list[int] = []
    create = Log.create_topic

    def create_topic(log: Log, name: str, *arguments: Any) -> object:
        numbers.append(engine.command_number)
        return create(log, name, *arguments)

    with opened(tmp_path) as engine:
        engine.execute("CREATE TYPE t AS INT;", Session())
        monkeypatch.setattr(Log, "create_topic", create_topic)
        engine.execute(STREAM, Session())
        assert (numbers, engine.command_number) == ([0], 1)


def test_a_topic_that_somebody_creates_meanwhile_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create = Log.create_topic

    def create_second(log: Log, name: str, *arguments: Any) -> object:
        """A connector is faster."""
        if name == "s":
            create(log, name, *arguments)
        return create(log, name, *arguments)

    monkeypatch.setattr(Log, "create_topic", create_second)
    with opened(tmp_path) as engine:
        engine.execute(STREAM, Session())
        engine.execute("INSERT INTO s (id, v) VALUES (1, 7);", Session())
        assert values(engine, "s") == [b'{"V":7}']
