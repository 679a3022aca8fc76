"""The log of a lone node beside the log of one node, in one run and turn by turn: `python -m bench --only onelog`.

Processor time, sync included, of the whole process; medians of the rounds. A ratio is the lone node's share of the
other's, so less is better. What concerns a whole process (opening, memory) is measured in one of its own.
"""

from __future__ import annotations

import json
import logging
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import structlog

from millstream.logcore.client import LogClient, RowRecords, TopicPartition
from millstream.logcore.clients.routed_log import RoutedLog
from millstream.logcore.log import Log, open_log

from .measuring import cpu_seconds, resident_bytes
from .report import Line

Opened = Log | RoutedLog

OPENERS: Final[Mapping[str, Callable[[Path], Opened]]] = {"single": open_log, "lone": open_log}
_ROOT: Final = Path(__file__).resolve().parents[1]
_TOPIC: Final = "rows"
_ROWS: Final = 1_000
_TOPICS_OPENED: Final = 10


@dataclass(frozen=True, slots=True)
class OneLogOptions:
    """`calls`: of each measurement in a round; `partitions`: of the logs that are opened."""

    calls: int
    rounds: int
    partitions: int


class _Work(NamedTuple):
    """`seconds(log, calls)`: what so many calls cost. `wanted`: the ratio at which the lone node is good enough."""

    name: str
    seconds: Callable[[Opened, int], float]
    wanted: float


def one_log_lines(options: OneLogOptions) -> list[Line]:
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as parent:
        return [*call_lines(Path(parent), options), *_process_lines(Path(parent), options)]


def call_lines(parent: Path, options: OneLogOptions) -> list[Line]:
    with OPENERS["single"](parent / "single") as single, OPENERS["lone"](parent / "lone") as lone:
        for log in (single, lone):
            log.create_topic(_TOPIC, 1)
            for work in _WORKS:
                work.seconds(log, 10)
        return [_compared(work, single, lone, options) for work in _WORKS]


def _compared(work: _Work, single: Opened, lone: Opened, options: OneLogOptions) -> Line:
    sys.stderr.write(f"bench: {work.name} …\n")
    taken: dict[str, list[float]] = {"single": [], "lone": []}
    for _ in range(options.rounds):
        taken["single"].append(work.seconds(single, options.calls))
        taken["lone"].append(work.seconds(lone, options.calls))
    ours, base = (statistics.median(taken[kind]) / options.calls * 1e6 for kind in ("lone", "single"))
    return _line(work.name, ours, base, "µs", work.wanted)


def _line(name: str, lone: float, single: float, unit: str, wanted: float) -> Line:
    ratio = f"{lone / single:.2f} of {single:,.0f} {unit}"
    return Line(f"lone node: {name}", f"{lone:,.0f} {unit}", "", ratio, f"≤ {wanted}")


# Calls


def _rows(count: int) -> RowRecords:
    values = pa.array([b"v" * 100] * count, pa.binary())
    columns = {"timestamp": pa.array([1] * count, pa.int64()), "key": pa.nulls(count, pa.binary()), "value": values}
    return RowRecords(pa.table(columns))


_ONE, _MANY = _rows(1), _rows(_ROWS)


def _cpu(work: Callable[[], object], calls: int) -> float:
    began = time.process_time()
    for _ in range(calls):
        work()
    return time.process_time() - began


def _append_one(log: Opened, calls: int) -> float:
    return _cpu(lambda: log.append(_TOPIC, 0, _ONE), calls)


def _append_many(log: Opened, calls: int) -> float:
    return _cpu(lambda: log.append(_TOPIC, 0, _MANY), calls)


def _transaction(log: LogClient, calls: int) -> float:
    producer = log.transactional_producer("bench")

    def one() -> None:
        producer.begin()
        producer.append(_TOPIC, 0, _ONE)
        producer.send_offsets("bench", {TopicPartition(_TOPIC, 0): 1})
        producer.commit()

    one()
    return _cpu(one, calls)


def _fetch_large(log: Opened, calls: int) -> float:
    """A megabyte or so, from the beginning."""
    return _cpu(lambda: log.fetch(_TOPIC, 0, 0, max_bytes=1 << 20), calls)


def _fetch_small(log: Opened, calls: int) -> float:
    last = log.append(_TOPIC, 0, _ONE)
    return _cpu(lambda: log.fetch(_TOPIC, 0, last), calls)


