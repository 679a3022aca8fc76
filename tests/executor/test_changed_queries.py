"""CHANGED in statements: streams of several partitions, pull queries, upgrades, restarts, both executors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from written_by_both import written_by_both

from millstream.errors import SqlSyntaxError, StatementError
from millstream.testing import Sandbox

EARLIEST = {"auto.offset.reset": "earliest"}
READINGS = (
    "CREATE STREAM readings (room STRING KEY, sensor INT, status STRING, mode INT, n INT) "
    "WITH (kafka_topic='readings', format='{}', partitions={});"
)
CHANGES = "FROM CHANGED(TABLE readings PARTITION BY sensor, DESCRIPTOR(status, mode))"
Reading = tuple[str, int | None, str | None, int, int, int]  # room, sensor, status, mode, n, rowtime


def readings_of(seed: int) -> list[Reading]:
    """In the order of their times, each a moment of its own; a sensor is read in any room."""
    rng = Random(seed)
    return [
        (rng.choice("xyz"), rng.choice([1, 2, 3, None]), rng.choice(["on", "off", None]), rng.randrange(2), n, n * 10)
        for n in range(80)
    ]


def changes(readings: Sequence[Reading]) -> list[Reading]:
    last: dict[int | None, tuple[str | None, int]] = {}
    found: list[Reading] = []
    for reading in readings:
        if last.get(reading[1]) != reading[2:4]:
            found.append(reading)
        last[reading[1]] = reading[2:4]
    return found


def produce(sandbox: Sandbox, readings: Sequence[Reading]) -> None:
    for room, sensor, status, mode, n, time in readings:
        value = {"SENSOR": sensor, "STATUS": status, "MODE": mode, "N": n}
        sandbox.produce("readings", room, value, timestamp=time)


def written(sandbox: Sandbox, topic: str) -> list[Reading]:
    found = [
        (r["key"], *(r["value"][name] for name in ("SENSOR", "STATUS", "MODE", "N")), r["timestamp"])
        for r in sandbox.consume(topic)
    ]
    return sorted(found, key=lambda reading: reading[4])


@pytest.mark.parametrize("partitions", [1, 2, 6])
@pytest.mark.parametrize("format_", ["JSON", "MSGPACK"])
def test_the_changes_of_each_sensor_are_written_and_a_pull_query_gives_the_same(partitions: int, format_: str) -> None:
    readings = readings_of(partitions)
    expected = changes(readings)
    assert 20 < len(expected) < len(readings)
    with Sandbox(properties=EARLIEST) as sandbox:
        sandbox.execute(READINGS.format(format_, partitions))
        sandbox.execute(f"CREATE STREAM changes AS SELECT * {CHANGES};")
        for start in range(0, 80, 16):
            produce(sandbox, readings[start : start + 16])
            sandbox.drain()
        assert written(sandbox, "CHANGES") == expected
        sandbox.execute("SET 'millstream.pull.full.sql'='true';")
        pulled = [line["row"]["columns"] for line in sandbox.query(f"SELECT n, room {CHANGES};") if "row" in line]
        assert sorted(pulled) == [[reading[4], reading[0]] for reading in expected]


def test_it_is_a_member_of_from_like_any_other() -> None:
    with Sandbox(properties=EARLIEST) as sandbox:
        sandbox.execute(READINGS.format("JSON", 2))
        sandbox.execute(
            "CREATE TABLE flips AS WITH odd AS (SELECT room, sensor + 1 AS s, status, n FROM readings WHERE n % 2 = 1) "
            "SELECT s, COUNT(*) AS many FROM TABLE(CHANGED(TABLE odd PARTITION BY room, s, DESCRIPTOR(status))) c "
            "GROUP BY s;"
        )
        told = [("x", 1, "on"), ("x", 1, "off"), ("y", 1, "on"), ("x", 1, "off"), ("x", 2, "on"), ("x", 1, "on")]
        produce(sandbox, [(*each, 0, 2 * n + 1, n) for n, each in enumerate(told)])
        sandbox.drain()
        answer = [line["row"]["columns"] for line in sandbox.query("SELECT s, many FROM flips;") if "row" in line]
        assert sorted(answer) == [[2, 4], [3, 1]]


def test_the_key_of_the_stream_may_be_watched_or_partition_it() -> None:
    with Sandbox(properties=EARLIEST) as sandbox:
        sandbox.execute(READINGS.format("JSON", 2))
        sandbox.execute(
            "CREATE STREAM moves AS SELECT sensor, room, n FROM "
            "CHANGED(TABLE readings PARTITION BY sensor, DESCRIPTOR(room));"
            "CREATE STREAM rooms AS SELECT room, n FROM CHANGED(TABLE readings PARTITION BY room, DESCRIPTOR(sensor));"
        )
        produce(sandbox, [(room, 1, None, 0, n, n) for n, room in enumerate("xxyyx")])
        sandbox.drain()
        assert [record["value"]["N"] for record in sandbox.consume("MOVES")] == [0, 2, 4]
        assert sorted(record["value"]["N"] for record in sandbox.consume("ROOMS")) == [0, 2]


def test_explain_lineage_and_a_stall_tell_of_it() -> None:
    with Sandbox(properties=EARLIEST) as sandbox:
        sandbox.execute(READINGS.format("JSON", 1))
        sandbox.execute(f"CREATE STREAM changes AS SELECT room, n {CHANGES};")
        (query,) = sandbox.engine.catalog.queries
        (explained,) = sandbox.execute(f"EXPLAIN {query};")
        assert "CHANGED by k0: v1, v2" in explained["queryDescription"]["executionPlan"]
        (lineage,) = sandbox.execute("SHOW LINEAGE OF changes.n;")
        told = {(each["input"], each["type"], each["subtype"]) for each in lineage["lineage"]}
        assert told == {
            ("READINGS.N", "DIRECT", "IDENTITY"),
            *((f"READINGS.{name}", "INDIRECT", "FILTER") for name in ("SENSOR", "STATUS", "MODE")),
        }
        sandbox.produce("readings", "x", None)
        sandbox.drain()
        (stall,) = sandbox.execute(f"EXPLAIN STALL {query};")
        assert "as the previous row of its key, or has no value" in str(stall)


def test_a_query_that_is_replaced_remembers_the_last_row_of_each_key() -> None:
    with Sandbox(properties=EARLIEST) as sandbox:
        sandbox.execute(READINGS.format("JSON", 1))
        sandbox.execute(f"CREATE STREAM changes AS SELECT room, status {CHANGES};")
        produce(sandbox, [("x", 1, "on", 0, 0, 0)])
        sandbox.drain()
        sandbox.execute(f"CREATE OR REPLACE STREAM changes AS SELECT room, status, n {CHANGES};")
        produce(sandbox, [("x", 1, "on", 0, 1, 1), ("x", 1, "off", 0, 2, 2)])
        sandbox.drain()
        assert [record["value"] for record in sandbox.consume("CHANGES")] == [
            {"STATUS": "on"}, {"STATUS": "off", "N": 2},
        ]  # fmt: skip
        for other in (
            CHANGES.replace("status, mode", "status"),
            CHANGES.replace("status, mode", "status, n"),
            CHANGES.replace("BY sensor", "BY mode"),
        ):
            with pytest.raises(StatementError):
                sandbox.execute(f"CREATE OR REPLACE STREAM changes AS SELECT room, status, n {other};")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("TABLE readings PARTITION BY sensor", "unexpected"),
        ("TABLE readings, DESCRIPTOR(status)", "CHANGED takes other arguments"),
        ("TABLE readings PARTITION BY sensor, INTERVAL '1' SECOND", "CHANGED takes other arguments"),
        ("TABLE readings PARTITION BY sensor, DESCRIPTOR(nope)", "NOPE"),
        ("TABLE readings PARTITION BY nope, DESCRIPTOR(status)", "NOPE"),
        ("TABLE readings PARTITION BY sensor, DESCRIPTOR(status, status)", "STATUS twice in DESCRIPTOR"),
        ("TABLE readings PARTITION BY sensor, sensor, DESCRIPTOR(status)", "SENSOR twice in PARTITION BY"),
        ("TABLE tags PARTITION BY id, DESCRIPTOR(m)", "cannot compare the column M: it holds a MAP"),
        ("TABLE names PARTITION BY id, DESCRIPTOR(name)", 'CHANGED takes a stream, and "NAMES" is a table'),
        ("TABLE windowed PARTITION BY n, DESCRIPTOR(n)", "takes rows without windows"),
    ],
)
def test_what_cannot_be_is_refused(call: str, message: str) -> None:
    """Tables among it: a row that is deleted or replaced has no previous one that could be shown again."""
    with Sandbox() as sandbox:
        sandbox.execute(READINGS.format("JSON", 1))
        sandbox.execute(
            "CREATE TABLE names (id INT PRIMARY KEY, name STRING) WITH (kafka_topic='n', format='JSON', partitions=1);"
            "CREATE STREAM tags (id INT, m MAP<STRING, INT>) WITH (kafka_topic='t', value_format='JSON', partitions=1);"
            "CREATE STREAM windowed (k STRING KEY, n INT) WITH (kafka_topic='w', format='JSON', partitions=1, "
            "window_type='SESSION');"
        )
        with pytest.raises((StatementError, SqlSyntaxError), match=message):
            sandbox.execute(f"CREATE STREAM e AS SELECT * FROM CHANGED({call});")


def test_both_executors_write_the_same_also_after_a_restart(tmp_path: Path) -> None:
    readings = readings_of(7)
    records = [
        (room, {"SENSOR": sensor, "STATUS": status, "MODE": mode, "N": n}, time)
        for room, sensor, status, mode, n, time in readings
    ]
    select = f"SELECT room, sensor, n {CHANGES}"
    found = written_by_both(tmp_path, "readings", READINGS.format("MSGPACK", 3), select, records)
    assert found["DUCK"] == found["SPARK"]
    assert len(found["DUCK"]) == len(changes(readings))
