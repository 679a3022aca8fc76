"""What a small batch costs by how much a query holds: `python -m bench.state_growth [--memory 512MB] [ROWS ...]`.

A query is filled with so many keys, or rows. Once the process has compacted and checkpointed what filling left behind,
the query gets batches of 100 records, each one durable and computed before the next comes. Given per batch: CPU
milliseconds of the whole process (log, fsync and changelog included), and rows per CPU second while it was filled. The
ratio between two sizes counts, not the figure. `--memory` limits what queries keep in memory
(`millstream.duckdb.memory.limit`); the rest of the process is not counted there.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from millstream.logcore.client import RowRecords
from millstream.sql.settings.property_table import DUCKDB_MEMORY

from .measuring import cpu_seconds, resident_bytes, timed
from .pipelines import Pipelines, pipelines
from .report import Line, as_text

SIZES: Final = (10_000, 1_000_000)
BATCHES: Final = 50
BATCH_ROWS: Final = 100
_FILL_ROWS: Final = 50_000
_COMMITTED_S: Final = 1.5  # the state file has what was filled by then
_IDLE_S: Final = 20.0  # longer than the log's housekeeping pauses between two rounds, or pieces of work
_IDLE_SHARE: Final = 0.02  # of a core
_IDLE_WITHIN_S: Final = 300.0


class Shape(NamedTuple):
    """A query over `facts`, and perhaps the table `names`; what it holds grows with the rows of the topic `fills`."""

    name: str
    fills: str
    query: str


SHAPES: Final = (
    Shape("aggregate", "facts", "CREATE TABLE out AS SELECT k, COUNT(*) AS n, SUM(v) AS s FROM facts GROUP BY k;"),
    Shape(
        "stream-table join",
        "names",
        "CREATE STREAM out AS SELECT f.k, f.v, n.name FROM facts f JOIN names n ON f.k = n.k;",
    ),
    Shape(
        "stream-stream join",
        "others",
        "CREATE STREAM out AS SELECT f.k, f.v, o.v FROM facts f JOIN others o WITHIN 1 DAYS GRACE PERIOD 1 DAYS"
        " ON f.k = o.k;",
    ),
    Shape("distinct count", "facts", "CREATE TABLE out AS SELECT v % 7 AS g, COUNT(DISTINCT k) AS n FROM facts"
          " GROUP BY v % 7;"),
    Shape("top-n", "facts", "CREATE TABLE out AS SELECT k, v, r FROM (SELECT k, v, ROW_NUMBER() OVER (PARTITION BY k"
          " ORDER BY v DESC) AS r FROM facts) q WHERE r <= 2;"),
)  # fmt: skip

_SOURCES: Final = """
SET 'auto.offset.reset'='earliest';
CREATE STREAM facts (k BIGINT KEY, v BIGINT) WITH (KAFKA_TOPIC='facts', FORMAT='JSON', PARTITIONS=1);
CREATE STREAM others (k BIGINT KEY, v BIGINT) WITH (KAFKA_TOPIC='others', FORMAT='JSON', PARTITIONS=1);
CREATE TABLE names (k BIGINT PRIMARY KEY, name STRING) WITH (KAFKA_TOPIC='names', FORMAT='JSON', PARTITIONS=1);
"""


def records(topic: str, keys: Sequence[int]) -> pa.Table:
    values = [f'{{"NAME":"name {key}"}}' if topic == "names" else f'{{"V":{key % 1_000}}}' for key in keys]
    return pa.table(
        {
            "timestamp": pa.array([1_000_000 + key // 100 for key in keys], pa.timestamp("ms")),
            "key": pa.array([str(key).encode() for key in keys], pa.binary()),
            "value": pa.array([value.encode() for value in values], pa.binary()),
        }
    )


class Growth(NamedTuple):
    """`batch_ms`: CPU milliseconds of a batch of `BATCH_ROWS` records."""

    shape: str
    rows: int
    filled_per_second: float
    batch_ms: float
    resident_mb: int


def measure(shape: Shape, rows: int, memory: str = "") -> Growth:
    random = np.random.default_rng(1)
    with pipelines("duckdb", 1, {DUCKDB_MEMORY.name: memory}) as run:
        run.execute(_SOURCES)
        query_id = run.execute(shape.query)
        filled = timed(rows, lambda: _fill(run, query_id, shape.fills, rows))
        _feed(run, query_id, random, rows, 5)
        time.sleep(_COMMITTED_S)
        _feed(run, query_id, random, rows, 5)
        _until_idle()
        before = cpu_seconds(children=False)
        _feed(run, query_id, random, rows, BATCHES)
        after = cpu_seconds(children=False)
        assert before is not None and after is not None and filled.cpu_rate is not None
        run.status(query_id)
        batch_ms = (after - before) * 1_000 / BATCHES
        return Growth(shape.name, rows, filled.cpu_rate, batch_ms, resident_bytes() >> 20)


def _until_idle() -> None:
    """What is done in the background for the rows before would be counted for the few that come now: up to 20 ms of a
    batch were a checkpoint and the compaction of the changelog. Raises TimeoutError."""
    deadline = time.monotonic() + _IDLE_WITHIN_S
    while time.monotonic() < deadline:
        before = cpu_seconds(children=False) or 0.0
        time.sleep(_IDLE_S)
        if (cpu_seconds(children=False) or 0.0) - before < _IDLE_SHARE * _IDLE_S:
            return
    raise TimeoutError(f"the process was not idle within {_IDLE_WITHIN_S:.0f} s")


def _fill(run: Pipelines, query_id: str, topic: str, rows: int) -> None:
    for first in range(0, rows, _FILL_ROWS):
        run.log.append(topic, 0, RowRecords(records(topic, range(first, min(first + _FILL_ROWS, rows)))))
    run.wait(query_id)


def _feed(run: Pipelines, query_id: str, random: np.random.Generator, rows: int, batches: int) -> None:
    for _ in range(batches):
        keys = random.choice(rows, BATCH_ROWS, replace=False).tolist()
        run.log.append("facts", 0, RowRecords(records("facts", keys)))
        run.wait(query_id)


def state_lines(sizes: Sequence[int] = SIZES, memory: str = "", shapes: Sequence[Shape] = SHAPES) -> list[Line]:
    """Lines of a table: each shape at each size, and what its small batches cost beside those of the first size."""
    lines: list[Line] = []
    for shape in shapes:
        first = measure(shape, sizes[0], memory)
        for rows in sizes:
            growth = first if rows == sizes[0] else measure(shape, rows, memory)
            ratio = f"{growth.batch_ms / first.batch_ms:.2f} × {sizes[0]:,} rows" if rows != sizes[0] else ""
            lines.append(_line(growth, ratio))
    return lines


def _line(growth: Growth, ratio: str) -> Line:
    return Line(
        f"{growth.shape}, {growth.rows:,} rows held, {growth.resident_mb:,} MB: batches of {BATCH_ROWS} records",
        f"{growth.batch_ms:.1f} ms CPU",
        f"filled {growth.filled_per_second / 1_000:,.0f} k",
        ratio,
        "≤ 1.5" if ratio else "",
    )


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.state_growth")
    parser.add_argument("rows", nargs="*", type=int, default=SIZES)
    parser.add_argument("--memory", default="", help="as 512MB; default: half of the machine's")
    parser.add_argument("--shape", action="append", help="only this one; may be repeated")
    asked = parser.parse_args(arguments)
    shapes = [shape for shape in SHAPES if not asked.shape or shape.name in asked.shape]
    sys.stdout.write(as_text(state_lines(asked.rows, asked.memory, shapes)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
