"""Rates: append and fetch, and queries over JSON and columnar topics."""

from __future__ import annotations

from collections.abc import Mapping

from .bids import bids
from .measuring import Measured, median, timed
from .pipelines import AGGREGATE, FILTER, Pipelines


class WrongResult(AssertionError):
    """The measured work did not give what it should."""


QUERIES: Mapping[str, str] = {  # name → statement; the stateful ones emit every change
    "filter": f"CREATE STREAM filtered AS {FILTER.format(source='bids')};",
    "aggregate": f"CREATE TABLE aggregated AS {AGGREGATE.format(source='bids')};",
    "to columns": "CREATE STREAM columnar WITH (VALUE_FORMAT='ARROW') AS SELECT * FROM bids;",
    "columnar filter": f"CREATE STREAM columnar_filtered AS {FILTER.format(source='columnar')};",
    "columnar aggregate": f"CREATE TABLE columnar_aggregated AS {AGGREGATE.format(source='columnar')};",
}


def duckdb_rates(run: Pipelines, rows: int, rounds: int, warm: int, seed: int) -> dict[str, Measured]:
    """Append, fetch and all `QUERIES`, each the median of `rounds`."""
    runs: dict[str, list[Measured]] = {name: [] for name in ("append", "fetch", *QUERIES)}
    ids: dict[str, str] = {}
    run.append(bids(warm, seed))
    for name, statement in QUERIES.items():
        ids[name] = run.execute(statement)
        run.wait(ids[name])
        run.execute(f"PAUSE {ids[name]};")
    for number in range(rounds):
        table = bids(rows, seed, warm + number * rows)
        runs["append"].append(run.append(table))
        runs["fetch"].append(_fetch(run, rows))
        for name, query_id in ids.items():
            runs[name].append(run.drain(query_id, rows))
    _check(run, warm + rounds * rows)
    return {name: median(measured) for name, measured in runs.items()}


def spark_rates(run: Pipelines, rows: int, rounds: int, warm: int, seed: int) -> dict[str, Measured]:
    """Filter and aggregate from JSON to JSON, each the median of `rounds`; the append is included."""
    rates: dict[str, Measured] = {}
    begin = 0
    for name in ("filter", "aggregate"):
        run.append(bids(warm, seed, begin))
        begin += warm
        query_id = run.execute(QUERIES[name])
        run.wait(query_id)
        runs: list[Measured] = []
        for _ in range(rounds):
            runs.append(run.append_and_drain(query_id, bids(rows, seed, begin)))
            begin += rows
        rates[name] = median(runs)
        run.execute(f"TERMINATE {query_id};")
    check_aggregate(run, "AGGREGATED", begin)
    return rates


def _fetch(run: Pipelines, rows: int) -> Measured:
    """All of the topic `bids`, scaled to `rows`."""
    total = 0

    def work() -> None:
        nonlocal total
        total = run.records_in("bids")

    measured = timed(rows, work)
    share = rows / total
    return Measured(rows, measured.wall_s * share, None if measured.cpu_s is None else measured.cpu_s * share)


def _check(run: Pipelines, appended: int) -> None:
    written = run.records_in("COLUMNAR")
    if written != appended:
        raise WrongResult(f"topic COLUMNAR has {written} records for {appended} bids")
    for topic in ("AGGREGATED", "COLUMNAR_AGGREGATED"):
        check_aggregate(run, topic, appended)
    filtered, columnar = run.records_in("FILTERED"), run.records_in("COLUMNAR_FILTERED")
    if filtered != columnar or not 0 < filtered < appended:
        raise WrongResult(f"the filters wrote {filtered} and {columnar} records of {appended}")


def check_aggregate(run: Pipelines, topic: str, appended: int) -> None:
    """A table's topic is compacted while it is written, so its records are not counted: its results are added up."""
    counted = run.counted_in(topic)
    if counted != appended:
        raise WrongResult(f"the results in topic {topic} count {counted} of {appended} bids")
