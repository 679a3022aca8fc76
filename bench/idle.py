"""What queries cost that have nothing to do: threads, memory and processor time of one process."""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import structlog

from .bids import bids
from .measuring import cpu_seconds, resident_bytes
from .pipelines import AGGREGATE, FILTER, Pipelines, pipelines
from .report import Line

THREADS_MAX: Final = 120
_PARTITIONS: Final = 2
_SETTLE_S: Final = 3.0  # until all are at rest
_WARM: Final = 4  # created before: libraries are loaded and kernels compiled for them
_FEW: Final = 10  # of those that are compared


@dataclass(frozen=True, slots=True)
class Idle:
    """`before`: bytes of memory before the first query. `share`: of one core, in use. `first_s`, `last_s`: processor
    time to create one of the first and of the last queries, until it waits for records."""

    threads: int
    before: int
    after: int
    first_s: float
    last_s: float
    share: float


def idle_lines(queries: int, seconds: float) -> list[Line]:
    """In: how many queries, half of them windowed aggregates, and for how long they are watched."""
    command = [sys.executable, "-m", "bench.idle", "--queries", str(queries), "--seconds", str(seconds)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found = Idle(**json.loads(done.stdout))
    what = f"{queries} idle queries"
    each = (found.after - found.before) / queries / 1e6
    return [
        Line(
            f"{what}: threads of the process", f"{found.threads}", wanted=f"≤ {THREADS_MAX}" if queries == 100 else ""
        ),
        Line(f"{what}: memory", f"{found.after / 1e6:.0f} MB", ratio=f"{each:.1f} MB each"),
        Line(f"{what}: processor", f"{found.share:.1%} of a core"),
        Line(
            f"{what}: to create one of the last",
            f"{found.last_s * 1000:.0f} CPU ms",
            ratio=f"{found.last_s / found.first_s:.1f} × one of the first",
            wanted="≤ 3 ×" if queries == 1_000 else "",
        ),
    ]


def measure(queries: int, seconds: float) -> Idle:
    """In this process."""
    with pipelines("duckdb", _PARTITIONS) as run:
        run.append(bids(1_000, 1))
        before = resident_bytes()
        _create(run, range(_WARM))
        few = min(_FEW, queries)
        first = _create(run, range(_WARM, _WARM + few))
        _create(run, range(_WARM + few, queries - few))
        last = _create(run, range(max(_WARM + few, queries - few), max(_WARM + 2 * few, queries)))
        time.sleep(_SETTLE_S)
        begin, cpu = time.perf_counter(), cpu_seconds(children=False) or 0.0
        time.sleep(seconds)
        used = (cpu_seconds(children=False) or 0.0) - cpu
        return Idle(_threads(), before, resident_bytes(), first / few, last / few, used / (time.perf_counter() - begin))


def _create(run: Pipelines, numbers: Iterable[int]) -> float:
    """Processor seconds until queries with these numbers wait for records."""
    cpu = cpu_seconds(children=False) or 0.0
    ids = [
        run.execute(
            f"CREATE TABLE aggregated_{number} AS {AGGREGATE.format(source='bids')};"
            if number % 2
            else f"CREATE STREAM filtered_{number} AS {FILTER.format(source='bids')};"
        )
        for number in numbers
    ]
    for query_id in ids:
        run.wait(query_id)
    return (cpu_seconds(children=False) or 0.0) - cpu


def _threads() -> int:
    """Those of libraries count; 0 where the system does not tell."""
    tasks = Path("/proc/self/task")
    return len(os.listdir(tasks)) if tasks.is_dir() else 0


def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--queries", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    given = parser.parse_args()
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    json.dump(asdict(measure(given.queries, given.seconds)), sys.stdout)


if __name__ == "__main__":
    _main()
