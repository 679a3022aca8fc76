"""Queries whose log is Apache Kafka, beside the same queries on our own log: alternately, in one process."""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from millstream.server.engine.embedded import EmbeddedEngine, open_engine
from millstream.server.external_engine import open_engine_on_brokers

from .apache_kafka import AS_SHIPPED, VERSION, ApacheKafka, Unavailable
from .bids import bids
from .measuring import Measured, cpu_seconds_of, median
from .pipelines import Pipelines
from .report import Line
from .throughput import QUERIES, check_aggregate

_PROPERTIES: Final = {"millstream.executor": "duckdb", "auto.offset.reset": "earliest", "ksql.service.id": "bench_"}
_LOOK_S: Final = 0.05
_NAMES: Final = {
    "filter": "JSON → filter → JSON",
    "aggregate": "JSON → tumbling aggregate, every change → JSON",
}


@dataclass(frozen=True, slots=True)
class ExternalOptions:
    rows: int
    rounds: int
    warm: int
    partitions: int
    seed: int


def external_lines(options: ExternalOptions) -> list[Line]:
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as folder, ExitStack() as parts:
        try:
            kafka = parts.enter_context(ApacheKafka(Path(folder, "kafka"), java_options=AS_SHIPPED))
        except Unavailable as reason:
            return [Line(f"Apache Kafka: not measured, {reason}")]
        brokers = {"bootstrap.servers": kafka.address}
        ours = parts.enter_context(_side(open_engine(Path(folder, "ours"), _PROPERTIES), options))
        theirs = parts.enter_context(
            _side(open_engine_on_brokers(brokers, Path(folder, "theirs"), _PROPERTIES), options)
        )
        return [_line(name, ours, theirs, kafka, options) for name in _NAMES]


@contextmanager
def _side(engine: EmbeddedEngine, options: ExternalOptions) -> Generator[Pipelines]:
    with engine:
        yield Pipelines(engine, "duckdb", options.partitions, look_s=_LOOK_S)


def _line(name: str, ours: Pipelines, theirs: Pipelines, kafka: ApacheKafka, options: ExternalOptions) -> Line:
    """The median of the rounds; each round appends the same rows to both logs, and drains both."""
    sys.stderr.write(f"bench: {name} on Apache Kafka …\n")
    drains = [_begun(name, side, options) for side in (ours, theirs)]
    pairs: list[tuple[Measured, Measured]] = []
    broker_s: list[float] = []
    for number in range(options.rounds):
        table = bids(options.rows, options.seed, options.warm + number * options.rows)
        for side in (ours, theirs):
            side.append(table)
        own = drains[0]()
        before = cpu_seconds_of(kafka.pid)
        pairs.append((own, drains[1]()))
        broker_s.append(cpu_seconds_of(kafka.pid) - before)
    if name == "aggregate":
        appended = sum(theirs.log.offsets("bids", n).log_end_offset for n in range(options.partitions))
        check_aggregate(theirs, "AGGREGATED", appended)
    elif theirs.records_in("FILTERED") != ours.records_in("FILTERED"):
        raise AssertionError("the filters gave different numbers of records")
    return _compared(name, pairs, broker_s)


def _begun(name: str, side: Pipelines, options: ExternalOptions) -> Callable[[], Measured]:
    """The query has read what was there, and is paused."""
    side.append(bids(options.warm, options.seed))
    query_id = side.execute(QUERIES[name])
    side.wait(query_id)
    side.execute(f"PAUSE {query_id};")
    return lambda: side.drain(query_id, options.rows)


def _compared(name: str, pairs: Sequence[tuple[Measured, Measured]], broker_s: Sequence[float]) -> Line:
    own, external = (median(side) for side in zip(*pairs, strict=True))
    ratios = [(theirs.cpu_rate or 0.0) / (ours.cpu_rate or 1.0) for ours, theirs in pairs]
    wall = external.rate / own.rate
    ratio = (
        f"CPU {statistics.median(ratios):.2f} [{min(ratios):.2f}–{max(ratios):.2f}], wall {wall:.2f} of our log's "
        f"{_thousands(own.cpu_rate)}; the broker's CPU {statistics.median(broker_s):.1f} s"
    )
    what = f"on Apache Kafka {VERSION}: {_NAMES[name]}"
    return Line(what, _thousands(external.rate), _thousands(external.cpu_rate), ratio, "CPU ≥ 0.5")


def _thousands(rate: float | None) -> str:
    return f"{(rate or 0.0) / 1000:,.0f} k"
