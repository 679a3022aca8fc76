"""Queries that begin at a time or at an offset."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest

from millstream.errors import InvalidProperty
from millstream.executor.columnar import columnar_batch
from millstream.executor.queries.start_offsets import StartSettings, first_offset
from millstream.logcore.client import ColumnarRecords, LogClient, TopicPartition
from millstream.logcore.log import open_log
from millstream.planner.schema import Column, Schema
from millstream.planner.specs import FormatSpec
from millstream.planner.steps.source import Source
from millstream.sql.settings.property_values import parse_reset
from millstream.sql.types import BIGINT
from millstream.testing import Sandbox


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as opened:
        opened.execute("CREATE STREAM s (id INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=2);")
        for number in range(6):
            opened.produce("s", number, {"V": number}, timestamp=number * 1_000, partition=number % 2)
        yield opened


def pushed(sandbox: Sandbox) -> list[int]:
    rows = sandbox.query("SELECT v FROM s EMIT CHANGES;")
    return sorted(row["row"]["columns"][0] for row in rows if "row" in row)


@pytest.mark.parametrize(
    ("reset", "expected"),
    [
        ("earliest", [0, 1, 2, 3, 4, 5]),
        ("Latest", []),
        ("3000", [3, 4, 5]),
        ("2999", [3, 4, 5]),
        ("0", [0, 1, 2, 3, 4, 5]),
        ("1970-01-01T00:00:04Z", [4, 5]),
        ("1970-01-01T01:00:04+01:00", [4, 5]),
        ("2026-01-01", []),
    ],
)
def test_a_query_begins_at_a_time(sandbox: Sandbox, reset: str, expected: list[int]) -> None:
    sandbox.execute(f"SET 'auto.offset.reset'='{reset}';")
    assert pushed(sandbox) == expected


def test_a_query_begins_at_offsets_and_elsewhere_as_the_other_property_says(sandbox: Sandbox) -> None:
    sandbox.execute("SET 'auto.offset.reset'='earliest';")
    sandbox.execute("""SET 'millstream.start.offsets'='{"s": {"0": 2}, "other": {"0": 99}}';""")
    assert pushed(sandbox) == [1, 3, 4, 5]


def test_a_persistent_query_keeps_where_it_began_in_its_plan(sandbox: Sandbox) -> None:
    sandbox.execute("""SET 'millstream.start.offsets'='{"s": {"0": 3, "1": 1}}';""")
    sandbox.execute("CREATE STREAM copy AS SELECT * FROM s;")
    sandbox.execute("UNSET 'millstream.start.offsets';")
    sandbox.drain()
    assert sorted(record["value"]["V"] for record in sandbox.consume("COPY")) == [3, 5]
    (query,) = sandbox.engine.catalog.queries.values()
    assert query.plan.properties["millstream.start.offsets"] == '{"s": {"0": 3, "1": 1}}'


@pytest.mark.parametrize("statement", ["CREATE STREAM copy AS SELECT * FROM s;", "SELECT * FROM s EMIT CHANGES;"])
@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ('{"s": {"0": 4}}', 'offset 4 is not in partition 0 of topic "s", which has 0 to 3'),
        ('{"s": {"2": 0}}', 'names partition 2 of topic "s", which has 2'),
    ],
)
def test_offsets_that_the_log_does_not_have_are_refused(
    sandbox: Sandbox, statement: str, offsets: str, message: str
) -> None:
    sandbox.execute(f"SET 'millstream.start.offsets'='{offsets}';")
    with pytest.raises(InvalidProperty, match=message):
        sandbox.query(statement) if statement.startswith("SELECT") else sandbox.execute(statement)
    assert not sandbox.engine.catalog.queries


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("auto.offset.reset", "yesterday"),
        ("auto.offset.reset", "2026-13-01"),
        ("millstream.start.offsets", "3"),
        ("millstream.start.offsets", '{"s": 3}'),
        ("millstream.start.offsets", '{"s": {"0": -1}}'),
        ("millstream.start.offsets", '{"s": {"zero": 1}}'),
    ],
)
def test_values_that_say_nothing_are_refused(sandbox: Sandbox, name: str, value: str) -> None:
    with pytest.raises(InvalidProperty, match="expected"):
        sandbox.execute(f"SET '{name}'='{value}';")


def test_a_time_is_found_within_a_columnar_batch(tmp_path: Path) -> None:
    log = cast(LogClient, open_log(tmp_path, sync="never"))
    log.create_topic("c", 1)
    for first in (0, 100):
        times = pa.array([first, first + 10, first + 20], pa.int64())
        meta = {"_ts": times, "_null": pa.array([False] * 3)}
        log.append("c", 0, ColumnarRecords(columnar_batch([Column("V", BIGINT)], [times], meta), first + 20))
    arrow = FormatSpec("ARROW")
    source = Source("s", "c", "STREAM", Schema((Column("V", BIGINT),)), arrow, arrow)
    at = TopicPartition("c", 0)
    found = [first_offset(log, at, source, StartSettings(reset=ms)) for ms in (0, 5, 20, 21, 115, 121)]
    assert found == [0, 1, 2, 3, 5, 6]
    log.close()


def test_a_time_may_be_written_in_two_ways() -> None:
    assert parse_reset("2026-01-01T00:00:00Z") == parse_reset("1767225600000")
