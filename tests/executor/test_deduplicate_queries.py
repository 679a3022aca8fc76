"""DEDUPLICATE in statements: streams of several partitions, NULL keys, upgrades, restarts, both executors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from written_by_both import written_by_both

from millstream.errors import SqlSyntaxError, StatementError
from millstream.testing import Sandbox

EARLIEST = {"auto.offset.reset": "earliest"}
CLICKS = (
    "CREATE STREAM clicks (page STRING KEY, id INT, n INT) WITH (kafka_topic='clicks', format='{}', partitions={});"
)
FIRST = "FROM DEDUPLICATE(TABLE clicks PARTITION BY id, INTERVAL '10' SECOND)"
Click = tuple[str, int | None, int, int]  # page, id, n, rowtime


def clicks_of(seed: int) -> list[Click]:
    """In the order of their times; ids come again within and after ten seconds, on any page."""
    rng = Random(seed)
    times = sorted(rng.randrange(100_000) for _ in range(80))
    return [(rng.choice("xyz"), rng.choice([1, 2, 3, None]), n, time) for n, time in enumerate(times)]


def firsts(clicks: Sequence[Click]) -> list[Click]:
    given: dict[int | None, list[int]] = {}
    kept: list[Click] = []
    for click in clicks:
        times = given.setdefault(click[1], [])
        if all(abs(click[3] - time) >= 10_000 for time in times):
            times.append(click[3])
            kept.append(click)
    return kept


def produce(sandbox: Sandbox, clicks: Sequence[Click]) -> None:
    for page, id_, n, time in clicks:
        sandbox.produce("clicks", page, {"ID": id_, "N": n}, timestamp=time)


def written(sandbox: Sandbox, topic: str) -> list[Click]:
    found = [(r["key"], r["value"]["ID"], r["value"]["N"], r["timestamp"]) for r in sandbox.consume(topic)]
    return sorted(found, key=lambda click: click[2])


@pytest.mark.parametrize("partitions", [1, 2, 6])
@pytest.mark.parametrize("format_", ["JSON", "MSGPACK"])
def test_the_first_of_each_id_within_the_time_is_written_under_its_own_key(partitions: int, format_: str) -> None:
    clicks = clicks_of(partitions)
    with Sandbox(properties=EARLIEST) as sandbox:
        sandbox.execute(CLICKS.format(format_, partitions))
        sandbox.execute(f"CREATE STREAM firsts AS SELECT page, id, n {FIRST};")
        for start in range(0, 80, 16):
            produce(sandbox, clicks[start : start + 16])
            sandbox.drain()
        assert written(sandbox, "FIRSTS") == firsts(clicks)


def test_it_is_a_member_of_from_like_any_other() -> None:
    with Sandbox(properties=EARLIEST) as sandbox:
        sandbox.execute(CLICKS.format("JSON", 2))
        sandbox.execute(
            "CREATE TABLE pages (page STRING PRIMARY KEY, title STRING) "
            "WITH (kafka_topic='p', format='JSON', partitions=2);"
        )
        sandbox.produce("p", "x", {"TITLE": "ex"}, timestamp=0)
        sandbox.execute(f"CREATE TABLE counted AS SELECT page, COUNT(*) AS many {FIRST} GROUP BY page;")
        sandbox.execute(
            "CREATE STREAM titled AS WITH odd AS (SELECT page, id + 1 AS id, n FROM clicks WHERE n % 2 = 1) "
            "SELECT c.page AS page, c.id AS id, c.n AS n, p.title FROM "
            "TABLE(DEDUPLICATE(TABLE odd PARTITION BY id, page, INTERVAL '1' HOUR, INTERVAL '1' DAY)) c "
            "JOIN pages p ON c.page = p.page;"
        )
        produce(
            sandbox, [("x", 1, 0, 0), ("x", 1, 1, 5_000), ("y", 2, 2, 6_000), ("x", 1, 3, 12_000), ("y", 2, 5, 13_000)]
        )
        sandbox.drain()
        answer = [line["row"]["columns"] for line in sandbox.query("SELECT page, many FROM counted;") if "row" in line]
        assert sorted(answer) == [["x", 2], ["y", 1]]
        assert [record["value"] for record in sandbox.consume("TITLED")] == [{"ID": 2, "N": 1, "TITLE": "ex"}]


def test_explain_and_lineage_tell_of_it() -> None:
    with Sandbox() as sandbox:
        sandbox.execute(CLICKS.format("JSON", 1))
        sandbox.execute(f"CREATE STREAM firsts AS SELECT page, n {FIRST};")
        (query,) = sandbox.engine.catalog.queries
        (explained,) = sandbox.execute(f"EXPLAIN {query};")
        assert "DEDUPLICATE by k0 within 10000 ms" in explained["queryDescription"]["executionPlan"]
        (lineage,) = sandbox.execute("SHOW LINEAGE OF firsts.n;")
        told = {(each["input"], each["type"], each["subtype"]) for each in lineage["lineage"]}
        assert told == {
            ("CLICKS.N", "DIRECT", "IDENTITY"),
            ("CLICKS.ID", "INDIRECT", "FILTER"),
            ("CLICKS.ROWTIME", "INDIRECT", "FILTER"),
        }


def test_a_query_that_is_replaced_remembers_what_it_has_given() -> None:
    with Sandbox(properties=EARLIEST) as sandbox:
        sandbox.execute(CLICKS.format("JSON", 1))
        sandbox.execute(f"CREATE STREAM firsts AS SELECT page, id {FIRST};")
        produce(sandbox, [("x", 1, 0, 0)])
        sandbox.drain()
        sandbox.execute(f"CREATE OR REPLACE STREAM firsts AS SELECT page, id, n {FIRST};")
        produce(sandbox, [("x", 1, 1, 9_000), ("x", 2, 2, 9_000)])
        sandbox.drain()
        assert [record["value"] for record in sandbox.consume("FIRSTS")] == [{"ID": 1}, {"ID": 2, "N": 2}]
        for other in (
            FIRST.replace("10", "11"),
            FIRST.replace("BY id", "BY n"),
            FIRST.replace("BY id", "BY id, n"),
            FIRST.replace("SECOND)", "SECOND, INTERVAL '1' DAY)"),
            "FROM clicks",
        ):
            with pytest.raises(StatementError, match="its grouping, aggregates, windows or joins would change"):
                sandbox.execute(f"CREATE OR REPLACE STREAM firsts AS SELECT page, id, n {other};")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("TABLE clicks, INTERVAL '1' SECOND", "DEDUPLICATE takes other arguments"),
        ("TABLE clicks PARTITION BY id, DESCRIPTOR(n), INTERVAL '1' SECOND", "DEDUPLICATE takes other arguments"),
        ("TABLE clicks PARTITION BY nope, INTERVAL '1' SECOND", "'NOPE' cannot be resolved"),
        ("TABLE clicks PARTITION BY id, id, INTERVAL '1' SECOND", "has ID twice in PARTITION BY"),
        ("TABLE clicks PARTITION BY id, INTERVAL '40000' DAYS", "remembers rows for 100 years at most"),
        ("TABLE clicks PARTITION BY id, INTERVAL '0' SECOND", "is no length of time"),
        ("TABLE names PARTITION BY name, INTERVAL '1' SECOND", 'DEDUPLICATE takes a stream, and "NAMES" is a table'),
        ("TABLE tags PARTITION BY m, INTERVAL '1' SECOND", "a MAP"),
        ("TABLE windowed PARTITION BY n, INTERVAL '1' SECOND", "takes rows without windows"),
    ],
)
def test_what_cannot_be_is_refused(call: str, message: str) -> None:
    with Sandbox() as sandbox:
        sandbox.execute(CLICKS.format("JSON", 1))
        sandbox.execute(
            "CREATE TABLE names (id INT PRIMARY KEY, name STRING) WITH (kafka_topic='n', format='JSON', partitions=1);"
            "CREATE STREAM tags (m MAP<STRING, INT>) WITH (kafka_topic='t', value_format='JSON', partitions=1);"
            "CREATE STREAM windowed (k STRING KEY, n INT) WITH (kafka_topic='w', format='JSON', partitions=1, "
            "window_type='SESSION');"
        )
        with pytest.raises((StatementError, SqlSyntaxError), match=message):
            sandbox.execute(f"CREATE STREAM e AS SELECT * FROM DEDUPLICATE({call});")


def test_both_executors_write_the_same_also_after_a_restart(tmp_path: Path) -> None:
    clicks = clicks_of(7)
    records = [(page, {"ID": id_, "N": n}, time) for page, id_, n, time in clicks]
    found = written_by_both(tmp_path, "clicks", CLICKS.format("MSGPACK", 3), f"SELECT page, id, n {FIRST}", records)
    assert found["DUCK"] == found["SPARK"]
    assert len(found["DUCK"]) == len(firsts(clicks))
