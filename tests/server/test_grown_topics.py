"""Partitions that a topic gets while it is read: nothing in them is lost, and rows of a key stay together."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import httpx
import pyarrow as pa
import pytest
from running_server import service_in
from waiting import eventually

from millstream.executor.answers import push_query
from millstream.executor.queries import query, turns
from millstream.logcore.client import LogAdmin, RowRecords
from millstream.logcore.murmur2 import partitions_of
from millstream.server.service import Service

DDL = """
CREATE STREAM {0} (id STRING KEY, v INT) WITH (kafka_topic='{0}', value_format='JSON', partitions=2);
CREATE TABLE {0}_t (id STRING PRIMARY KEY, v INT) WITH (kafka_topic='{0}', value_format='JSON');
"""
QUERIES = """
CREATE STREAM {0}_copied AS SELECT * FROM {0};
CREATE TABLE {0}_counted AS SELECT id, COUNT(*) AS n FROM {0} GROUP BY id;
CREATE TABLE {0}_windows AS
  SELECT id, COUNT(*) AS n FROM {0} WINDOW TUMBLING (SIZE 1 SECOND, GRACE PERIOD 0 SECONDS) GROUP BY id;
"""
KEYS = [f"k{number}" for number in range(16)]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (query, push_query, turns):
            patch.setattr(module, "PARTITIONS_S", 0.05)
        with service_in(tmp_path_factory.mktemp("grown") / "data") as started:
            yield started


def run(service: Service, statements: str) -> None:
    answer = httpx.post(f"http://{service.http_address}/ksql", json={"ksql": statements}, timeout=60)
    assert answer.status_code == 200, answer.text


def grow(service: Service, topic: str, partition_count: int) -> None:
    cast(LogAdmin, service.engine.log).add_partitions(topic, partition_count)


def rows(service: Service, sql: str) -> list[list[object]]:
    asked = {"ksql": sql, "streamsProperties": {"millstream.pull.full.sql": "true"}}
    answer = httpx.post(f"http://{service.http_address}/query", json=asked, timeout=60)
    answer.raise_for_status()
    return sorted(each["row"]["columns"] for each in answer.json() if "row" in each)


def produce(service: Service, topic: str, value: int, *, from_partition: int = 0) -> int:
    """A record for each key at this time, where Kafka's clients write it, if not before that partition. How many."""
    count = 0
    log = service.engine.log
    keys = pa.array([key.encode() for key in KEYS], pa.binary())
    for key, partition in zip(KEYS, partitions_of(keys, log.partition_count(topic)).tolist(), strict=True):
        table = pa.table(
            {
                "timestamp": pa.array([value], pa.int64()),
                "key": pa.array([key.encode()], pa.binary()),
                "value": pa.array([json.dumps({"V": value}).encode()], pa.binary()),
            }
        )
        if partition >= from_partition:
            log.append(topic, partition, RowRecords(table))
            count += 1
    return count


def test_queries_read_the_partitions_that_their_topic_gets(service: Service) -> None:
    run(service, DDL.format("a") + QUERIES.format("a"))  # from the end of the topic on
    produce(service, "a", 1)
    assert eventually(lambda: len(rows(service, "SELECT * FROM a_copied;")) == len(KEYS))
    grow(service, "a", 4)
    produce(service, "a", 2)
    assert eventually(lambda: len(rows(service, "SELECT * FROM a_copied;")) == 2 * len(KEYS))
    assert eventually(lambda: rows(service, "SELECT * FROM a_counted;") == [[key, 2] for key in sorted(KEYS)])
    grow(service, "a", 8)
    more = produce(service, "a", 3, from_partition=4)
    assert more
    assert eventually(lambda: len(rows(service, "SELECT * FROM a_copied;")) == 2 * len(KEYS) + more), (
        "nothing else came"
    )


