"""A server that is killed while a sink writes a table of a data lake: each record of the topic is a row, once.

Half of the lives end at a random time, the others at a random step of the sink's commit. Records come in meanwhile.
Those whose answer a kill has swallowed may be in the topic or not, so the topic says what the table must have.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from pathlib import Path

import httpx
import pytest
from connectors import read_topic, sending
from drawn import sampled
from lakes import Lake
from running_server import ServerDied, ServerProcess
from waiting import eventually

from millstream.logcore.log import open_log

POINTS = ("sink_after_read", "lake_before_commit", "lake_after_commit", "sink_after_write", "sink_after_commit")


def of_soak() -> int:
    return int(os.environ.get("MILLSTREAM_SOAK_LAKE_KILLS", "100"))


def start(process: ServerProcess, lake: Lake) -> None:
    """Topic, stream and connector."""
    declared = """CREATE STREAM orders (n BIGINT, half DECIMAL(12, 1))
        WITH (kafka_topic='orders', value_format='JSON', partitions=3);"""
    for statement in (declared, lake.statement(topics="orders", tasks_max="2")):
        httpx.post(f"{process.url}/ksql", json={"ksql": statement}, timeout=30).raise_for_status()


def live(data: Path, lake: Lake, chance: random.Random, begin: int, first: bool) -> tuple[int, bool]:
    """One life of the server. Gives the number of the next record, and whether it died at a step of a commit."""
    failpoints = f"connect.{chance.choice(POINTS)}:{chance.randint(1, 4)}:kill9" if chance.random() < 0.5 else ""
    try:
        process = ServerProcess(data, failpoints="" if first else failpoints)
    except ServerDied:
        assert failpoints
        return begin, True
    with process:
        if first:
            start(process, lake)
        with sending(process.url, begin) as at:
            deadline = time.monotonic() + (15 if failpoints and not first else chance.uniform(0.1, 3.0))
            while time.monotonic() < deadline and process.process.poll() is None:
                time.sleep(0.01)
            at_a_step = process.process.poll() is not None
            process.process.kill()
        return at[0], at_a_step


@pytest.mark.timeout(5400)
@pytest.mark.parametrize("kills", [3, pytest.param(of_soak(), marks=pytest.mark.soak)])
@pytest.mark.parametrize("format", sampled(["iceberg", "delta"], 2))
def test_each_record_is_a_row_once_after_many_kills(tmp_path: Path, format: str, kills: int) -> None:
    chance, data, lake = random.Random(7), tmp_path / "data", Lake(format, tmp_path)
    number, at_steps = 0, 0
    for kill in range(kills):
        number, at_a_step = live(data, lake, chance, number, first=kill == 0)
        at_steps += at_a_step
    with ServerProcess(data) as process:

        def caught_up() -> bool:
            described = httpx.post(f"{process.url}/ksql", json={"ksql": "DESCRIBE CONNECTOR lake;"}, timeout=30).json()
            tasks = described[0]["status"]["tasks"]
            assert all(task["state"] == "RUNNING" for task in tasks), tasks
            return all(figures["lag"] == 0 for figures in described[0]["taskFigures"])

        eventually(caught_up, 120, otherwise="not the end of the topic")
        assert process.stop() == 0
    with open_log(data / "log") as log:
        sent = Counter((row.json["n"], str(row.json["half"])) for row in read_topic(log, "orders"))
    found = Counter((row["N"], str(row["HALF"])) for row in lake.table().to_pylist())
    print(f"{format}: {kills} kills, {at_steps} of them at a step of a commit, {sent.total()} records")
    assert found == sent
    assert set(sent.values()) == {1}
    assert at_steps
    assert lake.commits() > kills // 2
