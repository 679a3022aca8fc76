"""Rows whose times their topic does not take: INSERT VALUES, rows over HTTP, and what queries write."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import cast

import httpx
import pyarrow as pa
import pytest
from running_server import service_in
from waiting import eventually

from millstream.logcore.client import LogAdmin
from millstream.logcore.errors import InvalidTimestamps
from millstream.logcore.protocol.wire.faults import error_of
from millstream.server.http.errors import error_code_of
from millstream.server.service import Service

BEFORE, AFTER = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"
DAY_MS = "86400000"
FAR_ON = 1 << 45
DDL = """
SET 'auto.offset.reset'='earliest';
CREATE STREAM s (id INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);
CREATE STREAM free (id INT KEY, v INT) WITH (kafka_topic='free', value_format='JSON', partitions=1);
CREATE STREAM copied WITH (kafka_topic='copied') AS SELECT * FROM free;
"""


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with service_in(tmp_path_factory.mktemp("data")) as service:
        with httpx.Client(base_url=f"http://{service.http_address}", timeout=60) as client:
            client.post("/ksql", json={"ksql": DDL}).raise_for_status()
            limit(service, "s")
            limit(service, "copied")
            yield client


def limit(service: Service, topic: str) -> None:
    log = service.engine.log
    cast(LogAdmin, log).alter_topic(topic, {**log.topics()[topic].config, BEFORE: DAY_MS, AFTER: DAY_MS})


def insert(http: httpx.Client, values: str, source: str = "s") -> httpx.Response:
    return http.post("/ksql", json={"ksql": f"INSERT INTO {source} (ROWTIME, id, v) VALUES {values};"})


def values(http: httpx.Client, source: str) -> list[int]:
    lines = http.post("/query-stream", json={"sql": f"SELECT v FROM {source};"}).text.splitlines()
    return [json.loads(line)[0] for line in lines[1:]]


@pytest.mark.parametrize(("time", "side", "setting"), [(5, "before", BEFORE), (FAR_ON, "after", AFTER)])
def test_an_insert_says_which_row_which_limit_and_what_to_do(
    http: httpx.Client, time: int, side: str, setting: str
) -> None:
    refused = insert(http, f"(UNIX_TIMESTAMP(), 1, 1), ({time}, 2, 2)")
    assert (refused.status_code, refused.json()["error_code"]) == (400, 40001)
    said = refused.json()["message"]
    assert f'the ROWTIME of row 2 is {time}, and topic "s" takes nothing {side} ' in said
    assert f"raise {setting} of the topic" in said
    assert 2 not in values(http, "s")


def test_rows_of_now_are_written(http: httpx.Client) -> None:
    assert http.post("/ksql", json={"ksql": "INSERT INTO s (id, v) VALUES (1, 10);"}).status_code == 200
    assert insert(http, "(UNIX_TIMESTAMP() - 3600000, 1, 11), (UNIX_TIMESTAMP() + 3600000, 1, 12)").status_code == 200
    assert values(http, "s") == [10, 11, 12]


def test_rows_of_arrow_are_held_to_the_same_limits(http: httpx.Client) -> None:
    table = pa.table({"ID": pa.array([5], pa.int32()), "ROWTIME": pa.array([5])})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    arrow = http.post(
        "/v1/sources/S/rows",
        content=sink.getvalue().to_pybytes(),
        headers={"content-type": "application/vnd.apache.arrow.stream"},
    )
    assert (arrow.status_code, BEFORE in arrow.json()["message"]) == (400, True)
    assert http.post("/inserts-stream", content='{"target": "free"}\n{"id": 4, "v": 4}\n').json()["status"] == "ok"


def test_what_a_query_writes_has_the_times_of_its_input(http: httpx.Client) -> None:
    """It would stop otherwise, for a record that nobody can take back."""
    assert insert(http, "(5, 1, 77)", "free").status_code == 200
    eventually(lambda: 77 in values(http, "copied"))


def test_brokers_of_others_refuse_times_by_limits_that_only_they_know() -> None:
    """Those of Kafka 4 take nothing that is an hour ahead, where the topic does not say otherwise."""
    for message in (None, "INVALID_TIMESTAMPS: 1 records are rejected"):
        error = error_of(32, message, "append to s")
        assert isinstance(error, InvalidTimestamps)
        assert error_code_of(error) == 40001
