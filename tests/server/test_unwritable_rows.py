"""A row that its sink's format cannot hold goes to the processing log, and the query goes on without it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from spark_in_process import SparkInProcess
from waiting import eventually

from millstream.errors import InvalidStatement
from millstream.executor import processing_log
from millstream.executor.formats import decode_logical
from millstream.logcore.client import FetchedRows
from millstream.server.engine.embedded import EmbeddedEngine, open_engine
from millstream.server.engine.session import Session

EARLIEST = {"auto.offset.reset": "earliest"}
WHY = "PROTOBUF holds no NULL inside an array or a map"


VALUES = {
    "a ARRAY<INT>": ("ARRAY[1, 2]", "ARRAY[1, NULL]"),
    "a MAP<STRING, INT>": ("MAP('x' := 1)", "MAP('x' := CAST(NULL AS INT))"),
    "a ARRAY<STRUCT<f INT>>": ("ARRAY[STRUCT(f := 1)]", "ARRAY[STRUCT(f := 1), CAST(NULL AS STRUCT<f INT>)]"),
}
"""Of each column a value that PROTOBUF holds and one that it does not."""


@pytest.fixture(params=["duckdb", "spark"])
def engine(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedEngine]:
    SparkInProcess(monkeypatch)
    settings = {**EARLIEST, "millstream.executor": request.param}
    with open_engine(tmp_path, settings, sync="never") as engine:
        yield engine


def records(engine: EmbeddedEngine, topic: str) -> list[dict[str, Any]]:
    if topic not in engine.log.topics():
        return []
    found: list[dict[str, Any]] = []
    for partition in range(engine.log.topics()[topic].partition_count):
        for run in engine.log.fetch(topic, partition, 0).runs:
            assert isinstance(run, FetchedRows)
            found += run.table.to_pylist()
    return found


def messages(engine: EmbeddedEngine) -> list[dict[str, Any]]:
    return [json.loads(record["value"])["message"] for record in records(engine, processing_log.TOPIC)]


def rows_of(engine: EmbeddedEngine, name: str) -> list[dict[str, Any]]:
    """The values of a topic in PROTOBUF, in order."""
    source = engine.catalog.sources[name]
    return [
        decode_logical(source.value_format, source.schema.value, record["value"])
        for record in records(engine, source.topic)
    ]


def states(engine: EmbeddedEngine) -> set[str]:
    return {engine.executor.status(query).state for query in engine.catalog.queries}


def places(engine: EmbeddedEngine) -> set[tuple[int, int]]:
    """Of the input records that the processing log names; no record has two entries."""
    found = [message["serializationError"] for message in messages(engine)]
    distinct = {(each["partition"], each["offset"]) for each in found}
    assert len(distinct) == len(found)
    assert {(message["type"], each["topic"]) for message, each in zip(messages(engine), found, strict=True)} <= {
        (3, "s")
    }
    return distinct


@pytest.mark.parametrize("partitions", [1, 6])
@pytest.mark.parametrize("column", VALUES)
def test_a_null_inside_a_container_is_left_out_of_protobuf(
    engine: EmbeddedEngine, partitions: int, column: str
) -> None:
    good, bad = VALUES[column]
    session = Session()
    engine.execute(
        f"CREATE STREAM s (k INT KEY, {column}) WITH (kafka_topic='s', format='JSON', partitions={partitions});"
        "CREATE STREAM o WITH (value_format='PROTOBUF') AS SELECT * FROM s;",
        session,
    )
    for k in range(12):
        engine.execute(f"INSERT INTO s (k, a) VALUES ({k}, {bad if k % 4 == 1 else good});", session)
    eventually(lambda: len(records(engine, "O")) + len(messages(engine)) >= 12)
    assert sorted(json.loads(record["key"]) for record in records(engine, "O")) == [k for k in range(12) if k % 4 != 1]
    assert len(places(engine)) == 3
    assert {message["serializationError"]["errorMessage"] for message in messages(engine)} == {WHY}
    assert {message["serializationError"]["target"] for message in messages(engine)} == {"value"}
    assert states(engine) == {"RUNNING"}


def test_a_tables_row_that_cannot_be_written_stays_as_it_was_until_one_can(engine: EmbeddedEngine) -> None:
    session = Session()
    engine.execute(
        "CREATE STREAM s (k INT KEY, v INT) WITH (kafka_topic='s', format='JSON', partitions=1);"
        "CREATE TABLE o WITH (value_format='PROTOBUF') AS "
        "SELECT k, COUNT(*) AS n, ARRAY[LATEST_BY_OFFSET(v, false)] AS a FROM s GROUP BY k;",
        session,
    )
    for count, v in enumerate([1, "NULL", "NULL", 4], 1):
        engine.execute(f"INSERT INTO s (k, v) VALUES (7, {v});", session)
        eventually(lambda count=count: len(records(engine, "O")) + len(messages(engine)) >= count)
    lines = rows_of(engine, "O")
    assert [(line["N"], line["A"]) for line in lines] == [(1, [1]), (4, [4])]  # the state has them all
    assert places(engine) == {(0, 1), (0, 2)}
    assert states(engine) == {"RUNNING"}


@pytest.mark.parametrize("partitions", [1, 6])
def test_a_key_that_cannot_be_written_is_left_out(engine: EmbeddedEngine, partitions: int) -> None:
    session = Session()
    engine.execute(
        f"CREATE STREAM s (k INT KEY, a ARRAY<INT>) WITH (kafka_topic='s', format='JSON', partitions={partitions});"
        "CREATE STREAM o WITH (key_format='PROTOBUF', value_format='JSON') AS SELECT a, k AS was FROM s PARTITION BY a;"
        "CREATE TABLE t WITH (key_format='PROTOBUF', value_format='JSON') AS SELECT a, COUNT(*) AS n FROM s "
        "GROUP BY a;",
        session,
    )
    for k in range(8):
        engine.execute(f"INSERT INTO s (k, a) VALUES ({k}, ARRAY[{k}, {'NULL' if k % 4 == 1 else 2}]);", session)
    eventually(lambda: len(records(engine, "O")) + len(records(engine, "T")) + len(messages(engine)) >= 16)
    assert sorted(json.loads(record["value"])["WAS"] for record in records(engine, "O")) == [0, 2, 3, 4, 6, 7]
    assert len(records(engine, "T")) == 6
    assert [message["serializationError"]["target"] for message in messages(engine)] == ["key"] * 4
    assert states(engine) == {"RUNNING"}


@pytest.mark.parametrize("column", VALUES)
def test_an_insert_that_the_format_cannot_hold_is_refused_and_writes_nothing(
    engine: EmbeddedEngine, column: str
) -> None:
    good, bad = VALUES[column]
    session = Session()
    engine.execute(
        f"CREATE STREAM s (k INT KEY, {column}) WITH (kafka_topic='s', value_format='PROTOBUF', partitions=6);", session
    )
    with pytest.raises(
        InvalidStatement, match=f"Failed to insert values into 'S'. Could not serialize the value: {WHY}"
    ):
        engine.execute(f"INSERT INTO s (k, a) VALUES (1, {bad});", session)
    with pytest.raises(InvalidStatement, match=f"Could not serialize the value of row 2: {WHY}"):
        engine.execute(f"INSERT INTO s (k, a) VALUES (1, {good}), (2, {bad}), (3, {good});", session)
    assert records(engine, "s") == []
