"""The Nexmark queries on Spark, beside the same ones on DuckDB: rates, and whether both give the batch query's rows."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import duckdb

from millstream.server.engine.executors import why_no_spark

from ..measuring import Measured
from ..report import Line, rate_line
from .answers import batch_engine
from .events import generator_path
from .market import Market, market
from .measure import NexmarkOptions, drain
from .queries import NexmarkQuery, nexmark_queries

_WARM_EVENTS: Final = 5_000
_EXECUTORS: Final = ("duckdb", "spark")


def on_spark_lines(options: NexmarkOptions, folder: Path) -> list[Line]:
    """Two lines per query over JSON, one of each executor. Processor time is that of all processes: Spark's driver, its
    workers in Python, and this one."""
    why_not = why_no_spark() if generator_path().is_file() else f"there is no {generator_path()}"
    if why_not is not None:
        return [Line(f"Nexmark on Spark: not measured, {why_not}")]
    queries = [query for query in nexmark_queries() if not options.names or query.name in options.names]
    events = options.generate(folder / "events", options.events)
    warm = options.generate(folder / "warm", min(options.events, _WARM_EVENTS))
    found: dict[str, list[Measured | str]] = {}
    with batch_engine(events, "arrow") as batch, batch_engine(warm, "arrow") as warm_batch:
        for executor in _EXECUTORS:
            settings = {"millstream.executor": executor}
            with market(folder / f"warm-{executor}", warm, "JSON", settings) as opened:
                _all_of(opened, warm_batch, queries, options.seconds)  # Spark starts here
            with market(folder / executor, events, "JSON", settings) as opened:
                found[executor] = _all_of(opened, batch, queries, options.seconds)
    return [
        line
        for query, ours, theirs in zip(queries, found["duckdb"], found["spark"], strict=True)
        for line in _lines(query, ours, theirs)
    ]


def _all_of(
    opened: Market, batch: duckdb.DuckDBPyConnection, queries: Sequence[NexmarkQuery], seconds: float
) -> list[Measured | str]:
    found: list[Measured | str] = []
    for query in queries:
        sys.stderr.write(f"bench: Nexmark: {query.name}, {opened.events.rows['bid']:,} bids …\n")
        rows = sum(opened.events.rows.get(source, 0) for source in query.sources)
        found.append(drain(opened, query, rows, seconds, children=True, batch=batch))
    return found


def _lines(query: NexmarkQuery, ours: Measured | str, theirs: Measured | str) -> list[Line]:
    what = f"{query.name}: {query.title.partition(':')[0].rstrip('.')}"
    if isinstance(ours, str) or isinstance(theirs, str):
        return [Line(f"{what}, on {name}", ratio=run) if isinstance(run, str) else rate_line(f"{what}, on {name}", run)
                for name, run in (("DuckDB", ours), ("Spark", theirs))]  # fmt: skip
    return [rate_line(f"{what}, on DuckDB", ours), rate_line(f"{what}, on Spark", theirs, of=ours, base="DuckDB")]
