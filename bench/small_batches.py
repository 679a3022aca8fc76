"""What a batch of one record costs: CPU milliseconds of the whole process, the log, fsync and changelog included.

Records come one by one, each 10 ms or more after the one before, when its result is there. What appending them and
looking for the result costs without a query is subtracted.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import Final, NamedTuple

import pyarrow as pa

from millstream.logcore.client import RowRecords

from .bids import bids
from .measuring import cpu_seconds
from .pipelines import AGGREGATE, FILTER, Pipelines, QueryBroke, pipelines
from .report import Line

PACE_S: Final = 0.01
_PATIENCE_S: Final = 300.0
_WARM_RECORDS: Final = 150
_BIDDERS: Final = 100_000
_PEOPLE: Final = """CREATE TABLE people (bidder BIGINT PRIMARY KEY, name STRING)
WITH (KAFKA_TOPIC='people', FORMAT='JSON', PARTITIONS=1);"""


class Shape(NamedTuple):
    """`wanted_ms`: of a batch, at most; None where nothing was set as a goal."""

    name: str
    query: str
    wanted_ms: float | None = None


SHAPES: Final = (
    Shape("filter", f"CREATE STREAM out AS {FILTER.format(source='bids').replace('price > 50000', 'price > 0')};", 1.0),
    Shape("windowed aggregate", f"CREATE TABLE out AS {AGGREGATE.format(source='bids')};", 2.0),
    Shape(
        "stream-table join",
        "CREATE STREAM out AS SELECT b.bidder, b.price, p.name FROM bids b JOIN people p ON b.bidder = p.bidder;",
    ),
)


class SmallBatches(NamedTuple):
    """CPU milliseconds of a record: appended alone, and what the query adds to that; the median of some rounds."""

    append_ms: float
    batch_ms: float


def small_batch_lines(records: int, rounds: int) -> list[Line]:
    """In: how many records each measurement takes."""
    lines: list[Line] = []
    for shape in SHAPES:
        found = measure(shape, records, rounds)
        wanted = "" if shape.wanted_ms is None else f"≤ {shape.wanted_ms:.0f} ms"
        cost, append = f"{found.batch_ms:.2f} ms CPU", f"append {found.append_ms:.2f} ms CPU"
        ratio = f"{found.batch_ms / found.append_ms:.1f} × its append"
        lines.append(Line(f"{shape.name}: a batch of one record", cost, append, ratio, wanted))
    return lines


def measure(shape: Shape, records: int, rounds: int) -> SmallBatches:
    with pipelines("duckdb", 1) as run:
        _prepare_people(run)
        given = iter(_single(bids(2 * (rounds * records + _WARM_RECORDS), 1)))
        _cpu_ms(run, given, _WARM_RECORDS, "bids")
        alone = statistics.median(_cpu_ms(run, given, records, "bids") for _ in range(rounds)) / records
        query_id = run.execute(shape.query)
        run.wait(query_id)
        _cpu_ms(run, given, _WARM_RECORDS, "OUT")
        with_query = statistics.median(_cpu_ms(run, given, records, "OUT") for _ in range(rounds)) / records
        return SmallBatches(alone, with_query - alone)


def _prepare_people(run: Pipelines) -> None:
    run.execute(_PEOPLE)
    keys = [str(bidder).encode() for bidder in range(_BIDDERS)]
    values = [f'{{"NAME":"name {bidder}"}}'.encode() for bidder in range(_BIDDERS)]
    times = pa.array([0] * _BIDDERS, pa.timestamp("ms"))
    run.append(pa.table({"timestamp": times, "key": pa.array(keys), "value": pa.array(values)}), "people")


def _single(table: pa.Table) -> list[RowRecords]:
    return [RowRecords(table.slice(row, 1)) for row in range(len(table))]


def _cpu_ms(run: Pipelines, given: Iterator[RowRecords], count: int, result: str) -> float:
    """Of the process, while so many are appended, each when the topic `result` has grown after the one before."""
    before, begin = cpu_seconds(children=False) or 0.0, time.perf_counter()
    end_offset = run.log.offsets(result, 0).last_stable_offset
    for _ in range(count):
        run.log.append("bids", 0, next(given))
        grown = end_offset
        while grown == end_offset:
            time.sleep(PACE_S)
            grown = run.log.offsets(result, 0).last_stable_offset
            if time.perf_counter() - begin > _PATIENCE_S:
                raise QueryBroke(f"topic {result} does not grow")
        end_offset = grown
    return ((cpu_seconds(children=False) or 0.0) - before) * 1000