def test_a_query_that_begins_at_the_end_misses_nothing_of_partitions_that_came_while_it_was_paused(
    service: Service,
) -> None:
    run(service, DDL.format("b") + QUERIES.format("b") + "PAUSE ALL;")
    grow(service, "b", 4)
    for time in (0, 1000, 2000):
        produce(service, "b", time)
    run(service, "RESUME ALL;")
    assert eventually(lambda: rows(service, "SELECT * FROM b_counted;") == [[key, 3] for key in sorted(KEYS)])
    windows = [[key, start, 1] for key in sorted(KEYS) for start in (0, 1000, 2000)]
    assert eventually(lambda: rows(service, "SELECT id, WINDOWSTART, n FROM b_windows;") == windows), "in time order"


@pytest.mark.parametrize(("topic", "comparison"), [("c", "="), ("d", "LIKE")])
def test_pull_queries_of_a_declared_table_look_into_partitions_that_its_topic_gets(
    service: Service, topic: str, comparison: str
) -> None:
    run(service, DDL.format(topic))
    found = f"SELECT * FROM {topic}_t WHERE id {comparison} '{{0}}';"
    produce(service, topic, 1)
    assert [rows(service, found.format(key)) for key in KEYS] == [[[key, 1]] for key in KEYS]
    grow(service, topic, 4)
    produce(service, topic, 2)
    assert [rows(service, found.format(key)) for key in KEYS] == [[[key, 2]] for key in KEYS]


def test_a_push_query_sends_what_comes_to_new_partitions(service: Service) -> None:
    run(service, DDL.format("e"))
    asked = {"sql": "SELECT id, v FROM e EMIT CHANGES;", "properties": {}}
    found: set[str] = set()
    with httpx.stream("POST", f"http://{service.http_address}/query-stream", json=asked, timeout=60) as answer:
        lines = answer.iter_lines()
        next(lines)
        grow(service, "e", 4)
        produce(service, "e", 1)
        while len(found) < len(KEYS):
            found.add(json.loads(next(lines))[0])
    assert found == set(KEYS)


def test_an_insert_goes_to_the_partition_that_other_producers_take(service: Service) -> None:
    run(service, DDL.format("f"))
    grow(service, "f", 4)
    run(service, "".join(f"INSERT INTO f VALUES ('{key}', 1);" for key in KEYS))
    wanted = partitions_of(pa.array([key.encode() for key in KEYS], pa.binary()), 4).tolist()
    assert rows(service, "SELECT id, ROWPARTITION FROM f;") == sorted(
        [key, partition] for key, partition in zip(KEYS, wanted, strict=True)
    )


def test_describe_tells_how_many_partitions_there_are(service: Service) -> None:
    run(service, DDL.format("g"))
    grow(service, "g", 3)
    answer = httpx.post(f"http://{service.http_address}/ksql", json={"ksql": "DESCRIBE g EXTENDED;"}, timeout=60)
    assert answer.json()[0]["sourceDescription"]["partitions"] == 3


def test_a_number_of_partitions_that_is_no_multiple_is_warned_of_where_state_goes_by_the_source(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    warned: list[tuple[str, object]] = []

    def warning(event: str, *, query_id: str, partitions: object = None, **_: object) -> None:
        if event == "keys have moved to other tasks":
            warned.append((query_id.rsplit("_", 1)[0], partitions))

    monkeypatch.setattr(query, "log", SimpleNamespace(warning=warning))
    by_value = "CREATE TABLE {0}_by_v AS SELECT v, COUNT(*) AS n FROM {0} GROUP BY v;"
    run(service, DDL.format("h") + QUERIES.format("h") + by_value.format("h"))
    grow(service, "h", 4)
    produce(service, "h", 1)
    assert eventually(lambda: len(rows(service, "SELECT * FROM h_counted;")) == len(KEYS))
    assert not warned
    grow(service, "h", 5)
    produce(service, "h", 2)
    assert eventually(lambda: rows(service, "SELECT * FROM h_by_v;") == [[1, len(KEYS)], [2, len(KEYS)]])
    assert eventually(lambda: sorted(warned) == [("CTAS_H_COUNTED", {"h": 5}), ("CTAS_H_WINDOWS", {"h": 5})])
