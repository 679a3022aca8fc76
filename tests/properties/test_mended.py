"""Mistakes that the laws have found, each as the small case that shows it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hand_plans import rows
from pipelines import aggregate, call, expression, plan, rekey, run, stream
from planning import Planner

from millstream.executor.queries.query import QueryRuntime
from millstream.logcore.client import LogClient
from millstream.logcore.log import open_log
from millstream.sql.types import DOUBLE, STRING

PROPERTIES = {
    "auto.offset.reset": "earliest",
    "ksql.streams.cache.max.bytes.buffering": "0",
    "millstream.duckdb.threads": "1",
}
SOURCE = "CREATE STREAM s (k {0} KEY, v INT, a ARRAY<INT>) WITH (kafka_topic='s', value_format='{1}', partitions={2});"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[LogClient]:
    client = open_log(tmp_path, sync="never")
    yield client
    client.close()


def open_query(client: LogClient, text: str) -> QueryRuntime:
    """The one query in `text`, on the topics that the statements name."""
    planner = Planner()
    (physical,) = planner.plans(text)
    for topic in planner.topics.keys() - client.topics().keys():
        client.create_topic(topic, planner.topics[topic])
    return QueryRuntime(replace(physical, query_id=physical.root.topic), client, None, PROPERTIES)  # pyrefly: ignore[missing-attribute]


def run_query(client: LogClient, text: str, max_bytes: int = 1 << 20) -> QueryRuntime:
    runtime = open_query(client, text)
    while runtime.step(max_bytes):
        pass
    runtime.close()
    return runtime


def written(client: LogClient, topic: str = "O") -> list[list[tuple[Any, Any]]]:
    """Key and value of the records, per partition."""
    partitions: list[list[tuple[Any, Any]]] = []
    for partition in range(client.topics()[topic].partition_count):
        fetched = client.fetch(topic, partition, 0)
        records = [record for run_ in fetched.runs for record in run_.table.to_pylist()]  # pyrefly: ignore[missing-attribute]
        partitions.append([(record["key"], record["value"] and json.loads(record["value"])) for record in records])
    return partitions


def test_a_streams_row_without_value_passes_no_filter(client: LogClient) -> None:
    client.create_topic("s", 1)
    client.append("s", 0, rows([("a", {"V": 1}, 1), ("b", None, 2), ("c", {"V": None}, 3)]))
    source = SOURCE.format("STRING", "JSON", 1)
    run_query(client, source + "CREATE STREAM o AS SELECT k, v FROM s WHERE v IS NULL EMIT CHANGES;")
    assert written(client) == [[(b"c", {"V": None})]]


def test_parentheses_around_a_partitioning_expression_make_no_difference() -> None:
    text = SOURCE.format("STRING", "JSON", 1) + "CREATE STREAM o AS SELECT {0} AS n, a FROM s PARTITION BY {1};"
    for selected, by in (("(v + 1)", "(v + 1)"), ("v + 1", "(v + 1)"), ("(v + 1)", "v + 1")):
        (physical,) = Planner().plans(text.format(selected, by))
        assert physical.root.schema.key[0].name == "N"  # pyrefly: ignore[missing-attribute]


@pytest.mark.parametrize(
    "selected", ["CASE WHEN v > 1 THEN v ELSE 0 END", "CASE v WHEN 1 THEN 2 END", "STRUCT(x := v, y := 1)"]
)
def test_a_grouping_expression_can_be_part_of_case_and_struct(selected: str) -> None:
    text = f"CREATE TABLE o AS SELECT v, {selected} AS x, COUNT(*) AS n FROM s GROUP BY v;"
    assert list(Planner().plans(SOURCE.format("STRING", "JSON", 1) + text))


@pytest.mark.parametrize("selected", ["v", "1 AS one"])
def test_a_malformed_record_is_an_error_whatever_is_selected(client: LogClient, selected: str) -> None:
    client.create_topic("s", 1)
    client.append("s", 0, rows([("a", (7).to_bytes(4, "big"), 1), ("b", b"123", 2)]))
    source = "CREATE STREAM s (k STRING KEY, v INT) WITH (kafka_topic='s', value_format='KAFKA', partitions=1);"
    runtime = run_query(
        client, source + f"CREATE STREAM o WITH (value_format='JSON') AS SELECT k, {selected} FROM s EMIT CHANGES;"
    )
    assert [key for key, _ in written(client)[0]] == [b"a"]
    assert runtime.metrics.rows_failed == 1


def test_all_windows_of_a_key_are_in_one_partition(client: LogClient) -> None:
    client.create_topic("s", 4)
    client.append("s", 2, rows([("a", {"V": 1}, second * 1_000) for second in range(20)]))
    source = SOURCE.format("STRING", "JSON", 4)
    run_query(
        client,
        source
        + "CREATE TABLE o AS SELECT k, COUNT(*) AS n FROM s WINDOW TUMBLING (SIZE 1 SECOND) GROUP BY k EMIT CHANGES;",
    )
    assert sorted(map(len, written(client))) == [0, 0, 0, 20]


def test_rows_that_a_new_key_format_brings_together_are_in_the_order_of_time(client: LogClient) -> None:
    def outcome(max_bytes: int, name: str) -> list[list[tuple[Any, Any]]]:
        run_query(
            client,
            SOURCE.format("STRING", "JSON", 3)
            + f"CREATE STREAM {name} WITH (key_format='JSON') AS SELECT k, v FROM s EMIT CHANGES;",
            max_bytes,
        )
        return written(client, name)

    client.create_topic("s", 3)
    for time in range(0, 60, 2):
        partition = time // 2 % 3
        client.append("s", partition, rows([(f"k{partition}", {"V": time + i}, time + i) for i in range(2)]))
    whole = outcome(1 << 20, "WHOLE")
    assert outcome(1, "CUT") == whole
    for records in whole:
        times = [value["V"] for _, value in records]
        assert times == sorted(times)


@pytest.mark.parametrize("ends", [(), (1,), (2, 4), (1, 2, 3, 4, 5)])
def test_the_two_zeros_are_one_group(ends: tuple[int, ...]) -> None:
    source = stream((STRING,), (DOUBLE,))
    step = aggregate(rekey(source, expression("v0", DOUBLE), (DOUBLE,)), [call("COUNT")], (DOUBLE,))
    records = [{"k0": "a", "v0": value} for value in (0.0, -0.0, 0.0, -0.0, 1.0, -0.0)]
    assert [str(row["k0"]) for row in run(plan(step), records, ends)] == ["0.0"] * 4 + ["1.0", "0.0"]
    assert [row["v0"] for row in run(plan(step), records, ends)] == [1, 2, 3, 4, 1, 5]


def test_a_record_counts_once_however_many_of_its_rows_have_no_timestamp(client: LogClient) -> None:
    client.create_topic("s", 1)
    client.append("s", 0, rows([("a", {"V": 1, "A": [1, -1, -2]}, 1), ("b", {"A": [-3, -4]}, 2), ("c", {"A": [5]}, 3)]))
    runtime = run_query(
        client,
        SOURCE.format("STRING", "JSON", 1)
        + "CREATE STREAM o WITH (timestamp='T') AS SELECT k, CAST(EXPLODE(a) AS BIGINT) AS t FROM s EMIT CHANGES;",
    )
    metrics = runtime.metrics
    assert (metrics.rows_in, metrics.rows_used, metrics.rows_failed, metrics.rows_dropped) == (3, 1, 2, 0)
    assert [value["T"] for _, value in written(client)[0]] == [1, 5]


@pytest.mark.parametrize("partitions", [1, 2, 6])
def test_a_stream_without_key_keeps_its_rows_over_any_number_of_partitions(client: LogClient, partitions: int) -> None:
    client.create_topic("s", partitions)
    for partition in range(partitions):
        client.append("s", partition, rows([(f"k{partition}", {"V": partition}, 1), (None, {"V": 10 + partition}, 2)]))
    runtime = run_query(
        client,
        SOURCE.format("STRING", "JSON", partitions) + "CREATE STREAM o AS SELECT v FROM s PARTITION BY NULL;",
    )
    assert runtime.metrics.rows_failed == 0
    expected = [[(None, {"V": partition}), (None, {"V": 10 + partition})] for partition in range(partitions)]
    assert written(client) == expected


@pytest.mark.parametrize("partitions", [1, 2, 6])
def test_a_join_can_be_followed_by_partition_by_null(client: LogClient, partitions: int) -> None:
    for topic in ("s", "t"):
        client.create_topic(topic, partitions)
        for partition in range(partitions):
            client.append(topic, partition, rows([(f"k{partition}", {"V": partition}, 1)]))
    table = SOURCE.format("STRING PRIMARY", "JSON", partitions).replace("STREAM s", "TABLE t").replace("'s'", "'t'")
    run_query(
        client,
        SOURCE.format("STRING", "JSON", partitions)
        + table
        + "CREATE STREAM o AS SELECT s.v AS v, t.v AS w FROM s LEFT JOIN t ON s.k = t.k PARTITION BY NULL;",
    )
    records = [record for partition in written(client) for record in partition]
    assert [key for key, _ in records] == [None] * partitions
    assert sorted(value["V"] for _, value in records) == list(range(partitions))
