"""A server whose log is the Kafka port of another Millstream: the same path as on Apache Kafka, without Java."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from frame_relay import FrameRelay
from running_server import service_in
from waiting import eventually

import millstream
from millstream.logcore.client import FetchedColumns, FetchedRows, LogClient, RowRecords
from millstream.logcore.errors import LogError
from millstream.logcore.log import Log, open_log
from millstream.logcore.protocol.wire.apis import Api
from millstream.logcore.server import LogServer
from millstream.server.engine.session import Session
from millstream.server.service import Service

_SCHEMA = pa.schema([("timestamp", pa.int64()), ("key", pa.binary()), ("value", pa.binary())])


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "log", sync="never") as opened:
        yield opened


@pytest.fixture
def address(log: Log) -> Iterator[str]:
    with LogServer(log, port=0) as running:
        yield running.address


def server(folder: Path, address: str, panicked: Callable[[str], None] = lambda reason: None) -> Service:
    properties = {
        "ksql.service.id": "guest",
        "auto.offset.reset": "earliest",
        "ksql.streams.cache.max.bytes.buffering": "0",
    }
    made = service_in(folder, kafka="external", external={"bootstrap.servers": address}, properties=properties)
    return Service(made.configuration, panicked)


def produce(log: LogClient, topic: str, *rows: tuple[str, str]) -> None:
    columns = {
        "timestamp": [0] * len(rows),
        "key": [key.encode() for key, _ in rows],
        "value": [value.encode() for _, value in rows],
    }
    log.append(topic, 0, RowRecords(pa.table(columns, schema=_SCHEMA)))


def values(log: LogClient, topic: str) -> list[str]:
    found: list[str] = []
    for run in log.fetch(topic, 0, 0).runs:
        assert isinstance(run, FetchedRows)
        found += [value.decode() for value in run.table["value"].to_pylist()]
    return found


_STATEMENTS = (
    "CREATE STREAM clicks (u STRING KEY, n INT) WITH (kafka_topic='clicks', value_format='JSON');"
    "CREATE TABLE sums WITH (kafka_topic='sums', cleanup_policy='delete') AS"
    " SELECT u, SUM(n) AS n FROM clicks GROUP BY u;"
)


def test_state_is_columnar_there_and_comes_back(log: Log, address: str, tmp_path: Path) -> None:
    log.create_topic("clicks", 1)
    produce(log, "clicks", ("a", '{"N": 1}'), ("a", '{"N": 2}'))
    with server(tmp_path / "one", address) as first:
        first.engine.execute(_STATEMENTS, Session())
        eventually(lambda: "sums" in log.topics() and len(values(log, "sums")) == 2)
    (changelog,) = [name for name in log.topics() if name.endswith("-changelog")]
    assert changelog.startswith("millstream-guest-")
    assert all(isinstance(run, FetchedColumns) for run in log.fetch(changelog, 0, 0).runs)
    produce(log, "clicks", ("a", '{"N": 4}'))
    with server(tmp_path / "two", address):
        eventually(lambda: len(values(log, "sums")) == 3)
        assert values(log, "sums") == ['{"N":1}', '{"N":3}', '{"N":7}']


def test_a_program_connects_to_brokers(log: Log, address: str, tmp_path: Path) -> None:
    log.create_topic("clicks", 1)
    produce(log, "clicks", ("a", '{"N": 1}'))
    with millstream.connect(kafka={"bootstrap.servers": address, "ksql.service.id": "app_"}) as ms:
        ms.sql("CREATE STREAM clicks (u STRING KEY, n INT) WITH (kafka_topic='clicks', value_format='JSON');")
        assert ms.sql("SELECT u, n FROM clicks;").fetchall() == [("a", 1)]
    assert "millstream-app_command" in log.topics()


def test_the_second_server_with_a_service_id_ends_the_first(log: Log, address: str, tmp_path: Path) -> None:
    log.create_topic("clicks", 1)
    ended: list[str] = []
    over = threading.Event()

    def panicked(reason: str) -> None:
        ended.append(reason)
        over.set()

    with server(tmp_path / "one", address, panicked) as first:
        first.engine.execute(_STATEMENTS, Session())
        with server(tmp_path / "two", address) as second:
            with pytest.raises(Exception, match=r"another engine|newer|taken"):
                first.engine.execute("CREATE TYPE point AS STRUCT<x INT>;", Session())
            assert over.wait(30)
            assert "has taken over" in ended[0]
            produce(log, "clicks", ("a", '{"N": 1}'))
            eventually(lambda: values(log, "sums") == ['{"N":1}'])
            second.engine.execute("CREATE TYPE point AS STRUCT<x INT>;", Session())


def test_a_statement_that_is_in_doubt_is_answered_when_the_brokers_are_back(log: Log, tmp_path: Path) -> None:
    relay, ended = FrameRelay(), list[str]()
    advertised = ("127.0.0.1", relay.port)
    with ThreadPoolExecutor(1) as pool, LogServer(log, port=0, advertised=advertised) as brokers:
        relay.lead_to(brokers.port)
        first = server(tmp_path / "one", relay.address, ended.append)
        first.start()

        def create(name: str) -> None:
            first.engine.execute(f"CREATE TYPE {name} AS STRUCT<x INT>;", Session())

        relay.lose_answer_of(Api.END_TXN)
        statement = pool.submit(create, "acknowledgement_lost")
        assert relay.gone.wait(30)
        time.sleep(0.5)
        relay.come_back()
        statement.result(60)
        create("after_it")
        assert first.engine.catalog.types.keys() == {"ACKNOWLEDGEMENT_LOST", "AFTER_IT"}
        assert not ended

        relay.lose_answer_of(Api.END_TXN)
        statement = pool.submit(create, "at_the_end")
        assert relay.gone.wait(30)
        began = time.monotonic()
        first.stop()
        assert time.monotonic() - began < 30
        with pytest.raises(LogError):
            statement.result(1)
        relay.come_back()
        with server(tmp_path / "two", relay.address) as second:
            assert second.engine.catalog.types.keys() == {"ACKNOWLEDGEMENT_LOST", "AFTER_IT", "AT_THE_END"}
    relay.close()