def _wait(log: Opened, calls: int) -> float:
    """From an append to a reader that waits for it: the median of the wall's time, times the calls."""
    where = TopicPartition(_TOPIC, 0)
    taken: list[float] = []
    position = log.offsets(_TOPIC, 0).log_end_offset
    turn, woken = threading.Event(), [0.0]

    def read() -> None:
        for number in range(calls):
            turn.set()
            log.wait({where: position + number}, 30.0)
            woken[0] = time.perf_counter()
            done.set()

    done = threading.Event()
    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(calls):
        turn.wait()
        turn.clear()
        time.sleep(0.001)  # until it waits
        done.clear()
        began = time.perf_counter()
        log.append(_TOPIC, 0, _ONE)
        done.wait()
        taken.append(woken[0] - began)
    reader.join()
    return statistics.median(taken) * calls


_WORKS: Final = (
    _Work("append a record", _append_one, 1.11),
    _Work(f"append {_ROWS:,} rows", _append_many, 1.11),
    _Work("a transaction: a record and an offset", _transaction, 1.11),
    _Work("append → a reader that waits, p50", _wait, 1.1),
    _Work("fetch a record", _fetch_small, 1.11),
    _Work("fetch 1 MB of rows", _fetch_large, 1.11),
)


# Processes


def _process_lines(parent: Path, options: OneLogOptions) -> list[Line]:
    """Opening, memory, and what it costs to do nothing."""
    for kind in OPENERS:
        _in_process("fill", kind, parent / f"{kind}-many", options.partitions)
    what = f"{options.partitions:,} partitions"
    lines: list[Line] = []
    for name, work, folder, unit, wanted in (
        (f"open {what}", "open", "many", "ms", 1.5),
        ("memory of an empty log", "memory", "none", "MB", 1.1),
        (f"a second of nothing, {what}", "rest", "many", "ms", 1.5),
    ):
        sys.stderr.write(f"bench: {name} …\n")
        taken: dict[str, list[float]] = {kind: [] for kind in OPENERS}
        for _ in range(options.rounds):
            for kind in OPENERS:
                taken[kind].append(_in_process(work, kind, parent / f"{kind}-{folder}", options.partitions))
        lines.append(_line(name, statistics.median(taken["lone"]), statistics.median(taken["single"]), unit, wanted))
    return lines


def _in_process(work: str, kind: str, folder: Path, partitions: int) -> float:
    """What the work of this name in `PROCESS_WORK` gives in a process of its own."""
    command = [sys.executable, "-m", "bench.one_log", work, kind, str(folder), str(partitions)]
    run = subprocess.run(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True, timeout=600, check=True)
    return json.loads(run.stdout)


def _fill(kind: str, folder: Path, partitions: int) -> float:
    with OPENERS[kind](folder) as log:
        for number in range(_TOPICS_OPENED):
            log.create_topic(f"t{number}", partitions // _TOPICS_OPENED)
            for partition in range(partitions // _TOPICS_OPENED):
                log.append(f"t{number}", partition, _ONE)
    return 0.0


def _open(kind: str, folder: Path, partitions: int) -> float:
    """Milliseconds of processor time, until the last partition is written to."""
    began = time.process_time()
    with OPENERS[kind](folder) as log:
        log.append(f"t{_TOPICS_OPENED - 1}", partitions // _TOPICS_OPENED - 1, _ONE)
        return (time.process_time() - began) * 1000


def _memory(kind: str, folder: Path, partitions: int) -> float:
    """Megabytes of the process."""
    del partitions
    with OPENERS[kind](folder):
        return resident_bytes() / 1e6


def _rest(kind: str, folder: Path, partitions: int) -> float:
    """Milliseconds of processor time in a second."""
    del partitions
    with OPENERS[kind](folder):
        time.sleep(1)
        began = cpu_seconds(children=False) or 0.0
        time.sleep(3)
        return ((cpu_seconds(children=False) or 0.0) - began) / 3 * 1000


PROCESS_WORK: Final[Mapping[str, Callable[[str, Path, int], float]]] = {
    "fill": _fill,
    "open": _open,
    "memory": _memory,
    "rest": _rest,
}


def main(arguments: Sequence[str]) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    work, kind, folder, partitions = arguments
    sys.stdout.write(json.dumps(PROCESS_WORK[work](kind, Path(folder), int(partitions))))


if __name__ == "__main__":
    main(sys.argv[1:])
