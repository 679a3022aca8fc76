"""Windows in the two stages: what a table of them holds does not depend on the executor."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hand_plans import read_all
from planning import Planner
from spark_stages import STATEMENTS, OnDuckDB, StagedRun, create_topics, produce

from millstream.logcore.client import LogClient
from millstream.logcore.log import open_log
from millstream.planner.physical import PhysicalPlan


def plan_of(sink: str, emit: str) -> PhysicalPlan:
    window = "WINDOW CUMULATE (SIZE 1 MINUTE, STEP 10 SECONDS, GRACE PERIOD 5 SECONDS)"
    planner = Planner(properties={"auto.offset.reset": "earliest"})
    select = f"SELECT page, COUNT(*) AS n, SUM(n) AS total FROM clicks {window} GROUP BY page EMIT {emit}"
    (plan,) = planner.plans(f"{STATEMENTS} CREATE TABLE {sink} WITH (partitions=3) AS {select};")
    return replace(plan, query_id=f"{sink}_1")


def last_records(client: LogClient, topic: str) -> dict[object, object]:
    return {repr(record["key"]): record["value"] for record in read_all(client, topic, range(3))}


@pytest.mark.parametrize("emit", ["CHANGES", "FINAL"])
def test_growing_windows_are_the_same_on_both_executors(emit: str, tmp_path: Path) -> None:
    client: LogClient = open_log(tmp_path / "log", sync="never")
    create_topics(client, "DUCK", "SPARK")
    duck = OnDuckDB(plan_of("DUCK", emit), client)
    run = StagedRun(plan_of("SPARK", emit), client, "run", tmp_path, records_max=70)
    for begin in range(0, 300, 100):
        produce(client, begin, begin + 100)
        duck.drain()
        run.drain()
    assert last_records(client, "SPARK") == last_records(client, "DUCK") != {}
    client.close()
