"""Law: functions OVER a table number equal rows alike wherever they are asked for: a persistent query that was started
again, a push query, a pull query, and DuckDB over the rows that the table has in the end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from databases import new_connection
from drawn import checkered, drawn
from hand_plans import rows
from laws.running import PROPERTIES, drain
from planning import Planner

from millstream.executor.answers.materialization import Materialization
from millstream.executor.answers.pull_limits import PullLimits
from millstream.executor.answers.pull_query import PullQuery
from millstream.executor.answers.push_query import PushQuery
from millstream.executor.queries.query import QueryRuntime
from millstream.logcore.client import FetchedRows, LogClient
from millstream.logcore.log import open_log
from millstream.logcore.murmur2 import partitions_of
from millstream.planner.planning import PlannedBatch, PlanningContext
from millstream.planner.pull.pull_queries import plan_pull
from millstream.planner.select.queries import plan_push
from millstream.planner.steps.source import Source
from millstream.sql import ast
from millstream.sql.parser import parse
from millstream.sql.settings.property_table import PULL_FULL_SQL

TABLE = "CREATE TABLE s (k STRING PRIMARY KEY, a INT, x INT) WITH (kafka_topic='s', format='JSON', partitions={});"
CALLS = {
    "CAST(ROW_NUMBER() OVER (PARTITION BY a ORDER BY x) AS STRING)": (
        "cast(row_number() over (partition by a order by x nulls last, k) as varchar)"
    ),
    "LAG(k) OVER (ORDER BY x DESC)": "lag(k) over (order by x desc nulls last, k)",
    "LAST_VALUE(k) OVER (PARTITION BY a ORDER BY x)": (
        "last_value(k order by x nulls last, k) over (partition by a order by x nulls last)"
    ),
    "CAST(NTILE(2) OVER (PARTITION BY x) AS STRING)": "cast(ntile(2) over (partition by x order by k) as varchar)",
}
TOP = ("ROW_NUMBER() OVER (PARTITION BY a ORDER BY x)", "row_number() over (partition by a order by x nulls last, k)")
GROUPED = "SELECT {} FROM (SELECT a, COUNT(*) AS n FROM s GROUP BY a) q"


@dataclass(frozen=True)
class _Law:
    """`select` gives `k` first, and its result as `r`; `reference` is DuckDB's over the rows in the end."""

    select: str
    reference: str


LAWS = [
    _Law(f"SELECT k, ARRAY[{', '.join(CALLS)}] AS r FROM s", f"SELECT k, [{', '.join(CALLS.values())}] FROM s"),
    _Law(
        f"SELECT k, r FROM (SELECT k, {TOP[0]} AS r FROM s) q WHERE r <= 2",
        f"SELECT k, {TOP[1]} AS r FROM s QUALIFY r <= 2",
    ),
    _Law(
        GROUPED.format("a AS k, ROW_NUMBER() OVER (ORDER BY n) AS r"),
        "SELECT a, row_number() over (order by n, a) "
        "FROM (SELECT a, count(*) AS n FROM s WHERE a IS NOT NULL GROUP BY a)",  # as in ksqlDB NULL is no group
    ),
]


@pytest.mark.parametrize(("law", "partitions"), checkered(LAWS, [1, 2, 6]))
def test_all_ways_to_ask_number_equal_rows_alike(law: _Law, partitions: int, tmp_path: Path) -> None:
    rng = Random(law.select + str(partitions))
    for number in range(drawn(1)):
        with open_log(tmp_path / f"log-{number}", sync="never") as log:
            _check(log, law, partitions, rng)


