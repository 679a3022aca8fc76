"""Checks the results: computes them again from the data frames, and compares."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import duckdb

from millstream.logcore.client import FetchedRows, LogClient
from millstream.server.client import Client

from . import statements
from .flights import Flights

_HOUR_MS = 3_600_000

# AVG without rows is 0, as in ksqlDB: in the blizzard of 8 February there were hours without flights.
_HOURS = f"""SELECT origin, rowtime_ms // {_HOUR_MS} * {_HOUR_MS}, count(*), count(delay),
  coalesce(avg(delay), 0), max(delay) FROM departures GROUP BY ALL"""
_THREE_HOURS = f"""SELECT origin, begin, count(*), coalesce(avg(delay), 0) FROM (
  SELECT origin, delay, rowtime_ms // {_HOUR_MS} * {_HOUR_MS} - hop * {_HOUR_MS} AS begin
  FROM departures, range(3) AS hops(hop)) GROUP BY ALL"""
_MAKERS = (
    """SELECT manufacturer, count(*), sum(seats)::BIGINT FROM departures JOIN planes USING (tailnum) GROUP BY ALL"""
)
_NAMED = """SELECT id, carrier, name FROM departures LEFT JOIN airlines USING (carrier)"""


def mistakes(client: Client, log: LogClient, flights: Flights) -> list[str]:
    """One sentence for each wrong result; empty if no record was lost or repeated."""
    found: list[str] = []
    with duckdb.connect() as connection:
        for name in ("departures", "airlines", "planes"):
            connection.register(name, getattr(flights, name))
        for name, pull, sql, key_columns in (
            ("delays_per_hour", statements.HOURS, _HOURS, 2),
            ("delays_in_three_hours", statements.THREE_HOURS, _THREE_HOURS, 2),
            ("makers", statements.MAKERS, _MAKERS, 1),
        ):
            expected = keyed(connection.sql(sql).fetchall(), key_columns)
            actual = keyed([row.values for row in client.query(pull)], key_columns)
            found += _different(name, actual, expected)
        expected_names = Counter(connection.sql(_NAMED).fetchall())
    found += _not_once(Counter(_named(log)), expected_names)
    return found


def keyed(rows: list[tuple[Any, ...]], key_columns: int) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Rows by their first columns."""
    return {row[:key_columns]: row[key_columns:] for row in rows}


def _different(
    name: str, actual: Mapping[tuple[Any, ...], tuple[Any, ...]], expected: Mapping[tuple[Any, ...], tuple[Any, ...]]
) -> list[str]:
    wrong = [key for key in expected.keys() | actual.keys() if not _same(actual.get(key), expected.get(key))]
    if not wrong:
        return []
    key = min(wrong, key=str)
    example = f"{key} has {actual.get(key)} and not {expected.get(key)}"
    return [f"{name}: {len(wrong)} of {len(expected)} rows are wrong: {example}"]


def _same(actual: tuple[Any, ...] | None, expected: tuple[Any, ...] | None) -> bool:
    if actual is None or expected is None:
        return False
    return all(
        math.isclose(a, b, rel_tol=1e-9) if isinstance(a, float) and isinstance(b, float) else a == b
        for a, b in zip(actual, expected, strict=True)
    )


def _named(log: LogClient) -> list[tuple[int, str, str | None]]:
    """Every committed record of the join's topic: id, carrier, airline."""
    found: list[tuple[int, str, str | None]] = []
    for partition in range(log.topics()[statements.NAMED].partition_count):
        offset, fetched = -1, log.fetch(statements.NAMED, partition, 0)
        while fetched.next_offset > offset:
            for run in fetched.runs:
                assert isinstance(run, FetchedRows), "the topic is JSON"
                records = run.table.select(["key", "value"]).to_pydict()
                for key, value in zip(records["key"], records["value"], strict=True):
                    row = json.loads(value)
                    found.append((row["ID"], key.decode(), row["AIRLINE"]))
            offset = fetched.next_offset
            fetched = log.fetch(statements.NAMED, partition, offset)
    return found


def _not_once(actual: Counter[Any], expected: Counter[Any]) -> list[str]:
    found: list[str] = []
    if lost := expected - actual:
        found.append(f"departures_named: {lost.total()} of {expected.total()} records are lost, as {next(iter(lost))}")
    if extra := actual - expected:
        found.append(f"departures_named: {extra.total()} records are there too often, as {next(iter(extra))}")
    return found
