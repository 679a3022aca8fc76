"""State or position that cannot be known stops its query, and RESET rebuilds it from the sources."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from millstream.errors import MillstreamError
from millstream.executor.errors import StateLost
from millstream.executor.state.lost_state import check_ends
from millstream.logcore.errors import CorruptLog
from millstream.server.engine.embedded import EmbeddedEngine, open_engine
from millstream.server.engine.session import Session

from ..logcore.log_records import partition_folder

PROPERTIES = {"auto.offset.reset": "earliest", "millstream.executor": "duckdb"}
CHANGELOG = "_millstream-CTAS_COUNTS_1-changelog"
QUERY = "CTAS_COUNTS_1"
JOINED = "CSAS_NAMED_2"
JOIN = """
CREATE STREAM s (id INT KEY, g STRING) WITH (kafka_topic='s', value_format='JSON', partitions=1);
CREATE TABLE names (id INT PRIMARY KEY, name STRING) WITH (kafka_topic='names', value_format='JSON', partitions=1);
CREATE STREAM named AS SELECT s.id AS id, names.name AS name FROM s LEFT JOIN names ON s.id = names.id;
"""
_HEADERS, _BLOCK = 3 * 4096, 256 * 1024  # of a DuckDB file
STATEMENTS = """
CREATE STREAM s (id INT KEY, g STRING) WITH (kafka_topic='s', value_format='JSON', partitions=1);
CREATE TABLE counts AS SELECT g, COUNT(*) AS n FROM s GROUP BY g;
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of an engine that was closed, with a table of counts. Beside it is `older`, as it was before the last rows."""
    data = tmp_path / "data"
    with _engine(data) as engine:
        engine.execute(STATEMENTS, Session())
        _insert(engine, 3)
        _settled(engine)
    shutil.copytree(data, tmp_path / "older")
    with _engine(data) as engine:
        _insert(engine, 2)
        _settled(engine)
    return data


def _engine(data: Path) -> EmbeddedEngine:
    return open_engine(data, PROPERTIES)


def _insert(engine: EmbeddedEngine, count: int) -> None:
    engine.execute("INSERT INTO s (id, g) VALUES (1, 'a');" * count, Session())


def _settled(engine: EmbeddedEngine, query_id: str = QUERY) -> str | None:
    """What stopped the query, once it has stopped or read everything."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        status = engine.executor.status(query_id)
        if status.state == "ERROR":
            return status.error
        if status.positions and not status.error and not any(status.lag.values()):
            return None
        time.sleep(0.01)
    raise AssertionError(f"the query does not get on: {engine.executor.status(query_id)}")


def _counts(engine: EmbeddedEngine) -> list[tuple[object, ...]]:
    return [tuple(row.values) for row in engine.query("SELECT * FROM counts;", Session())]


def _segment(folder: Path) -> Path:
    return max(folder.glob("*.log"), key=lambda path: path.stat().st_size)


def _shorten(data: Path) -> None:
    """The changelog has lost what it began with, and the state file is gone."""
    path = _segment(partition_folder(data / "log", CHANGELOG))
    path.write_bytes(path.read_bytes()[:100])
    shutil.rmtree(data / "state")


def _replace_by_older(data: Path, *topics: str) -> None:
    for topic in topics:
        now = partition_folder(data / "log", topic)
        shutil.rmtree(now)
        shutil.copytree(partition_folder(data.with_name("older") / "log", topic), now)


def _older_changelog(data: Path) -> None:
    _replace_by_older(data, CHANGELOG)


def _older_offsets(data: Path) -> None:
    _replace_by_older(data, "__consumer_offsets", "__transaction_state")


def _older_source(data: Path) -> None:
    _replace_by_older(data, "s")


@pytest.mark.parametrize("harm", [_shorten, _older_changelog, _older_offsets, _older_source])
def test_a_query_stops_and_says_what_to_do_and_reset_rebuilds_it(folder: Path, harm: Callable[[Path], None]) -> None:
    harm(folder)
    left = 3 if harm is _older_source else 5
    with _engine(folder) as engine:
        error = _settled(engine)
        assert error is not None and f"RESET {QUERY};" in error
        engine.execute(f"RESET {QUERY};", Session())
        assert _settled(engine) is None
        assert _counts(engine) == [("a", left)]
        _insert(engine, 1)
        assert _settled(engine) is None
        assert _counts(engine) == [("a", left + 1)]
    with _engine(folder) as engine:
        assert _settled(engine) is None
        assert _counts(engine) == [("a", left + 1)]


