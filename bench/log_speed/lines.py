"""The table: our log beside Apache Kafka in the same run, turn by turn."""

from __future__ import annotations

import statistics
import sys
import tempfile
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ..apache_kafka import VERSION, Unavailable
from ..latency import Latency
from ..measuring import Measured, median
from ..report import Line, latency_line
from .brokers import Broker, kafka, millstream
from .codec import codec_lines

_PACED_PER_S: Final = 200


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """`records`: of 100 bytes in each bulk measurement; of 1 KB a quarter of that, one by one a fiftieth. `seconds`: of
    each latency measurement."""

    records: int
    rounds: int
    seconds: float


def kafka_lines(options: KafkaOptions) -> list[Line]:
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as folder:
        lines = codec_lines(min(options.records, 1_000_000), options.rounds)
        try:
            return _broker_lines(options, Path(folder)) + lines
        except Unavailable as reason:
            return [Line(f"Apache Kafka: not measured, {reason}"), *lines]


def _broker_lines(options: KafkaOptions, folder: Path) -> list[Line]:
    with (
        millstream(folder / "synced", "always") as ours,
        millstream(folder / "unsynced", "never") as ours_unsynced,
        kafka(folder / "kafka") as (theirs, theirs_synced),
    ):
        bulk, single = options.records, max(options.records // 50, 100)
        compared = _Compared(options.rounds)
        return [
            compared.line("produce 100 B, acks=1", "produce", ours, theirs, bulk, 100),
            compared.line("produce 1 KB, acks=1", "produce", ours, theirs, bulk // 4, 1000),
            compared.line("fetch 100 B", "fetch", ours, theirs, bulk, 100),
            compared.line("fetch 1 KB", "fetch", ours, theirs, bulk // 4, 1000),
            compared.line("a request per record", "requests", ours, theirs, single, 100, wanted=""),
            compared.line("a request per record, both synced", "requests", ours, theirs_synced, single, 100),
            compared.line("a request per record, none synced", "requests", ours_unsynced, theirs, single, 100),
            compared.line("one after the other, both synced", "turns", ours, theirs_synced, single // 5, 100),
            compared.line("one after the other, none synced", "turns", ours_unsynced, theirs, single // 5, 100),
            *compared.latency_lines(ours, theirs_synced, int(options.seconds * _PACED_PER_S)),
        ]


class _Compared:
    def __init__(self, rounds: int) -> None:
        self._rounds = rounds

    def line(
        self, name: str, what: str, ours: Broker, theirs: Broker, count: int, size: int, wanted: str = "≥ 0.9"
    ) -> Line:
        """Ours and theirs in turn: medians, and of the ratios the smallest and the largest too."""
        sys.stderr.write(f"bench: {name} …\n")
        pairs = self._rounds_of(
            lambda broker, topic: broker.measured(what, topic, count, size), what, ours, theirs, count, size
        )
        our, their = median([pair[0] for pair in pairs]), median([pair[1] for pair in pairs])
        ratios = [pair[0].rate / pair[1].rate for pair in pairs]
        spent = (our.cpu_rate or 0.0) / (their.cpu_rate or 1.0)
        ratio = f"{_spread(ratios)} of Kafka's {_rate(their.rate)} (CPU {spent:.2f})"
        return Line(f"Kafka {VERSION} beside us: {name}", _rate(our.rate), _rate(our.cpu_rate or 0.0), ratio, wanted)

    def _rounds_of(
        self, measure: Callable[[Broker, str], Measured], what: str, ours: Broker, theirs: Broker, count: int, size: int
    ) -> Sequence[tuple[Measured, Measured]]:
        topics = [broker.create(f"{what}-{size}-{uuid.uuid4().hex[:8]}") for broker in (ours, theirs)]
        if what == "fetch":
            ours.client("produce", topics[0], count, size)
            theirs.client("produce", topics[1], count, size)
        else:
            for broker, topic in zip((ours, theirs), topics, strict=True):
                broker.client(what, topic, count, size)  # Java compiles what is used often
        return [(measure(ours, topics[0]), measure(theirs, topics[1])) for _ in range(self._rounds)]

    def latency_lines(self, ours: Broker, theirs: Broker, count: int) -> list[Line]:
        """One record at a time, 200 in a second, acks=all; both sync each."""
        topics = [broker.create(f"paced-{uuid.uuid4().hex[:8]}") for broker in (ours, theirs)]
        sys.stderr.write("bench: latency …\n")
        pairs = [
            (
                Latency.of(ours.client("paced", topics[0], count, 100)),
                Latency.of(theirs.client("paced", topics[1], count, 100)),
            )
            for _ in range(self._rounds)
        ]
        our, their = (_median(each) for each in zip(*pairs, strict=True))
        ratios = [pair[0].p99_ms / pair[1].p99_ms for pair in pairs]
        name = f"acks=all at {_PACED_PER_S} records/s, both synced"
        return [
            latency_line(f"Kafka {VERSION}: {name}", their),
            replace(
                latency_line(f"Kafka {VERSION} beside us: {name}", our),
                ratio=f"p99 {_spread(ratios)} × Kafka's",
                wanted="p99 ≤ 1.5 ×",
            ),
        ]


def _median(latencies: Sequence[Latency]) -> Latency:
    return Latency(
        statistics.median(each.p50_ms for each in latencies), statistics.median(each.p99_ms for each in latencies)
    )


def _spread(ratios: Sequence[float]) -> str:
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"


def _rate(rate: float) -> str:
    return f"{rate / 1000:,.0f} k" if rate >= 100_000 else f"{rate / 1000:,.1f} k"