def _check(log: LogClient, law: _Law, partitions: int, rng: Random) -> None:
    planner = Planner()
    (plan,) = planner.plans(f"{TABLE.format(partitions)} CREATE TABLE o WITH (format='JSON') AS {law.select};")
    for topic, count in planner.topics.items():
        log.create_topic(topic, count)
    emit = {"ksql.streams.cache.max.bytes.buffering": rng.choice(("0", "10000000"))}
    table: dict[str, Mapping[str, Any]] = {}
    for _ in range(rng.randrange(1, 5)):  # each time the query is started again
        for _ in range(rng.randrange(12)):
            _change(log, table, partitions, rng)
        runtime = QueryRuntime(plan, log, None, {**PROPERTIES, **emit})
        drain(runtime, rng.choice((1, 200, 1 << 20)))
        runtime.close()
    wanted = _wanted(law, table)
    assert _written(log) == wanted
    (pulled,) = parse(f"{law.select};")
    assert isinstance(pulled, ast.Query)
    assert _pulled(log, planner, pulled) == wanted
    (pushed,) = parse(f"{law.select} EMIT CHANGES;")
    assert isinstance(pushed, ast.Query)
    assert _pushed(log, planner, pushed, emit) == wanted


def _change(log: LogClient, table: dict[str, Mapping[str, Any]], partitions: int, rng: Random) -> None:
    """A row that comes, changes, stays as it is or goes, sometimes with a time before that of others."""
    key = rng.choice("pqrstuvw")
    value = {"A": rng.choice((1, 2, None)), "X": rng.choice((0, 1, None))} if rng.random() < 0.8 else None
    data = json.dumps(key).encode()
    (partition,) = partitions_of(pa.array([data]), partitions).tolist()
    log.append("s", partition, rows([(data.decode(), value, rng.randrange(1_000))]))
    table.pop(key, None)
    if value is not None:
        table[key] = value


def _wanted(law: _Law, table: Mapping[str, Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    held = [{"k": key, "a": value["A"], "x": value["X"]} for key, value in table.items()]
    schema = pa.schema([("k", pa.string()), ("a", pa.int32()), ("x", pa.int32())])
    with new_connection() as connection:
        connection.register("s", pa.Table.from_pylist(held, schema))
        return sorted(connection.sql(law.reference).fetchall(), key=repr)


def _written(log: LogClient) -> list[tuple[Any, ...]]:
    latest: dict[bytes, tuple[Any, ...] | None] = {}
    for partition in range(log.partition_count("O")):
        for run in log.fetch("O", partition, 0).runs:
            assert isinstance(run, FetchedRows)
            for record in run.table.to_pylist():
                value = None if record["value"] is None else json.loads(record["value"])
                latest[record["key"]] = None if value is None else (json.loads(record["key"]), value["R"])
    return sorted((row for row in latest.values() if row is not None), key=repr)


def _pulled(log: LogClient, planner: Planner, query: ast.Query) -> list[tuple[Any, ...]]:
    def table_rows(source: Source) -> pa.Table:
        kept = Materialization(planner.catalog.source(source.name), log, PROPERTIES, timestamp=source.timestamp)
        kept.catch_up()
        return kept.rows()

    context = PlanningContext(planner.catalog, {PULL_FULL_SQL.name: "true"}, planner.topics, "PULL")
    planned = plan_pull(query, context)
    assert isinstance(planned, PlannedBatch)
    table = PullQuery(planned, log, PROPERTIES, PullLimits()).answer(table_rows)
    return sorted(zip(*(table.column(index).to_pylist() for index in (0, 1)), strict=True), key=repr)


def _pushed(log: LogClient, planner: Planner, query: ast.Query, emit: Mapping[str, str]) -> list[tuple[Any, ...]]:
    planned = plan_push(query, PlanningContext(planner.catalog, {}, planner.topics, "PUSH"))
    left: dict[Any, tuple[Any, ...]] = {}
    with PushQuery(planned.plan, log, {**PROPERTIES, **emit}) as push:
        while (changes := push.poll()) is not None:
            for change in changes.to_pylist():
                row = tuple(change[name] for name in planned.columns[:2])
                if change["_weight"] > 0:
                    left[row[0]] = row
                elif left.get(row[0]) == row:
                    del left[row[0]]
    return sorted(left.values(), key=repr)
