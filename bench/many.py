"""What many queries on one topic cost: processor time of an input record, next to that of a single query.

The queries are small ones, as hundreds of them are: filters that keep one record of a hundred, and aggregates per
minute with a few groups, in turn. Records come in appends of 2,000 as fast as the log takes them, then one by one.
What appending costs alone is subtracted, and nobody looks at the queries meanwhile: a look at a hundred costs as much
as a record that comes alone.
"""

from __future__ import annotations

import argparse
import json
import logging
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Final

import pyarrow as pa
import structlog

from millstream.logcore.client import RowRecords

from .bids import bids
from .measuring import cpu_seconds
from .pipelines import Pipelines, pipelines
from .report import Line

TIMES_MAX: Final = 12
_COUNTS: Final = (1, 10, 100)
_APPEND_ROWS: Final = 2_000
_SINGLE_PACE_S: Final = 0.2  # and as much again for 25 queries: each is done with a record before the next one comes
_SETTLE_S: Final = 3.0

SMALL_FILTER: Final = "CREATE STREAM small_{number} AS SELECT auction, bidder, price FROM bids WHERE price > {above};"
SMALL_AGGREGATE: Final = """CREATE TABLE small_{number} AS SELECT channel, COUNT(*) AS bids, SUM(price) AS total
FROM bids WINDOW TUMBLING (SIZE 1 MINUTE) WHERE bidder > {number} GROUP BY channel;"""
_LAST_CHANGE: Final = "SET 'ksql.streams.cache.max.bytes.buffering'='10000000';"


@dataclass(frozen=True, slots=True)
class Many:
    """Processor seconds of a record: in large appends, and alone. `wall_s`: of the large appends, until all is done."""

    appended_s: float
    single_s: float
    wall_s: float


def many_lines(rows: int, singles: int, counts: Sequence[int] = _COUNTS) -> list[Line]:
    """In: how many records are appended together, and how many alone."""
    found = {count: _measured(count, rows, singles) for count in counts}
    alone = found[counts[0]]
    lines: list[Line] = []
    for count, each in found.items():
        wanted = f"≤ {TIMES_MAX} ×" if count == 100 else ""
        for what, cost, of_one in (
            (f"{rows:,} records", each.appended_s, alone.appended_s),
            ("a record alone", each.single_s, alone.single_s),
        ):
            ratio = "" if each is alone else f"{cost / of_one:.1f} × one query"
            lines.append(Line(f"{count} queries on one topic: {what}", f"{cost * 1e6:.1f} CPU µs", "", ratio, wanted))
    return lines


def _measured(queries: int, rows: int, singles: int) -> Many:
    """In a process of its own."""
    given = {"--queries": queries, "--rows": rows, "--singles": singles}
    words = [str(word) for pair in given.items() for word in pair]
    command = [sys.executable, "-m", "bench.many", *words]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Many(**json.loads(done.stdout))


def measure(queries: int, rows: int, singles: int) -> Many:
    """In this process."""
    table = bids(rows + 2 * _APPEND_ROWS, 1)
    warm, rest = table.slice(0, _APPEND_ROWS), table.slice(2 * _APPEND_ROWS)
    alone = table.slice(_APPEND_ROWS, singles)
    with pipelines("duckdb", 1) as run:
        run.execute(_LAST_CHANGE)
        first = run.execute(small_query(queries))  # kernels are compiled, and libraries loaded, for it
        _cost(run, [first], warm)
        run.execute(f"TERMINATE {first};")
        time.sleep(_SETTLE_S)
        append_s, _ = _cost(run, [], rest)
        pace_s = _SINGLE_PACE_S * (1 + queries / 25)
        single_append_s = _single_cost(run, alone, pace_s)
        ids = [run.execute(small_query(number)) for number in range(queries)]
        _wait(run, ids)
        _cost(run, ids, warm)
        _single_cost(run, alone.slice(0, max(1, singles // 4)), pace_s)
        appended_s, wall_s = _cost(run, ids, rest)
        single_s = _single_cost(run, alone, pace_s)
        _wait(run, ids)
        return Many((appended_s - append_s) / rows, (single_s - single_append_s) / singles, wall_s)


def small_query(number: int) -> str:
    """The statement that creates it."""
    text = SMALL_AGGREGATE if number % 2 else SMALL_FILTER
    return text.format(number=number, above=99_000 + number)


def _wait(run: Pipelines, ids: Sequence[str]) -> None:
    """A look at all costs a hundred times as much as at one: first the last one is waited for."""
    for query_id in reversed(ids):
        run.wait(query_id)


def _cost(run: Pipelines, ids: Sequence[str], table: pa.Table) -> tuple[float, float]:
    """Processor time and time until all queries are done with these records."""
    cpu, begin = cpu_seconds(children=False) or 0.0, time.perf_counter()
    for first in range(0, len(table), _APPEND_ROWS):
        run.log.append("bids", 0, RowRecords(table.slice(first, _APPEND_ROWS)))
    _wait(run, ids)
    return (cpu_seconds(children=False) or 0.0) - cpu, time.perf_counter() - begin


def _single_cost(run: Pipelines, table: pa.Table, pace_s: float) -> float:
    """What all threads need for records that come one by one, without what they need in that time for none."""
    idle_s = _cost_of(lambda: time.sleep(pace_s * len(table)))

    def append_each() -> None:
        for row in range(len(table)):
            run.log.append("bids", 0, RowRecords(table.slice(row, 1)))
            time.sleep(pace_s)

    return _cost_of(append_each) - idle_s


def _cost_of(work: Callable[[], None]) -> float:
    cpu = cpu_seconds(children=False) or 0.0
    work()
    return (cpu_seconds(children=False) or 0.0) - cpu


def _main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("--queries", "--rows", "--singles"):
        parser.add_argument(name, type=int, required=True)
    given = parser.parse_args()
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    json.dump(asdict(measure(given.queries, given.rows, given.singles)), sys.stdout)


if __name__ == "__main__":
    _main()
