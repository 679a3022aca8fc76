"""`spark.read` and `spark.readStream` of a server's streams and tables, in jobs as people write them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from running_server import eventually, service_in

from millstream.executor.spark.spark_session import spark_session
from millstream.executor.spark.spark_settings import SparkSettings
from millstream.server.client import connect
from millstream.server.service import Service

pytest.importorskip("pyspark")

from pyspark.errors import AnalysisException, StreamingQueryException

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

MASTER = {"spark.master": "local[2]", "spark.driver.memory": "512m"}
DDL = """
CREATE STREAM orders (id STRING KEY, flag BOOLEAN, n INT, big BIGINT, ratio DOUBLE, price DECIMAL(10, 2),
  moment TIMESTAMP, day DATE, clock TIME, raw BYTES, numbers ARRAY<INT>, lookup MAP<STRING, BIGINT>,
  nested STRUCT<x INT, clock TIME>) WITH (kafka_topic='orders', value_format='JSON', partitions=3);
CREATE TABLE totals AS SELECT id, COUNT(*) AS orders, SUM(n) AS total FROM orders GROUP BY id;
CREATE TABLE per_minute AS SELECT id, COUNT(*) AS orders FROM orders WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY id;
INSERT INTO orders (ROWTIME, id, flag, n, big, ratio, price, moment, day, clock, raw, numbers, lookup, nested) VALUES
  (1000, 'ada', true, 7, 5000000000, 0.5, 12.30, '2024-01-02T03:04:05.678', '2024-02-03', '01:02:03',
  TO_BYTES('ab', 'utf8'), ARRAY[1, 2], MAP('x' := 3), STRUCT(x := 4,
  clock := PARSE_TIME('04:05:06.007', 'HH:mm:ss.SSS')));
INSERT INTO orders (ROWTIME, id, n) VALUES (2000, 'bob', 1);
INSERT INTO orders (ROWTIME, id, n) VALUES (70000, 'bob', 2);
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with service_in(tmp_path_factory.mktemp("data")) as started:
        client = connect(f"http://{started.http_address}")
        client.execute(DDL)
        eventually(lambda: total(client) == 10, seconds=60)
        yield started


def total(client: Any) -> int | None:
    with client.query("SELECT SUM(total) AS total FROM totals;") as rows:
        return next(iter(rows)).values[0]


@pytest.fixture(scope="module")
def session() -> Any:
    """Of its own, beside those of other tests in the process."""
    from millstream.spark import MillstreamSource

    found = spark_session(SparkSettings.of(MASTER)).newSession()
    found.conf.set("spark.sql.session.timeZone", "UTC")
    found.dataSource.register(MillstreamSource)
    return found


@pytest.fixture
def load(service: Service, session: Any) -> Callable[..., Any]:
    def load(name: str, **options: str) -> Any:
        given = {"url": f"http://{service.http_address}", **options}
        return session.read.format("millstream").options(**given).load(name)

    return load


def test_columns_have_the_types_of_spark(load: Callable[..., Any]) -> None:
    frame = load("orders", columns="*, ROWTIME, ROWPARTITION, ROWOFFSET")
    assert dict(frame.dtypes) == {
        "ID": "string", "FLAG": "boolean", "N": "int", "BIG": "bigint", "RATIO": "double", "PRICE": "decimal(10,2)",
        "MOMENT": "timestamp", "DAY": "date", "CLOCK": "string", "RAW": "binary", "NUMBERS": "array<int>",
        "LOOKUP": "map<string,bigint>", "NESTED": "struct<X:int,CLOCK:string>",
        "ROWTIME": "bigint", "ROWPARTITION": "int", "ROWOFFSET": "bigint",
    }  # fmt: skip
    assert frame.rdd.getNumPartitions() <= 3
    row = frame.where("N = 7").first().asDict(recursive=True)
    assert {name: row[name] for name in row if name not in ("ROWPARTITION", "ROWOFFSET")} == {
        "ID": "ada", "FLAG": True, "N": 7, "BIG": 5_000_000_000, "RATIO": 0.5, "PRICE": Decimal("12.30"),
        "MOMENT": datetime(2024, 1, 2, 3, 4, 5, 678000), "DAY": date(2024, 2, 3), "CLOCK": "01:02:03.000", "RAW": b"ab",
        "NUMBERS": [1, 2], "LOOKUP": {"x": 3}, "NESTED": {"X": 4, "CLOCK": "04:05:06.007"}, "ROWTIME": 1000,
    }  # fmt: skip
    assert frame.count() == 3


