"""Mirrors as statements: from one Millstream's Kafka port into another."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from silent_port import SilentPort
from two_logs import records_of, rows
from waiting import eventually

from millstream.errors import InvalidStatement, MillstreamError
from millstream.executor.connect.connector_errors import InvalidConnector
from millstream.executor.connect.mirror_settings import InvalidMirrorSetting
from millstream.logcore.client import TopicPartition
from millstream.logcore.errors import ReadOnlyTopic
from millstream.logcore.log import Log, open_log
from millstream.logcore.server import LogServer
from millstream.server.engine.embedded import EmbeddedEngine, open_engine
from millstream.server.engine.session import Session
from millstream.server.handlers.mirrors import InvalidMirrorSource, MirrorExists, UnknownMirror

DUCKDB = {"millstream.executor": "duckdb", "auto.offset.reset": "earliest"}
WHERE = TopicPartition("orders", 0)


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "there", sync="never") as log:
        log.create_topic("orders", 1)
        log.append("orders", 0, rows(b'{"N": 1}', b'{"N": 2}'))
        log.commit_offsets("group", {WHERE: 1})
        yield log


@pytest.fixture
def address(there: Log) -> Iterator[str]:
    with LogServer(there, port=0) as server:
        yield server.address


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[EmbeddedEngine]:
    with open_engine(tmp_path / "here", DUCKDB, sync="never") as opened:
        yield opened


def run(engine: EmbeddedEngine, text: str) -> list[dict[str, Any]]:
    return [entity.as_json() for entity in engine.execute(text, Session())]


def create(engine: EmbeddedEngine, address: str, settings: str = "") -> list[dict[str, Any]]:
    return run(engine, f"CREATE MIRROR m FROM '{address}' TOPICS 'ord*' WITH ('refresh.interval.ms'=100{settings});")


def line(engine: EmbeddedEngine) -> dict[str, Any]:
    return run(engine, "SHOW MIRRORS;")[0]["mirrors"][0]


def has_all(engine: EmbeddedEngine, there: Log) -> bool:
    return engine.log.topic("orders") is not None and records_of(engine.log, "orders") == records_of(there, "orders")


def test_a_mirror_copies_and_says_how_far_it_is(engine: EmbeddedEngine, there: Log, address: str) -> None:
    (created,) = create(engine, address)
    assert created["commandStatus"]["message"] == f"Mirror M copies from {address}."
    eventually(lambda: has_all(engine, there) and line(engine)["lag"] == 0)
    shown = line(engine)
    assert {name: shown[name] for name in ("name", "state", "mode", "source", "topics", "partitions", "lastError")} == {
        "name": "M", "state": "RUNNING", "mode": "exact", "source": address, "topics": ["ord*"], "partitions": 1,
        "lastError": None,
    }  # fmt: skip
    (described,) = run(engine, "DESCRIBE MIRROR m;")
    assert described["partitions"] == [
        {"topic": "orders", "partition": 0, "endOffset": 2, "lag": 0, "phase": "COPYING", "error": None}
    ]
    assert (described["records"], described["refused"]) == (2, {})
    eventually(lambda: engine.log.committed_offsets("group") == {WHERE: 1})
    (stall,) = run(engine, "EXPLAIN STALL MIRROR m;")
    assert (stall["stalled"], stall["causes"][-1]["code"]) == (False, "NOTHING_FOUND")


def test_queries_read_what_is_mirrored_and_write_nothing_into_it(
    engine: EmbeddedEngine, there: Log, address: str
) -> None:
    create(engine, address)
    eventually(lambda: has_all(engine, there))
    run(engine, "CREATE STREAM s (n INT) WITH (kafka_topic='orders', value_format='JSON');")
    with pytest.raises(ReadOnlyTopic, match='topic "orders" is read-only: the mirror "M" writes it'):
        run(engine, "INSERT INTO s (n) VALUES (3);")
    run(engine, "CREATE STREAM t WITH (kafka_topic='t') AS SELECT n FROM s;")
    there.append("orders", 0, rows(b'{"N": 3}'))
    eventually(lambda: engine.log.topic("t") is not None and len(records_of(engine.log, "t")) >= 1)


def test_a_promoted_mirror_has_everything_and_lets_go(engine: EmbeddedEngine, there: Log, address: str) -> None:
    create(engine, address)
    eventually(lambda: has_all(engine, there))
    run(engine, "PAUSE MIRROR m;")
    eventually(lambda: line(engine)["state"] == "PAUSED")
    there.append("orders", 0, rows(b'{"N": 3}'))
    there.commit_offsets("group", {WHERE: 3})
    (promoted,) = run(engine, "PROMOTE MIRROR m;")
    assert (promoted["commandStatus"]["status"], promoted["warnings"]) == ("SUCCESS", [])
    assert has_all(engine, there)
    assert engine.log.committed_offsets("group") == {WHERE: 3}
    assert line(engine)["state"] == "PROMOTED"
    engine.log.append("orders", 0, rows(b"mine"))
    there.append("orders", 0, rows(b"theirs"))
    for statement in ("RESUME MIRROR m;", "PROMOTE MIRROR m;"):
        with pytest.raises(InvalidStatement, match="is promoted"):
            run(engine, statement)
    run(engine, "DROP MIRROR m;")
    assert [record[2] for record in records_of(engine.log, "orders")][2:] == [b'{"N": 3}', b"mine"]


def test_a_mirror_is_promoted_while_its_source_is_away(engine: EmbeddedEngine, there: Log) -> None:
    with LogServer(there, port=0) as server:
        create(engine, server.address)
        eventually(lambda: has_all(engine, there))
    (promoted,) = run(engine, "PROMOTE MIRROR m;")
    assert promoted["warnings"][0]["message"].startswith("Not all of the source may be here: no log answers at")
    engine.log.append("orders", 0, rows(b"mine"))


def test_mirrors_go_on_after_a_restart_of_the_server(tmp_path: Path, there: Log, address: str) -> None:
    with open_engine(tmp_path / "here", DUCKDB, sync="never") as engine:
        create(engine, address)
        eventually(lambda: has_all(engine, there))
        run(engine, f"CREATE MIRROR paused FROM '{address}' TOPICS 'x'; PAUSE MIRROR paused;")
    there.append("orders", 0, rows(b"more"))
    with open_engine(tmp_path / "here", DUCKDB, sync="never") as engine:
        eventually(lambda: has_all(engine, there))
        states = {mirror["name"]: mirror["state"] for mirror in run(engine, "SHOW MIRRORS;")[0]["mirrors"]}
        assert states == {"M": "RUNNING", "PAUSED": "PAUSED"}
        run(engine, "DROP MIRROR m;")
        engine.log.append("orders", 0, rows(b"mine"))
    with open_engine(tmp_path / "here", DUCKDB, sync="never") as engine:
        assert [mirror["name"] for mirror in run(engine, "SHOW MIRRORS;")[0]["mirrors"]] == ["PAUSED"]


def test_a_source_that_is_away_is_waited_for(engine: EmbeddedEngine, there: Log) -> None:
    with LogServer(there, port=0) as server:
        port = int(server.address.rpartition(":")[2])
        create(engine, server.address)
        eventually(lambda: has_all(engine, there))
    eventually(lambda: "no log answers" in (line(engine)["lastError"] or ""))
    (stall,) = run(engine, "EXPLAIN STALL MIRROR m;")
    assert stall["causes"][0]["code"] in ("RETRYING", "PARTITION_WAITS", "NOTHING_FOUND")
    there.append("orders", 0, rows(b"more"))
    with LogServer(there, port=port):
        eventually(lambda: has_all(engine, there))


def test_what_is_not_copied_is_told(engine: EmbeddedEngine, there: Log, address: str) -> None:
    engine.log.create_topic("orders", 1)
    there.create_topic("ord2", 1)
    create(engine, address)
    eventually(lambda: line(engine)["state"] == "DEGRADED" and line(engine)["partitions"] == 1)
    assert "orders: there is a topic of this name here already" in line(engine)["lastError"]
    (stall,) = run(engine, "EXPLAIN STALL MIRROR m;")
    assert [cause["code"] for cause in stall["causes"] if cause["blocks"]] == ["TOPIC_NOT_COPIED"]


def test_a_renamed_mirror_has_the_names_of_mirrormaker(engine: EmbeddedEngine, there: Log, address: str) -> None:
    create(engine, address, ", MODE='renamed', 'alias'='eu'")
    eventually(lambda: engine.log.committed_offsets("group") == {TopicPartition("eu.orders", 0): 1})
    assert [record[2] for record in records_of(engine.log, "eu.orders")] == [b'{"N": 1}', b'{"N": 2}']
    assert (line(engine)["mode"], line(engine)["state"]) == ("renamed", "RUNNING")
    engine.log.append("eu.orders", 0, rows(b"mine"))


def test_secrets_of_a_mirror_are_shown_to_nobody(engine: EmbeddedEngine, address: str) -> None:
    settings = ", 'sasl.username'='ana', 'sasl.password'='hunter2', 'security.protocol'='SASL_PLAINTEXT'"
    (created,) = create(engine, address, settings)
    answers = [created, *run(engine, "SHOW MIRRORS; DESCRIBE MIRROR m; EXPLAIN STALL MIRROR m;")]
    assert "hunter2" not in str(answers)
    assert "sasl.password is written out in the statement. It was sealed" in created["warnings"][0]["message"]
    assert "hunter2" not in str(records_of(engine.log, "_millstream-command"))


@pytest.mark.parametrize(
    ("sql", "error", "message"),
    [
        ("CREATE MIRROR n FROM 'nowhere' TOPICS 'x';", InvalidMirrorSetting, "nowhere"),
        ("CREATE MIRROR n FROM 'h:9092' TOPICS ' ';", InvalidMirrorSetting, "a mirror of no topics"),
        ("CREATE MIRROR n FROM 'h:9092' TOPICS '*' WITH (MODE='close');", InvalidMirrorSetting, 'mode is "close"'),
        ("CREATE MIRROR n FROM 'h:9092' TOPICS '*' WITH (MODE='renamed');", InvalidMirrorSetting, 'alias is ""'),
        ("CREATE MIRROR n FROM 'h:9092' TOPICS '*' WITH ('group'='x');", InvalidMirrorSetting, 'no setting "group"'),
        (
            "CREATE MIRROR n FROM 'h:9092' TOPICS '*' WITH ('refresh.interval.ms'='soon');",
            InvalidMirrorSetting,
            'refresh.interval.ms is "soon"',
        ),
        (
            "CREATE MIRROR n FROM 'h:9092' TOPICS '*' WITH ('sasl.password'='${secret:nope}');",
            InvalidConnector,
            "sasl.password",
        ),
        ("DROP MIRROR nope;", UnknownMirror, "Mirror NOPE does not exist"),
        ("PROMOTE MIRROR nope;", UnknownMirror, "Mirror NOPE does not exist"),
        ("DESCRIBE MIRROR nope;", UnknownMirror, "Mirror NOPE does not exist"),
        ("EXPLAIN STALL MIRROR nope;", UnknownMirror, "Mirror NOPE does not exist"),
    ],
)
def test_what_cannot_be_is_refused(
    engine: EmbeddedEngine, sql: str, error: type[MillstreamError], message: str
) -> None:
    with pytest.raises(error, match=message):
        run(engine, sql)


def test_a_name_is_given_once(engine: EmbeddedEngine, address: str) -> None:
    create(engine, address)
    with pytest.raises(MirrorExists, match="Mirror M already exists"):
        create(engine, address)
    (warned,) = run(engine, f"CREATE MIRROR IF NOT EXISTS m FROM '{address}' TOPICS 'x';")
    assert warned["@type"] == "warning_entity"
    assert run(engine, "DROP MIRROR IF EXISTS other;")[0]["@type"] == "warning_entity"


def test_a_server_is_no_mirror_of_itself(engine: EmbeddedEngine) -> None:
    assert isinstance(engine.log, Log)
    engine.log.create_topic("orders", 1)
    with LogServer(engine.log, port=0) as server:
        with pytest.raises(InvalidMirrorSource, match="is this log itself"):
            create(engine, server.address, ", 'existing.topics'='adopt'")
        with pytest.raises(InvalidMirrorSource, match="is this log itself"):
            create(engine, server.address, ", 'mode'='renamed', 'alias'='a'")
    assert run(engine, "SHOW MIRRORS;")[0]["mirrors"] == []


def test_a_source_that_becomes_the_server_itself_ends_the_mirror(engine: EmbeddedEngine, there: Log) -> None:
    """An address may lead elsewhere later."""
    with LogServer(there, port=0) as server:
        port = int(server.address.rpartition(":")[2])
        create(engine, server.address)
        eventually(lambda: has_all(engine, there))
    assert isinstance(engine.log, Log)
    with LogServer(engine.log, port=port):
        run(engine, "PAUSE MIRROR m;")
        eventually(lambda: line(engine)["state"] == "PAUSED")
        run(engine, "RESUME MIRROR m;")
        eventually(lambda: line(engine)["state"] == "FAILED")
        assert "is this log itself" in line(engine)["lastError"]


def test_other_statements_do_not_wait_for_a_mirror_that_is_promoted(engine: EmbeddedEngine) -> None:
    with SilentPort() as silent, ThreadPoolExecutor(1) as pool:
        create = f"CREATE MIRROR slow FROM '127.0.0.1:{silent.port}' TOPICS 'x';"
        run(engine, create + " PAUSE MIRROR slow;")
        eventually(lambda: line(engine)["state"] == "PAUSED")
        silent.called.clear()
        promoting = pool.submit(run, engine, "PROMOTE MIRROR slow;")
        assert silent.called.wait(30)
        run(engine, "CREATE STREAM s (n INT) WITH (kafka_topic='s', partitions=1, format='JSON');")
        with pytest.raises(InvalidStatement, match="another statement is changing the mirror SLOW"):
            run(engine, "DROP MIRROR slow;")
        with pytest.raises(MirrorExists):
            run(engine, create)
        assert not promoting.done(), "these statements waited for it"
        (promoted,) = promoting.result()
        assert promoted["warnings"][0]["message"].startswith("Not all of the source may be here")
    run(engine, "DROP MIRROR slow;")
