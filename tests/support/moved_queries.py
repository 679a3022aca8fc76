"""An engine with a query that counts, to be moved between executors while rows come; and whether each counted once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from hand_plans import read_all
from waiting import eventually

from millstream.logcore.client import TopicPartition
from millstream.server.engine.embedded import EmbeddedEngine, open_engine
from millstream.server.engine.session import Session

BOTH = {"auto.offset.reset": "earliest", "ksql.streams.cache.max.bytes.buffering": "0"}
DUCKDB = {**BOTH, "millstream.executor": "duckdb"}
SPARK = {**BOTH, "millstream.executor": "spark"}
STREAM = "CREATE STREAM s (id INT KEY, g INT, v INT) WITH (kafka_topic='s', value_format='JSON', partitions={});"
TABLE = "CREATE TABLE t (id INT PRIMARY KEY, name STRING) WITH (kafka_topic='t', value_format='JSON', partitions={});"
COUNTS = "CREATE TABLE c AS SELECT g, COUNT(*) AS n, SUM(v) AS total FROM s GROUP BY g;"


def engine_in(folder: Path, properties: dict[str, str]) -> EmbeddedEngine:
    return open_engine(folder, properties, sync="never")


def run(engine: EmbeddedEngine, text: str) -> dict[str, Any]:
    return engine.execute(text, Session())[-1].as_json()


def query_id(engine: EmbeddedEngine) -> str:
    (only,) = engine.catalog.queries
    return only


def shown(engine: EmbeddedEngine) -> dict[str, tuple[str, str | None]]:
    """State and executor of each query, by what it writes, as SHOW QUERIES has them."""
    queries: list[dict[str, Any]] = run(engine, "SHOW QUERIES;")["queries"]
    return {line["sinks"][0]: (line["state"], line["executor"]) for line in queries}


def drained(engine: EmbeddedEngine, timeout_s: float = 60.0) -> None:
    """Waits until every query has read all there is."""

    def is_done(each: str) -> bool:
        status = engine.executor.status(each)
        assert status.state == "RUNNING", status.error
        ends = {
            TopicPartition(source.topic, n): engine.log.offsets(source.topic, n).last_stable_offset
            for source in engine.catalog.queries[each].plan.sources()
            for n in range(engine.log.partition_count(source.topic))
        }
        committed = engine.log.committed_offsets(each)
        return all(committed.get(lane, 0) >= end for lane, end in ends.items())

    for each in list(engine.catalog.queries):
        eventually(lambda each=each: is_done(each), timeout_s)


def written(engine: EmbeddedEngine, topic: str) -> list[tuple[Any, Any]]:
    """Keys and values of the topic, partition by partition."""
    records = read_all(engine.log, topic, range(engine.log.partition_count(topic)))
    return [(record["key"], record["value"]) for record in records]


def insert(engine: EmbeddedEngine, begin: int, end: int, first_group: int = 0) -> None:
    values = ", ".join(f"({i}, {i}, {first_group + i % 5}, {i})" for i in range(begin, end))
    engine.execute(f"INSERT INTO s (rowtime, id, g, v) VALUES {values};", Session())


def counted_once(engine: EmbeddedEngine) -> dict[Any, list[dict[str, int]]]:
    """The rows of each group, whose counts are 1, 2, 3, …, each once."""
    by_key: dict[Any, list[dict[str, int]]] = {}
    for key, value in written(engine, "C"):
        by_key.setdefault(key, []).append(value)
    assert {key: [each["N"] for each in own] for key, own in by_key.items()} == {
        key: list(range(1, len(own) + 1)) for key, own in by_key.items()
    }
    return by_key


def assert_counted_once(engine: EmbeddedEngine, count: int) -> None:
    """Each group's counts are 1, 2, 3, …, each once; the sums are those of all rows."""
    by_key = counted_once(engine)
    groups = Counter(i % 5 for i in range(count))
    assert sorted((own[-1]["N"], own[-1]["TOTAL"]) for own in by_key.values()) == sorted(
        (n, sum(i for i in range(count) if i % 5 == g)) for g, n in groups.items()
    )