def test_the_lines_of_the_page_work(service: Service, session: Any) -> None:
    page = Path(__file__).parents[2] / "docs" / "spark.md"
    (lines,) = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    names = {"spark": session}
    exec(lines.replace("http://10.0.0.5:8088", f"http://{service.http_address}"), names)
    assert names["totals"].count() == 2
    assert names["orders"].isStreaming


def test_tables_are_joined_with_streams(load: Callable[..., Any], session: Any) -> None:
    load("totals").createOrReplaceTempView("totals")
    load("orders").createOrReplaceTempView("orders")
    rows = session.sql("SELECT o.N, t.TOTAL FROM orders o JOIN totals t ON o.ID = t.ID ORDER BY o.N").collect()
    assert [tuple(row) for row in rows] == [(1, 3), (2, 3), (7, 7)]
    windows = load("per_minute").orderBy("ID", "WINDOWSTART").collect()
    assert [tuple(row) for row in windows] == [("ada", 0, 60000, 1), ("bob", 0, 60000, 1), ("bob", 60000, 120000, 1)]


@pytest.mark.parametrize("pushed", ["true", "false"])
def test_filters_give_the_same_with_and_without_pushdown(load: Callable[..., Any], session: Any, pushed: str) -> None:
    session.conf.set("spark.sql.python.filterPushdown.enabled", pushed)
    found = load("orders").where("ID = 'bob' AND N > 1 AND RATIO IS NULL").select("N").collect()
    assert [row["N"] for row in found] == [2]


def test_errors_reach_the_job_in_their_words(load: Callable[..., Any], service: Service) -> None:
    for name, options, said in (
        ("nothing", {}, "NOTHING does not exist"),
        ("orders", {"column": "N"}, 'Did you mean "columns"?'),
        ("orders", {"url": "http://127.0.0.1:1"}, "Start one with `millstream server --data DIR`, or check the URL."),
    ):
        with pytest.raises(AnalysisException) as refused:
            load(name, **options)
        assert said in str(refused.value)


@pytest.mark.soak
def test_a_stream_goes_on_at_its_checkpoint(service: Service, session: Any, tmp_path: Path) -> None:
    client = connect(f"http://{service.http_address}")
    client.execute("CREATE STREAM events (v INT) WITH (kafka_topic='events', value_format='JSON', partitions=2);")
    batches: dict[int, list[int]] = {}
    for begin in (0, 10):
        client.insert("EVENTS", pa.table({"V": pa.array(range(begin, begin + 10), pa.int32())}))
        options = {"url": f"http://{service.http_address}", "maxOffsetsPerTrigger": "4"}
        frame = session.readStream.format("millstream").options(**options).load("events")
        writing = (
            frame.writeStream.foreachBatch(lambda rows, number: batches.update({number: [r.V for r in rows.collect()]}))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
        )
        on_a_busy_machine(lambda writing=writing: writing.start().awaitTermination())
        assert sorted(v for values in batches.values() for v in values) == list(range(begin + 10))
    assert max(map(len, batches.values())) <= 4


def on_a_busy_machine(run: Callable[[], Any]) -> None:
    """A query starts a process of Python's, which Spark gives ten seconds to call; without one the query is run again,
    and goes on at its checkpoint."""
    for attempt in range(20):
        try:
            return run()
        except StreamingQueryException as error:
            if "failed to connect back" not in str(error) or attempt == 19:
                raise
