"""The engine's lease: an engine that another one has followed writes nothing any more, and ends nobody's queries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from millstream.logcore.client import RowRecords, TopicPartition
from millstream.logcore.errors import LogUnavailable, ProducerFenced, UnknownTopic
from millstream.logcore.external.external_log import ExternalLog, ExternalLogSettings
from millstream.logcore.log import open_log
from millstream.logcore.remote import RemoteLog, trusted_address
from millstream.logcore.server import LogServer
from millstream.server.catalog.command_topic import COMMAND_TOPIC, CommandTopic
from millstream.server.catalog.commands import RemoveType
from millstream.server.cluster.engine_log import EngineLog

HERE = TopicPartition("src", 0)


@pytest.fixture
def server(tmp_path: object) -> Iterator[LogServer]:
    with open_log(tmp_path, sync="never") as log, LogServer(log, port=0) as running:  # pyrefly: ignore[bad-argument-type]
        yield running


class Engine:
    """An engine's log, and whether it has been told that it is over."""

    def __init__(self, server: LogServer) -> None:
        self.lost = 0
        self.remote = RemoteLog(trusted_address(server.log, server.address))
        self.log = EngineLog(self.remote, self._lose)

    def _lose(self) -> None:
        self.lost += 1


@pytest.fixture
def first(server: LogServer) -> Engine:
    return Engine(server)


def rows(*values: bytes) -> RowRecords:
    columns = {"timestamp": [0] * len(values), "key": [None] * len(values), "value": list(values)}
    schema = pa.schema([("timestamp", pa.int64()), ("key", pa.binary()), ("value", pa.binary())])
    return RowRecords(pa.table(columns, schema=schema))


def test_commands_have_their_offsets_and_come_back_in_order(first: Engine) -> None:
    commands = CommandTopic(first.log)
    offsets = [commands.append(RemoveType(statement="", name=name)) for name in ("A", "B")]
    assert [(offset, command) for offset, command in commands.read_all()] == [
        (offsets[0], RemoveType(statement="", name="A")),
        (offsets[1], RemoveType(statement="", name="B")),
    ]
    commands.mark_applied(offsets[1] + 1)
    assert commands.applied_offset == offsets[1] + 1


def test_what_was_written_without_a_lease_is_read_as_before(first: Engine) -> None:
    first.remote.create_topic(COMMAND_TOPIC, 1)
    old = CommandTopic(first.remote)
    old.append(RemoveType(statement="", name="A"))
    commands = CommandTopic(first.log)
    commands.append(RemoveType(statement="", name="B"))
    assert [command for _, command in commands.read_all()] == [
        RemoveType(statement="", name="A"),
        RemoveType(statement="", name="B"),
    ]


def test_an_engine_that_was_followed_writes_nothing_any_more(server: LogServer, first: Engine) -> None:
    first.log.create_topic("src", 1)
    commands = CommandTopic(first.log)
    late: list[Engine] = []

    def followed() -> Engine:
        """An engine whose successor has begun."""
        engine = Engine(server)
        Engine(server)
        late.append(engine)
        return engine

    with pytest.raises(ProducerFenced):
        CommandTopic(followed().log).append(RemoveType(statement="", name="A"))
    with pytest.raises(ProducerFenced):
        followed().log.commit_offsets("g", {HERE: 5})
    with pytest.raises(ProducerFenced):
        followed().log.create_topic("u", 1)
    with pytest.raises(ProducerFenced):
        followed().log.delete_topic("src")
    with pytest.raises(ProducerFenced):
        followed().log.transactional_producer("q")
    assert [engine.lost for engine in late] == [1] * 5
    assert "u" not in first.remote.topics() and "src" in first.remote.topics()
    assert first.remote.committed_offsets("g") == {}
    assert list(commands.read_all()) == []


def test_a_deletion_that_comes_late_leaves_the_new_topic_of_the_name_alone(first: Engine) -> None:
    first.log.create_topic("src", 1)
    old = first.remote.topic_id("src")
    first.log.delete_topic("src")
    first.log.create_topic("src", 1)
    with pytest.raises(UnknownTopic):
        first.remote.delete_topic("src", old)
    assert "src" in first.remote.topics()


def test_a_query_that_a_late_engine_was_in_the_way_of_takes_its_id_again(first: Engine) -> None:
    first.log.create_topic("src", 1)
    producer = first.log.transactional_producer("q")
    producer.begin()
    first.remote.transactional_producer("q")  # what an engine does that has not heard yet
    with pytest.raises(LogUnavailable, match="an engine without a lease interfered"):
        producer.append("src", 0, rows(b"x"))
    again = first.log.transactional_producer("q")
    again.begin()
    again.append("src", 0, rows(b"y"))
    again.commit()
    assert [run.table["value"].to_pylist() for run in first.log.fetch("src", 0, 0).runs] == [[b"y"]]  # pyrefly: ignore[missing-attribute]
    assert first.lost == 0


def test_a_query_whose_engine_was_followed_stops(server: LogServer, first: Engine) -> None:
    first.log.create_topic("src", 1)
    producer = first.log.transactional_producer("q")
    second = Engine(server)
    second.log.transactional_producer("q")
    with pytest.raises(ProducerFenced):
        producer.begin()
    assert (first.lost, second.lost) == (1, 0)


def test_an_outage_ends_no_lease_of_an_engine_that_nobody_replaces(tmp_path: Path) -> None:
    lost: list[str] = []

    def leased(address: str, name: str) -> EngineLog:
        log = ExternalLog(ExternalLogSettings.of({"bootstrap.servers": address}, "x"), patience_s=0.5)
        return EngineLog(log, lambda: lost.append(name), outlasts=True)

    with open_log(tmp_path, sync="never") as log:
        with LogServer(log, port=0) as running:
            port, first = running.port, leased(running.address, "first")
            first.create_topic("src", 1)
        with pytest.raises(LogUnavailable):
            first.commit_offsets("group", {HERE: 1})
        with LogServer(log, port=port) as running:
            first.commit_offsets("group", {HERE: 2})
            assert first.committed_offsets("group") == {HERE: 2}
            assert not lost
            second = leased(running.address, "second")
            second.check_lease()
            with pytest.raises(ProducerFenced):
                first.check_lease()
            assert lost == ["first"]
            second.check_lease()
            first.close()
            second.close()
