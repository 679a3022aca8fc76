"""EMIT FINAL where the sources fall silent: windows close by the clock, once, and stay closed after a restart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hand_plans import read_all, rows
from planning import Planner

from millstream.executor.queries.query import QueryRuntime
from millstream.executor.sources.idle import IdleTime
from millstream.logcore.client import LogClient
from millstream.logcore.failpoints import FailpointHit, arm
from millstream.logcore.log import open_log
from millstream.planner.physical import PhysicalPlan
from millstream.sql.settings.property_table import FINAL_IDLE_MS
from millstream.testing import Sandbox

SOURCE = (
    "CREATE STREAM s (k STRING KEY, v INT) "
    "WITH (kafka_topic='input', key_format='KAFKA', value_format='JSON', partitions=1);"
)
COUNTS = "CREATE TABLE counts AS SELECT {key}, COUNT(*) AS n FROM s WINDOW {window} GROUP BY {key} EMIT FINAL;"
TUMBLING, SESSION = "TUMBLING (SIZE 10 SECONDS)", "SESSION (3 SECONDS)"


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def client(tmp_path: Path) -> Iterator[LogClient]:
    client = open_log(tmp_path / "log", sync="never")
    for topic in ("input", "COUNTS"):
        client.create_topic(topic, 1)
    yield client
    arm("")
    client.close()


def plan(key: str = "k", window: str = TUMBLING, idle_ms: int = 2_000) -> PhysicalPlan:
    properties = {FINAL_IDLE_MS.name: str(idle_ms), "auto.offset.reset": "earliest"}
    (found,) = Planner(properties=properties).plans(SOURCE + COUNTS.format(key=key, window=window))
    return found


def append(client: LogClient, *times: int) -> None:
    client.append("input", 0, rows([("a", {"V": 1}, time) for time in times]))


def counts(client: LogClient) -> list[int]:
    return [record["value"]["N"] for record in read_all(client, "COUNTS")]


def drain(runtime: QueryRuntime) -> None:
    while runtime.step():
        pass


@pytest.mark.parametrize("window", [TUMBLING, SESSION])
@pytest.mark.parametrize("key", ["k", "v"])
def test_the_last_window_closes_when_the_clock_has_moved_past_it(client: LogClient, key: str, window: str) -> None:
    clock = Clock()
    runtime = QueryRuntime(plan(key, window), client, None, clock=clock)
    append(client, 1_000, 2_000)
    drain(runtime)
    clock.now_s += 1.5  # not idle yet
    drain(runtime)
    assert counts(client) == []
    clock.now_s += 10
    drain(runtime)
    assert counts(client) == [2]
    clock.now_s += 100  # nothing waits any more
    assert not runtime.step()
    runtime.close()


def test_without_the_property_only_records_move_time(client: LogClient) -> None:
    clock = Clock()
    runtime = QueryRuntime(plan(idle_ms=0), client, None, clock=clock)
    append(client, 1_000)
    drain(runtime)
    clock.now_s += 1_000
    assert not runtime.step()
    runtime.close()
    assert counts(client) == []


def test_a_record_that_comes_too_late_for_the_clock_is_late_after_a_restart_too(
    client: LogClient, tmp_path: Path
) -> None:
    for restarts, state in ((False, None), (True, None), (True, tmp_path / "state")):
        before = len(counts(client))
        clock = Clock()
        physical = PhysicalPlan(f"Q_{restarts}_{state is None}", plan().root, plan().properties)
        runtime = QueryRuntime(physical, client, state, clock=clock)
        append(client, 1_000, 2_000)
        drain(runtime)
        clock.now_s += 20
        drain(runtime)
        assert len(counts(client)) == before + 1
        if restarts:
            runtime.close()
            runtime = QueryRuntime(physical, client, state, clock=clock)
        append(client, 3_000, 40_000)  # the first belongs to the window that was given already
        drain(runtime)
        runtime.close()
        assert len(counts(client)) == before + 1
        client.delete_topic("input")
        client.create_topic("input", 1)


@pytest.mark.parametrize("point", ["query.processed", "query.appended", "query.before_store_commit"])
def test_a_crash_while_time_moves_on_gives_the_window_once(client: LogClient, point: str) -> None:
    clock = Clock()
    runtime = QueryRuntime(plan(), client, None, clock=clock)
    append(client, 1_000)
    drain(runtime)
    clock.now_s += 20
    arm(f"{point}:1:raise")
    with pytest.raises(FailpointHit):
        drain(runtime)
    arm("")
    clock.now_s += 20
    drain(runtime)
    runtime.close()
    assert counts(client) == [1]


def test_time_is_given_out_once_and_in_pieces_of_the_idle_time() -> None:
    clock = Clock()
    idle = IdleTime(2_000, clock)
    clock.now_s += 1.9
    assert idle.take() == 0
    clock.now_s += 0.6
    assert (idle.take(), idle.take()) == (2_500, 0)
    clock.now_s += 1
    idle.came()
    clock.now_s += 1.5
    assert idle.take() == 0


def test_a_sandbox_lets_time_pass() -> None:
    with Sandbox(properties={FINAL_IDLE_MS.name: "5000"}) as sandbox:
        sandbox.create_topic("input")
        sandbox.execute(SOURCE + COUNTS.format(key="k", window=TUMBLING))
        sandbox.produce("input", "a", {"V": 1}, timestamp=6_000)
        sandbox.idle(3_000)
        assert sandbox.consume("COUNTS") == []
        sandbox.idle(3_000)
        assert [record["value"] for record in sandbox.consume("COUNTS")] == [{"N": 1}]
