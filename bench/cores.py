"""What more cores give one query: filter, aggregate and stream-table join over eight partitions, on one and on two.

Three processes stay open for the whole run: two that may use one core each, a different one, and one that may use both.
They take turns, so that a ratio is that of one run. In the last turn of each round the two of one core work at the same
time: twice the rows with nothing in common. How much faster that is than one of them alone is the ceiling, what this
machine gives at best (two cores share caches and memory, and a virtual machine may not have them all the time). From
the ratio and the ceiling follows the serial share, by Amdahl's law, and from that what eight cores would give.
"""

from __future__ import annotations

import contextlib
import json
import logging
import multiprocessing
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
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
CORES: Final = 2
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
    """`rounds`: of each measurement, in turn. The best of each counts: what disturbs a run makes it slower."""

    rows: int
    rounds: int
    warm: int
    seed: int


def cores_lines(options: CoresOptions) -> list[Line]:
    """Rates on one and two cores. Where the machine has one only, that is said."""
    there = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(there) < CORES:
        return [Line(f"cores: not measured, of {CORES} cores there are {len(there)} to be had")]
    one, other, both = ([there[0]], [there[1]], there[:CORES])
    found: dict[tuple[str, str], list[Measured]] = {}
    with ExitStack() as open_ones:
        alone, beside, wide = (open_ones.enter_context(_Worker(own, options)) for own in (one, other, both))
        for _ in range(options.rounds):
            _round({"one": [alone], "two": [wide]}, found)
            _round({"pair": [alone, beside]}, found)
    best = {at: min(runs, key=lambda run: run.wall_s) for at, runs in found.items()}
    return [
        line for shape in SHAPES for line in _lines(shape, best[shape, "one"], best[shape, "two"], best[shape, "pair"])
    ]


def serial_share(speedup: float, cores: float) -> float:
    """The share of the work of one core that no other core takes over, by Amdahl's law: between 0 and 1. In: `cores`:
    how many times the work of one they do where nothing is serial, more than 1."""
    return min(1.0, max(0.0, (cores / speedup - 1) / (cores - 1)))


def speedup_of(serial: float, cores: float) -> float:
    return 1 / (serial + (1 - serial) / cores)


def _round(turns: Mapping[str, Sequence[_Worker]], found: dict[tuple[str, str], list[Measured]]) -> None:
    """Each worker gets new rows, then each turn runs all shapes; the workers of one turn begin at the same time."""
    for workers in turns.values():
        for worker in workers:
            worker.ask("append")
            worker.answer()
    for shape in SHAPES:
        for name, workers in turns.items():
            for worker in workers:
                worker.ask(shape)
            found.setdefault((shape, name), []).append(_together([worker.answer() for worker in workers]))


def _together(runs: Sequence[Measured]) -> Measured:
    """All their rows, until the last one is done."""
    cpu_s = sum(run.cpu_s or 0.0 for run in runs)
    return Measured(sum(run.rows for run in runs), max(run.wall_s for run in runs), cpu_s)


def _lines(shape: str, one: Measured, two: Measured, pair: Measured) -> list[Line]:
    ceiling = pair.rate / one.rate
    serial = serial_share(two.rate / one.rate, max(ceiling, 1.01))
    estimate = f"{speedup_of(serial, ESTIMATED):.1f} × 1 core"
    return [
        rate_line(f"{shape}, {PARTITIONS} partitions: 1 core", one),
        rate_line(f"{shape}: 2 processes of 1 core each, the ceiling", pair, of=one, base="1 core"),
        rate_line(f"{shape}: 2 cores", two, of=one, base="1 core", wanted=f"≥ {WANTED}"),
        Line(f"{shape}: {ESTIMATED} cores, estimated from a serial share of {serial:.0%}", "", "", estimate),
    ]


class _Worker:
    """A process that may use these cores. It does what it is asked, one thing after the other.

    All workers are forked from one process, which has imported and compiled everything for them.
    """

    def __init__(self, cores: Sequence[int], options: CoresOptions) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__])
        self._asking, asked = context.Pipe()
        self._process = context.Process(target=_serve, args=(asked, [*cores], options), daemon=True)
        self._process.start()
        asked.close()

    def __enter__(self) -> _Worker:
        self.answer()  # it is ready
        return self

    def __exit__(self, *_: object) -> None:
        self._asking.close()
        self._process.join()

    def ask(self, what: str) -> None:
        """In: `append`, or a shape to be run over what was appended since its last turn."""
        self._asking.send(what)

    def answer(self) -> Measured:
        """Raises RuntimeError where the process ended before it was done."""
        try:
            measured: Measured = self._asking.recv()
        except EOFError:
            self._process.join()
            raise RuntimeError(f"the worker ended with code {self._process.exitcode}") from None
        return measured


def _serve(asked: Connection, cores: Sequence[int], options: CoresOptions) -> None:
    """In this process, on these cores: does what is asked, and says how long it took, until nobody asks any more."""
    os.sched_setaffinity(0, cores)
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    with pipelines("duckdb", PARTITIONS) as run:
        _fill_table(run)
        run.append(bids(options.warm, options.seed))
        ids: dict[str, str] = {}
        for shape, statement in SHAPES.items():
            ids[shape] = run.execute(statement)
            run.wait(ids[shape])
            run.execute(f"PAUSE {ids[shape]};")
        appended = options.warm
        asked.send(Measured(appended, 0.0, 0.0))
        with contextlib.suppress(EOFError):
            while True:
                what: str = asked.recv()
                if what == "append":
                    asked.send(run.append(bids(options.rows, options.seed, appended)))
                    appended += options.rows
                else:
                    asked.send(run.drain(ids[what], options.rows))


def _fill_table(run: Pipelines) -> None:
    """A row for each auction, in the partition of its key."""
    run.execute(_TABLE)
    keys = pa.array([str(auction).encode() for auction in range(AUCTIONS)])
    values = pa.array([json.dumps({"name": f"auction {auction}"}).encode() for auction in range(AUCTIONS)])
    table = pa.table({"timestamp": np.zeros(AUCTIONS, np.int64), "key": keys, "value": values})
    partitions = partitions_of(keys, PARTITIONS)
    for partition in range(PARTITIONS):
        run.log.append("auctions", partition, RowRecords(table.filter(pa.array(partitions == partition))))
