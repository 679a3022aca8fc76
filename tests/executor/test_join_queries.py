"""Joins as persistent queries over a real log: several partitions, and a restart in the middle."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hand_plans import read_all, rows
from planning import Planner

from millstream.executor.queries.query import QueryRuntime
from millstream.logcore.client import LogClient
from millstream.logcore.log import open_log
from millstream.logcore.murmur2 import partitions_of
from millstream.planner.physical import PhysicalPlan

PARTITIONS = 4
KEYS = [f"k{i}" for i in range(20)]
DECLARED = """
    CREATE STREAM clicks (id STRING KEY, person STRING, n INT)
      WITH (kafka_topic='clicks', value_format='JSON', partitions=4);
    CREATE STREAM views (id STRING KEY, person STRING, n INT)
      WITH (kafka_topic='views', value_format='JSON', partitions=4);
    CREATE TABLE people (id STRING PRIMARY KEY, person STRING, n INT)
      WITH (kafka_topic='people', value_format='JSON', partitions=4);
    CREATE TABLE towns (id STRING PRIMARY KEY, n INT) WITH (kafka_topic='towns', value_format='JSON', partitions=4);
"""


@pytest.fixture
def client(tmp_path: Path) -> Iterator[LogClient]:
    client = open_log(tmp_path / "log", sync="never")
    for topic in ("clicks", "views", "people", "towns", "J"):
        client.create_topic(topic, PARTITIONS)
    yield client
    client.close()


def planned(query: str) -> PhysicalPlan:
    plans = list(Planner(properties={"auto.offset.reset": "earliest"}).plans(DECLARED + query))
    return plans[-1]


def produce(client: LogClient, topic: str, records: list[tuple[str, dict[str, object] | None, int]]) -> None:
    """Each to the partition of its key."""
    partitions = partitions_of(pa.array([key.encode() for key, _, _ in records], pa.binary()), PARTITIONS)
    for partition in range(PARTITIONS):
        own = [record for record, at in zip(records, partitions.tolist(), strict=True) if at == partition]
        if own:
            client.append(topic, partition, rows(own))


def run(plan: PhysicalPlan, client: LogClient, state: Path | None) -> None:
    runtime = QueryRuntime(plan, client, state)
    while runtime.step(1 << 20):
        pass
    runtime.close()


def results(client: LogClient) -> list[tuple[Any, ...]]:
    return sorted((r["key"].decode(), *(r["value"] or {}).values()) for r in read_all(client, "J", range(PARTITIONS)))


@pytest.mark.parametrize("in_memory", [True, False])
@pytest.mark.parametrize("moving", [False, True])
def test_two_streams_meet_across_a_restart(client: LogClient, tmp_path: Path, moving: bool, in_memory: bool) -> None:
    on = "c.person = v.person" if moving else "c.id = v.id"
    key = "c.person" if moving else "c.id"
    plan = planned(f"CREATE STREAM j AS SELECT {key}, c.n, v.n FROM clicks c JOIN views v WITHIN 1 MINUTE ON {on};")
    state = None if in_memory else tmp_path / "state"
    produce(client, "clicks", [(key, {"PERSON": f"p{i}", "N": i}, 1_000 + i) for i, key in enumerate(KEYS)])
    run(plan, client, state)
    assert results(client) == []
    produce(client, "views", [(key, {"PERSON": f"p{i}", "N": -i}, 2_000 + i) for i, key in enumerate(KEYS)])
    run(plan, client, state)
    assert results(client) == sorted((f"p{i}" if moving else key, i, -i) for i, key in enumerate(KEYS))


def test_rows_that_wait_for_a_partner_survive_a_restart(client: LogClient) -> None:
    plan = planned(
        "CREATE STREAM j AS SELECT c.id, c.n, v.n FROM clicks c LEFT JOIN views v "
        "WITHIN 1 SECOND GRACE PERIOD 0 SECONDS ON c.id = v.id;"
    )
    produce(client, "clicks", [(key, {"N": i}, 1_000) for i, key in enumerate(KEYS)])
    run(plan, client, None)
    produce(client, "views", [(KEYS[0], {"N": 7}, 1_500)])
    run(plan, client, None)
    assert results(client) == [(KEYS[0], 0, 7)]
    produce(client, "views", [(key, {"N": 9}, 60_000) for key in KEYS])  # moves the stream time of every task
    run(plan, client, None)
    alone = [(key, i, None) for i, key in enumerate(KEYS) if i]
    assert results(client) == sorted([(KEYS[0], 0, 7), *alone])


def test_two_tables_meet_across_a_restart(client: LogClient) -> None:
    plan = planned("CREATE TABLE j AS SELECT p.id, p.n, t.n FROM people p JOIN towns t ON p.id = t.id;")
    produce(client, "people", [(key, {"N": i}, i) for i, key in enumerate(KEYS)])
    run(plan, client, None)
    produce(client, "towns", [(key, {"N": -i}, i) for i, key in enumerate(KEYS)])
    run(plan, client, None)
    produce(client, "towns", [(KEYS[3], None, 50)])
    run(plan, client, None)
    assert results(client) == sorted([*((key, i, -i) for i, key in enumerate(KEYS)), (KEYS[3],)])


def test_a_foreign_key_finds_its_row_in_another_partition_across_a_restart(client: LogClient) -> None:
    plan = planned("CREATE TABLE j AS SELECT p.id, p.n, t.n FROM people p JOIN towns t ON p.person = t.id;")
    produce(client, "people", [(key, {"PERSON": f"t{i % 5}", "N": i}, i) for i, key in enumerate(KEYS)])
    run(plan, client, None)
    produce(client, "towns", [(f"t{i}", {"N": 100 + i}, i) for i in range(5)])
    run(plan, client, None)
    first = [(key, i, 100 + i % 5) for i, key in enumerate(KEYS)]
    assert results(client) == sorted(first)
    produce(client, "people", [(KEYS[0], {"PERSON": "t1", "N": 0}, 60), (KEYS[1], {"PERSON": "none", "N": 1}, 60)])
    run(plan, client, None)
    assert results(client) == sorted([*first, (KEYS[0], 0, 101), (KEYS[1],)])