@pytest.mark.parametrize("end", [1, 2, 3])
def test_the_changelog_has_the_commit_marker_after_the_last_row(end: int) -> None:
    """The end is 3 where the row at 2 is lost, and the marker was written in its place at the next start."""
    with pytest.raises(StateLost, match="reach to 4"):
        check_ends(QUERY, {0: 3}, {0: end})
    check_ends(QUERY, {0: 3}, {0: 4, 1: 0})


def test_damaged_blocks_of_a_state_file_cost_a_replay_and_nothing_else(tmp_path: Path) -> None:
    """A block is read when it is needed: the file opens, and the damage is found in the middle of a batch."""
    data = tmp_path / "data"
    with _engine(data) as engine:
        engine.execute(JOIN, Session())
        names = pa.table({"id": pa.array(range(5), pa.int32()), "name": [f"name {n}" for n in range(5)]})
        engine.insert("NAMES", names, Session())
        _settled(engine, JOINED)
    for _ in range(2):  # so that what was written lies in blocks, and not in the write-ahead log
        with _engine(data) as engine:
            _settled(engine, JOINED)
    (state,) = data.glob(f"state/{JOINED}/*.duckdb")
    whole = state.read_bytes()
    for block in range(_HEADERS, len(whole), _BLOCK):
        folder = tmp_path / str(block)
        shutil.copytree(data, folder)
        damaged = bytearray(whole)
        damaged[block + 64] ^= 1
        (folder / state.relative_to(data)).write_bytes(damaged)
        with _engine(folder) as engine:
            _settled(engine, JOINED)
            engine.execute("INSERT INTO s (id, g) VALUES (1, 'a');", Session())
            assert _settled(engine, JOINED) is None
            (row,) = engine.query("SELECT * FROM named;", Session())
            assert tuple(row.values) == (1, "name 1")


def test_reset_begins_with_the_first_record_whatever_the_properties_say(tmp_path: Path) -> None:
    with open_engine(tmp_path, {**PROPERTIES, "auto.offset.reset": "latest"}) as engine:
        engine.execute(STATEMENTS.split(";")[0] + ";", Session())
        _insert(engine, 3)
        engine.execute(STATEMENTS.split(";")[1] + ";", Session())
        _insert(engine, 1)
        assert _settled(engine) is None
        engine.execute(f"RESET {QUERY};", Session())
        assert _settled(engine) is None
        assert _counts(engine) == [("a", 4)]


def test_a_query_that_was_paused_is_paused_after_reset(folder: Path) -> None:
    with _engine(folder) as engine:
        engine.execute(f"PAUSE {QUERY}; RESET {QUERY};", Session())
        assert engine.executor.status(QUERY).state == "PAUSED"
        engine.execute(f"RESUME {QUERY};", Session())
        assert _settled(engine) is None
        assert _counts(engine) == [("a", 5)]


def test_a_query_whose_source_has_lost_what_comes_next_stops(folder: Path) -> None:
    with _engine(folder) as engine:
        _settled(engine)
        engine.execute(f"PAUSE {QUERY};", Session())
        _insert(engine, 2)
    path = _segment(partition_folder(folder / "log", "s"))
    data = path.read_bytes()
    path.write_bytes(data[:-5])
    with _engine(folder) as engine:
        engine.execute(f"RESUME {QUERY};", Session())
        error = _settled(engine)
        assert error is not None
        assert 'partition 0 of topic "s"' in error and "accept-loss" in error
        with pytest.raises(MillstreamError, match='partition 0 of topic "s"'):
            list(engine.query("SELECT * FROM s;", Session()))
        assert _counts(engine) == [("a", 6)], "what lies before the loss"


@pytest.mark.parametrize("older", [False, True])
def test_a_command_topic_that_is_not_whole_refuses_the_start(folder: Path, older: bool) -> None:
    topic = partition_folder(folder / "log", "_millstream-command")
    if older:
        shutil.rmtree(topic)
        topic.mkdir()
        (topic / f"{0:020d}.log").touch()
    else:
        path = _segment(topic)
        path.write_bytes(path.read_bytes()[:100])
    for _ in range(2):
        with pytest.raises(CorruptLog, match="_millstream-command") as raised:
            _engine(folder)
        assert "backup" in str(raised.value.hint)
