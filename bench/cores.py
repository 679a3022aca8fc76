"""What more cores give one query: filter, aggregate and stream-table join over eight partitions, on one and on two.


Each measurement is a process of its own that may use so many cores, and they take turns; so the ratio is that of one
run. From it follows the serial share, by Amdahl's law, and from that what eight cores would give.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import structlog

from millstream.executor.partitioning import partitions_of
from millstream.logcore.client import RowRecords

from .bids import AUCTIONS, bids
from .measuring import Measured
from .pipelines import AGGREGATE, FILTER, Pipelines, pipelines
from .report import Line, rate_line

PARTITIONS: Final = 8
CORES: Final = (1, 2)
ESTIMATED: Final = 8
WANTED: Final = 1.8

_TABLE: Final = (
    "CREATE TABLE auctions (id BIGINT PRIMARY KEY, name STRING) "
    f"WITH (KAFKA_TOPIC='auctions', KEY_FORMAT='JSON', VALUE_FORMAT='JSON', PARTITIONS={PARTITIONS});"
)
SHAPES: Final[Mapping[str, str]] = {
    "filter": f"CREATE STREAM filtered AS {FILTER.format(source='bids')};",
    "aggregate": f"CREATE TABLE aggregated AS {AGGREGATE.format(source='bids')};",
    "stream-table join": "CREATE STREAM joined AS SELECT b.auction, b.price, b.channel, a.name "
    "FROM bids b JOIN auctions a ON b.auction = a.id;",
}


@dataclass(frozen=True, slots=True)
class CoresOptions:
    """`rounds`: of each number of cores, in turn. The best of each counts: what disturbs a run makes it slower."""

    rows: int
    rounds: int
    warm: int
    seed: int


def cores_lines(options: CoresOptions) -> list[Line]:
    """Rates on one and two cores. Where the machine has one only, that is said."""
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    if there < max(CORES):
        return [Line(f"cores: not measured, of {max(CORES)} cores there are {there} to be had")]
    found: dict[int, dict[str, list[Measured]]] = {cores: {shape: [] for shape in SHAPES} for cores in CORES}
    for _ in range(options.rounds):
        for cores in CORES:
            for shape, measured in _in_a_process(cores, options).items():
                found[cores][shape].append(measured)
    best = {cores: {shape: _best(runs) for shape, runs in shapes.items()} for cores, shapes in found.items()}
    return [line for shape in SHAPES for line in _lines(shape, best[1][shape], best[2][shape])]


def serial_share(speedup: float, cores: int) -> float:
    """The share of the work of one core that no other core takes over, by Amdahl's law: between 0 and 1."""
    return min(1.0, max(0.0, (cores / speedup - 1) / (cores - 1)))


def speedup_of(serial: float, cores: int) -> float:
    return 1 / (serial + (1 - serial) / cores)


def _lines(shape: str, one: Measured, two: Measured) -> list[Line]:
    serial = serial_share(two.rate / one.rate, 2)
    estimate = f"{speedup_of(serial, ESTIMATED):.1f} × 1 core"
    return [
        rate_line(f"{shape}, {PARTITIONS} partitions: 1 core", one),
        rate_line(f"{shape}, {PARTITIONS} partitions: 2 cores", two, of=one, base="1 core", wanted=f"≥ {WANTED}"),
        Line(f"{shape}: {ESTIMATED} cores, estimated from a serial share of {serial:.0%}", "", "", estimate),
    ]


def _best(runs: list[Measured]) -> Measured:
    return min(runs, key=lambda run: run.wall_s)


def _in_a_process(cores: int, options: CoresOptions) -> dict[str, Measured]:
    command = [sys.executable, "-m", "bench.cores", "--cores", str(cores), "--rows", str(options.rows)]
    command += ["--warm", str(options.warm), "--seed", str(options.seed)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return {shape: Measured(*figures) for shape, figures in json.loads(done.stdout).items()}


def measure(options: CoresOptions) -> dict[str, Measured]:
    """Each shape once in this process, on the cores that it has."""
    with pipelines("duckdb", PARTITIONS) as run:
        _fill_table(run)
        run.append(bids(options.warm, options.seed))
        ids: dict[str, str] = {}
        for shape, statement in SHAPES.items():
            ids[shape] = run.execute(statement)
            run.wait(ids[shape])
            run.execute(f"PAUSE {ids[shape]};")
        run.append(bids(options.rows, options.seed, options.warm))
        return {shape: run.drain(query_id, options.rows) for shape, query_id in ids.items()}


def _fill_table(run: Pipelines) -> None:
    """A row for each auction, in the partition of its key."""
    run.execute(_TABLE)
    keys = pa.array([str(auction).encode() for auction in range(AUCTIONS)])
    values = pa.array([json.dumps({"name": f"auction {auction}"}).encode() for auction in range(AUCTIONS)])
    table = pa.table({"timestamp": np.zeros(AUCTIONS, np.int64), "key": keys, "value": values})
    partitions = partitions_of(keys, PARTITIONS)
    for partition in range(PARTITIONS):
        run.log.append("auctions", partition, RowRecords(table.filter(pa.array(partitions == partition))))


def _main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("cores", "rows", "warm", "seed"):
        parser.add_argument(f"--{name}", type=int, required=True)
    given = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: given.cores])
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    found = measure(CoresOptions(given.rows, 1, given.warm, given.seed))
    json.dump({shape: (each.rows, each.wall_s, each.cpu_s) for shape, each in found.items()}, sys.stdout)


if __name__ == "__main__":
    _main()
