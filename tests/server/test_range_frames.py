"""RANGE frames, type by type: a row exactly on the edge of a frame is in it, one unit further it is not."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from millstream.errors import MillstreamError
from millstream.testing import Sandbox

EDGES: dict[str, tuple[str, list[Any]]] = {
    "INT": ("10", [0, 10, 11]),
    "BIGINT": ("INTERVAL 10 SECONDS", [1_000, 11_000, 11_001]),
    "DECIMAL(9, 2)": ("0.10", ["1.00", "1.10", "1.11"]),
    "DECIMAL(38, 0)": ("9", [-(10**38 - 1), -(10**38 - 10), -(10**38 - 11)]),
    "DOUBLE": ("0.5", [0.25, 0.75, 0.7500001]),
    "TIMESTAMP": (
        "INTERVAL '10' MINUTE",
        ["2024-01-01T00:00:00.000", "2024-01-01T00:10:00.000", "2024-01-01T00:10:00.001"],
    ),
    "DATE": ("2 DAYS", ["2024-02-28", "2024-03-01", "2024-03-02"]),
    "TIME": ("1 HOUR", ["09:00:00", "10:00:00", "10:00:01"]),
}
FARTHEST = {
    "INT": [-(2**31), 2**31 - 1, 0],
    "BIGINT": [-(2**63), 2**63 - 1, 0],
    "DECIMAL(38, 0)": [-(10**38 - 1), 10**38 - 1, 0],
    "DOUBLE": [-1.7e308, 1.7e308, 0.0],
    "DATE": ["0001-01-01", "9999-12-31", "1970-01-01"],
    "TIMESTAMP": ["0001-01-01T00:00:00.000", "9999-12-31T23:59:59.999", "1970-01-01T00:00:00.000"],
}


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(properties={"millstream.pull.full.sql": "true"}) as opened:
        yield opened


def counted(sandbox: Sandbox, name: str, type_: str, frame: str, values: list[Any]) -> list[int]:
    """How many rows the frame of each row holds; the same asked for persistently and once."""
    select = f"SELECT n, COUNT(*) OVER (ORDER BY x {frame}) AS c FROM {name}"
    sandbox.execute(
        f"CREATE STREAM {name} (n INT, x {type_}) WITH (kafka_topic='{name}', value_format='JSON', partitions=1);"
        f"CREATE TABLE {name}_t AS {select};"
    )
    for n, value in enumerate(values):
        if isinstance(value, int):  # some are too long for a literal
            sandbox.produce(name, None, {"N": n, "X": value})
        else:
            sandbox.execute(f"INSERT INTO {name} (n, x) VALUES ({n}, {_literal(value)});")
    sandbox.drain()
    kept = [row["row"]["columns"] for row in sandbox.query(f"SELECT n, c FROM {name}_t;") if "row" in row]
    asked = [row["row"]["columns"][:2] for row in sandbox.query(f"{select};") if "row" in row]
    assert sorted(kept) == sorted(asked)
    return [count for _, count in sorted(kept)]


def _literal(value: Any) -> str:
    return "NULL" if value is None else f"'{value}'" if isinstance(value, str) and not _is_number(value) else str(value)


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()


@pytest.mark.parametrize("type_", EDGES)
def test_a_row_on_the_edge_is_inside_and_one_beyond_is_not(sandbox: Sandbox, type_: str) -> None:
    distance, values = EDGES[type_]
    name = "edge_" + type_.partition("(")[0].lower() + str(len(type_))
    assert counted(sandbox, name, type_, f"RANGE {distance} PRECEDING", [*values, None]) == [1, 2, 2, 1]


@pytest.mark.parametrize("type_", FARTHEST)
def test_no_value_is_too_large_for_a_distance(sandbox: Sandbox, type_: str) -> None:
    distance = "99999 DAYS" if type_ in ("DATE", "TIMESTAMP") else "1"
    name = "far_" + type_.partition("(")[0].lower()
    frame = f"RANGE BETWEEN {distance} PRECEDING AND {distance} FOLLOWING"
    assert counted(sandbox, name, type_, frame, FARTHEST[type_]) == [1, 1, 1]


def test_a_frame_that_holds_no_row_counts_nothing(sandbox: Sandbox) -> None:
    frame = "RANGE BETWEEN 3 PRECEDING AND 1 PRECEDING"
    assert counted(sandbox, "before", "INT", frame, [1, 2, 2, 9]) == [0, 1, 1, 0]


def test_equal_rows_are_in_the_frame_up_to_the_current_row(sandbox: Sandbox) -> None:
    frame = "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
    assert counted(sandbox, "peers", "INT", frame, [1, 2, 2, None, None]) == [1, 3, 3, 5, 5]


def test_late_rows_are_late_for_both_kinds_of_queries(sandbox: Sandbox) -> None:
    rng = Random(3)
    sandbox.execute(
        "CREATE STREAM late (k STRING KEY, x INT) WITH (kafka_topic='late', value_format='JSON', partitions=6);"
    )
    for n in range(60):
        key = rng.choice(("a", "b", "c", None))
        sandbox.produce("late", key, {"X": n}, timestamp=max(0, n * 10 - rng.choice((0, 0, 30, 200))))
    frame = "RANGE BETWEEN 40 PRECEDING AND 20 FOLLOWING GRACE PERIOD 50 MILLISECONDS"
    select = f"SELECT k, x, COUNT(*) OVER (PARTITION BY k ORDER BY ROWTIME {frame}) AS c FROM late"
    sandbox.execute(f"SET 'auto.offset.reset' = 'earliest'; CREATE TABLE late_t AS {select};")
    sandbox.drain()
    kept = [row["row"]["columns"] for row in sandbox.query("SELECT k, x, c FROM late_t;") if "row" in row]
    asked = [row["row"]["columns"][:3] for row in sandbox.query(f"{select};") if "row" in row]
    assert sorted(map(str, kept)) == sorted(map(str, asked))
    assert 0 < len(kept) < 60


def test_a_frame_that_cannot_be_is_refused_with_a_hint(sandbox: Sandbox) -> None:
    sandbox.execute("CREATE STREAM r (x INT) WITH (kafka_topic='r', value_format='JSON', partitions=1);")
    with pytest.raises(MillstreamError, match="is no distance between values of INTEGER") as caught:
        sandbox.execute("CREATE TABLE y AS SELECT x, SUM(x) OVER (ORDER BY x RANGE 10 MINUTES PRECEDING) AS s FROM r;")
    assert caught.value.hint == "Write a number, such as 10 PRECEDING."
