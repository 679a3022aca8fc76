"""`ksql.timestamp.throw.on.invalid`: a record without a usable timestamp ends the query; without it, it is left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hand_plans import filter_plan, read_all, rows
from staged_sandbox import StagedSandbox
from waiting import eventually

from millstream.executor.answers.push_query import PushQuery
from millstream.executor.errors import QueryFailed
from millstream.executor.queries.duckdb_executor import DuckDBExecutor
from millstream.logcore.client import LogClient
from millstream.logcore.log import open_log
from millstream.planner.catalog import PersistentQuery

SOURCE = "timestamp='w', timestamp_format='yyyy-MM-dd'"
PIPELINES = {
    "of a source": (SOURCE, "CREATE STREAM o AS SELECT * FROM s;"),
    "of a sink": ("", "CREATE STREAM o WITH (timestamp='w', timestamp_format='yyyy-MM-dd') AS SELECT * FROM s;"),
    "of a grouped source": (SOURCE, "CREATE TABLE o AS SELECT w, COUNT(*) AS n FROM s GROUP BY w;"),
}


def run(executor: str, pipeline: str, stops: str) -> list[object]:
    properties, query = PIPELINES[pipeline]
    with StagedSandbox(executor=executor) as sandbox:
        sandbox.execute(
            f"SET 'ksql.timestamp.throw.on.invalid' = '{stops}';"
            "CREATE STREAM s (k STRING KEY, w STRING) WITH (kafka_topic='s', value_format='JSON', partitions=1"
            f"{', ' if properties else ''}{properties}); {query}"
        )
        for text in ("2020-01-01", "never", "2020-01-02"):
            sandbox.produce("s", "k", {"W": text})
        sandbox.drain()
        return [record["timestamp"] for record in sandbox.consume("O")]


@pytest.mark.parametrize("executor", ["duckdb", "spark"])
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_a_record_without_a_usable_timestamp_ends_the_query_if_asked(executor: str, pipeline: str) -> None:
    with pytest.raises(QueryFailed, match=r"timestamp.*offset 1 of partition 0 of s"):
        run(executor, pipeline, "true")


@pytest.mark.parametrize("executor", ["duckdb", "spark"])
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_otherwise_the_record_is_left_out(executor: str, pipeline: str) -> None:
    assert len(run(executor, pipeline, "false")) == 2


@pytest.fixture
def client(tmp_path: Path) -> Iterator[LogClient]:
    client = open_log(tmp_path / "log", sync="never")
    for topic in ("input", "filtered"):
        client.create_topic(topic, 1)
    times = {3: -1}
    client.append("input", 0, rows([(f"k{n}", {"V": n, "W": "w"}, times.get(n, n)) for n in range(1, 6)]))
    yield client
    client.close()


STOPS = {"auto.offset.reset": "earliest", "ksql.timestamp.throw.on.invalid": "true"}


def test_a_servers_query_writes_what_comes_before_it_and_stops(client: LogClient, tmp_path: Path) -> None:
    executor = DuckDBExecutor(client, tmp_path / "queries")
    executor.start(PersistentQuery("FILTER_1", "", replace(filter_plan(), properties=STOPS), "SINK", (), "CREATE_AS"))
    eventually(lambda: executor.status("FILTER_1").state == "ERROR")
    assert "offset 2 of partition 0 of input" in (executor.status("FILTER_1").error or "")
    assert [record["value"]["V"] for record in read_all(client, "filtered")] == [2, 4]
    executor.close()


def test_a_push_query_ends_there(client: LogClient) -> None:
    plan = filter_plan()
    push = PushQuery(replace(plan, root=plan.root.input, properties=STOPS), client)  # pyrefly: ignore[missing-attribute]
    with pytest.raises(QueryFailed, match="the timestamp is not usable: -1"):
        push.poll()
