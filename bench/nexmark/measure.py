"""How long each query takes over topics that are full already, beside DuckDB's batch query over the same events."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import duckdb

from millstream.errors import MillstreamError

from ..measuring import Measured, Stopwatch, timed
from ..report import Line, rate_line
from .answers import batch_engine
from .events import Events, FileFormat, generate, generator_path
from .market import Market, QueryBroke, market
from .queries import NexmarkQuery, nexmark_queries
from .results import WrongAnswer, compare
from .topics import ValueFormat

_WARM_EVENTS: Final = 5_000
_FORMATS: Final[tuple[tuple[ValueFormat, FileFormat], ...]] = (("JSON", "ndjson"), ("ARROW", "arrow"))
_NAMES: Final = {"JSON": "JSON", "ARROW": "columnar"}


@dataclass(frozen=True, slots=True)
class NexmarkOptions:
    """`seconds`: a query that needs longer is stopped. `names`: of the queries; none means all. `rate`: events per
    second of event time."""

    events: int
    seconds: float
    partitions: int
    seed: int
    names: Sequence[str] = ()
    rate: float = 10_000.0

    def generate(self, folder: Path, events: int) -> Events:
        return generate(folder, events, seed=self.seed, rate=self.rate, partitions=self.partitions)


def nexmark_lines(options: NexmarkOptions, folder: Path) -> list[Line]:
    """Two lines per query, JSON and columnar; rates are in rows of its sources."""
    if not generator_path().is_file():
        return [Line(f"Nexmark: not measured, there is no {generator_path()}")]
    queries = [query for query in nexmark_queries() if not options.names or query.name in options.names]
    warm = options.generate(folder / "warm", _WARM_EVENTS)
    _say(f"generating {options.events:,} events")
    events = options.generate(folder / "events", options.events)
    by_query: dict[str, list[Line]] = {query.name: [] for query in queries}
    for topics, files in _FORMATS:
        with market(folder / f"warm-{topics}", warm, topics) as opened:
            for query in queries:
                drain(opened, query, 1, options.seconds)
        shutil.rmtree(folder / f"warm-{topics}")
        with (
            batch_engine(events, files) as batch,
            market(folder / f"engine-{topics}", events, topics) as opened,
        ):
            for query in queries:
                _say(f"{query.name}, {_NAMES[topics]}")
                by_query[query.name].append(_line(opened, batch, query, events, options.seconds))
        shutil.rmtree(folder / f"engine-{topics}")
    return [line for lines in by_query.values() for line in lines]


def _line(
    opened: Market, batch: duckdb.DuckDBPyConnection, query: NexmarkQuery, events: Events, seconds: float
) -> Line:
    rows = sum(events.rows.get(source, 0) for source in query.sources)
    what = f"{query.name} {_NAMES[opened.format]}: {query.title.partition(':')[0].rstrip('.')}"
    reference = _batch_run(batch, query, rows)
    found = drain(opened, query, rows, seconds)
    if isinstance(found, str):
        return Line(what, ratio=found)
    return rate_line(what, found, of=reference, base="DuckDB's batch query")


def _batch_run(batch: duckdb.DuckDBPyConnection, query: NexmarkQuery, rows: int) -> Measured:
    """The result stays in memory; a first run is not counted."""

    def work() -> None:
        batch.sql(query.answer).to_arrow_table()

    work()
    return timed(rows, work)


def drain(
    opened: Market,
    query: NexmarkQuery,
    rows: int,
    seconds: float,
    *,
    children: bool = False,
    batch: duckdb.DuckDBPyConnection | None = None,
) -> Measured | str:
    """From the statement until all of the input is read and its results are committed; or why that was not reached.
    In: `children`: processor time is also that of child processes. `batch`: rows that are not those of its batch query
    are no result."""
    stopwatch = Stopwatch(rows, children=children)
    try:
        with stopwatch.running():
            opened.start(query)
            done = opened.wait(seconds)
        if done and batch is not None:
            compare(opened.rows(query, batch), query.answer, batch)
        return (
            stopwatch.measured if done else f"stopped after {seconds:.0f} s at {opened.share_read():.0%} of the input"
        )
    except WrongAnswer as error:
        return f"wrong: {str(error).splitlines()[0]}"
    except (MillstreamError, QueryBroke) as error:
        return f"failed: {str(error).splitlines()[0]}"
    finally:
        opened.clear()


def _say(text: str) -> None:
    sys.stderr.write(f"bench: Nexmark: {text} …\n")
