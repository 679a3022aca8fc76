"""Kafka clients read columnar topics as rows."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from millstream.errors import LogError
from millstream.executor.columnar import columnar_batch
from millstream.logcore.client import ColumnarRecords, Topic
from millstream.logcore.client import TopicPartition as Place
from millstream.logcore.log import Log, open_log
from millstream.logcore.murmur2 import partition_of
from millstream.logcore.remote import RemoteLog, trusted_address
from millstream.logcore.server import LogServer
from millstream.server.engine.embedded import engine_on
from millstream.server.engine.engine import Engine
from millstream.server.engine.session import Session
from millstream.server.foreign_rows import ForeignRows, is_own_name

from ..logcore.log_records import rows


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with (
        open_log(tmp_path / "log", sync="never") as log,
        engine_on(log, tmp_path, {"millstream.executor": "duckdb"}) as running,
    ):
        yield running


@pytest.fixture
def address(engine: Engine) -> Iterator[str]:
    assert isinstance(engine.log, Log)
    with LogServer(engine.log, port=0, transcoder=ForeignRows(lambda: engine.catalog)) as server:
        yield server.address


def run(engine: Engine, text: str) -> None:
    engine.execute(text, Session())


Row = tuple[int, bytes | None, bytes | None, int]


def read(address: str, topic: str, partition: int = 0, offset: int = 0) -> list[Row]:
    """Offset, key, value and time of all records from an offset on."""
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "g", "enable.partition.eof": True, "check.crcs": True}
    )
    consumer.assign([TopicPartition(topic, partition, offset)])
    found: list[Row] = []
    deadline = time.monotonic() + 60
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found.append((message.offset(), message.key(), message.value(), message.timestamp()[1]))  # pyrefly: ignore[bad-argument-type]
            elif error.code() == KafkaError._PARTITION_EOF:
                return found
            else:
                raise KafkaException(error)
        raise TimeoutError(f"no end after {len(found)} records")
    finally:
        consumer.close()


def test_rows_of_a_columnar_topic_have_keys_values_times_and_their_own_offsets(engine: Engine, address: str) -> None:
    run(
        engine,
        "CREATE STREAM s (id STRING KEY, n INT, word STRING)"
        " WITH (kafka_topic='s', value_format='ARROW', partitions=2);"
        "INSERT INTO s (ROWTIME, id, n, word) VALUES (1000, 'a', 1, 'one');"
        "INSERT INTO s (ROWTIME, id, n, word) VALUES (2000, 'b', 2, NULL);"
        "INSERT INTO s (ROWTIME, id, n, word) VALUES (3000, 'a', 3, 'three');",
    )
    rows = {partition: read(address, "s", partition) for partition in range(2)}
    key = b"a"
    of_a = [row for row in rows[partition_of(key, 2)] if row[1] == key]
    assert [json.loads(row[2] or b"") for row in of_a] == [{"N": 1, "WORD": "one"}, {"N": 3, "WORD": "three"}]
    assert [row[3] for row in of_a] == [1000, 3000]
    for found in rows.values():
        assert [row[0] for row in found] == list(range(len(found)))


def test_a_client_may_begin_in_the_middle_of_a_columnar_batch(engine: Engine, address: str) -> None:
    run(engine, "CREATE STREAM s (n INT) WITH (kafka_topic='s', value_format='ARROW', partitions=1);")
    source = engine.catalog.sources["S"]
    count = 120_000  # more than one answer has
    meta = {"_ts": pa.array([5] * count, pa.int64()), "_null": pa.array([False] * count)}
    batch = columnar_batch(source.schema.value, [pa.array(range(count), pa.int32())], meta)
    engine.log.append("s", 0, ColumnarRecords(batch, 5))
    found = read(address, "s", 0, 700)
    assert [row[0] for row in found] == list(range(700, count))
    assert [json.loads(row[2] or b"") for row in found[:2]] == [{"N": 700}, {"N": 701}]


def test_tombstones_and_windows_of_tables_are_shown_as_they_are(engine: Engine, address: str) -> None:
    run(
        engine,
        "CREATE TABLE t (id INT PRIMARY KEY, n INT) WITH (kafka_topic='t', value_format='ARROW', key_format='KAFKA',"
        " partitions=1);"
        "INSERT INTO t (id, n) VALUES (7, 1);",
    )
    [(_, key, value, _)] = read(address, "t")
    assert (key, json.loads(value or b"")) == ((7).to_bytes(4, "big"), {"N": 1})


def test_a_topic_without_a_stream_is_shown_as_objects(engine: Engine, address: str) -> None:
    run(
        engine,
        "CREATE STREAM s (id STRING KEY, n INT) WITH (kafka_topic='s', value_format='ARROW', partitions=1);"
        "INSERT INTO s (id, n) VALUES ('a', 1);"
        "DROP STREAM s;",
    )
    [(_, key, value, _)] = read(address, "s")
    assert (key, json.loads(value or b"")) == (None, {"ID": "a", "N": 1})


def test_the_topic_says_in_what_format_or_that_columns_pass_through(engine: Engine, address: str) -> None:
    run(
        engine,
        "CREATE STREAM s (n INT, word STRING) WITH (kafka_topic='s', value_format='ARROW', partitions=1);"
        "INSERT INTO s (n, word) VALUES (1, 'one');",
    )
    log = engine.log
    assert isinstance(log, Log)
    log.alter_topic("s", {"millstream.value.format": "DELIMITED"})
    assert [row[2] for row in read(address, "s")] == [b"1,one"]
    log.alter_topic("s", {"arrow.passthrough": "true"})
    [(_, _, value, _)] = read(address, "s")
    assert value is not None and b"word" in value.lower()


def test_what_a_query_is_named_by_is_not_for_others_to_use(engine: Engine, tmp_path: Path) -> None:
    run(
        engine,
        "CREATE STREAM s (n INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);"
        "CREATE STREAM copied AS SELECT * FROM s;",
    )
    (query,) = engine.catalog.queries
    assert isinstance(engine.log, Log)
    with LogServer(engine.log, port=0) as server:
        server.is_reserved = lambda name: is_own_name(engine.catalog, name)
        with (
            RemoteLog(server.address) as stranger,
            RemoteLog(trusted_address(engine.log.served, server.address)) as ours,
        ):
            offsets = {Place("s", 0): 0}
            for name in (query, "_millstream-command-applied"):
                with pytest.raises(LogError, match="authorization"):
                    stranger.commit_offsets(name, offsets)
            for name in (query, f"{query}-3", "millstream-insert"):
                with pytest.raises(LogError, match="authorization"):
                    stranger.transactional_producer(name)
            with pytest.raises(LogError, match="authorization"):
                stranger.groups.delete(query)
            stranger.commit_offsets("mine", offsets)
            stranger.transactional_producer(f"mine-{query}")
            ours.commit_offsets(query, offsets)


def known_once_asked(known: threading.Event) -> bool:
    """Not yet for the first one who asks, and from then on: whoever was served has waited."""
    answer = known.is_set()
    known.set()
    return answer


def test_who_names_a_group_waits_until_it_is_known_whose_it_is(engine: Engine) -> None:
    """As on a node of a cluster that has just started. A refusal would end a client for good."""
    assert isinstance(engine.log, Log)
    engine.log.create_topic("s", 1)
    known = threading.Event()
    with LogServer(engine.log, port=0) as server:
        server.is_reserved, server.knows_names = lambda name: not known.is_set(), lambda: known_once_asked(known)
        with (
            RemoteLog(server.address) as stranger,
            RemoteLog(trusted_address(engine.log.served, server.address)) as ours,
        ):
            ours.commit_offsets("ours", {Place("s", 0): 0})
            stranger.commit_offsets("mine", {Place("s", 0): 0})
            assert known.is_set()


def test_a_group_is_not_refused_if_the_first_query_is_created_while_its_request_is_under_way(engine: Engine) -> None:
    """After the wait, the names are unknown again until the topic with them is read."""
    assert isinstance(engine.log, Log)
    engine.log.create_topic("s", 1)
    asked, known = itertools.count(), threading.Event()
    with LogServer(engine.log, port=0) as server:
        server.is_reserved = lambda name: not known.is_set()
        server.knows_names = lambda: next(asked) == 0 or known_once_asked(known)
        with RemoteLog(server.address) as stranger:
            stranger.commit_offsets("mine", {Place("s", 0): 0})
            assert known.is_set()


@pytest.mark.parametrize("request_of", ["records", "offsets", "the end"])
def test_transactions_go_on_while_it_is_not_known_whose_ids_they_have(engine: Engine, request_of: str) -> None:
    assert isinstance(engine.log, Log)
    engine.log.create_topic("s", 1)
    known = threading.Event()
    known.set()
    with LogServer(engine.log, port=0) as server:
        server.is_reserved, server.knows_names = lambda name: not known.is_set(), lambda: known_once_asked(known)
        with RemoteLog(server.address) as stranger:
            producer = stranger.transactional_producer("mine")
            producer.begin()
            producer.append("s", 0, rows(b"a"))
            known.clear()
            if request_of == "records":
                producer.append("s", 0, rows(b"b"))
            elif request_of == "offsets":
                producer.send_offsets("g", {Place("s", 0): 1})
            producer.commit()
            assert known.is_set()


def test_a_topic_is_named_to_the_transcoder(engine: Engine) -> None:
    table = ForeignRows(lambda: engine.catalog)(Topic("nobody", 1), pa.record_batch({"x": [1]}), 9)
    assert table.to_pylist() == [{"timestamp": 9, "key": None, "value": b'{"x":1}'}]
