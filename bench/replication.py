"""What replication costs, and how long a partition is away when its leader dies: `python -m bench --only replication`.

Three processes on this machine, ours and Apache Kafka's, one cluster after the other.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException

from .apache_kafka import AS_SHIPPED, VERSION, Unavailable
from .clusters import Cluster, apache_kafka, local_places, millstream
from .latency import Latency
from .measuring import Measured, median
from .replication_load import SteadyProducer, create_topic, one_by_one, partitions_in_sync, produce_in_process
from .report import Line, latency_line, rate_line

NODES: Final = 3
_PARTITIONS: Final = 6
_RATE: Final = 100  # records per second, for latency
_SERVES_WITHIN_S: Final = 90.0
_BACK_WITHIN_S: Final = 90.0
_KAFKAS_TRIALS_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class ReplicationOptions:
    """`records`: of 100 bytes per round; `seconds`: of each latency measurement; `trials`: leaders that are killed;
    `session_ms`: how long a node may be silent before others take over."""

    records: int
    rounds: int
    seconds: float
    trials: int
    session_ms: int = 3_000


def replication_lines(options: ReplicationOptions) -> list[Line]:
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as folder:
        with _millstream(Path(folder, "ours"), options.session_ms) as ours:
            lines = _lines("Millstream", ours, options, options.trials, wanted="≥ 0.25")
        try:
            with _kafka(Path(folder, "kafka"), options.session_ms, {}) as theirs:
                trials = min(options.trials, _KAFKAS_TRIALS_MAX)
                lines += _lines(f"Kafka {VERSION}", theirs, options, trials)
            with _kafka(Path(folder, "synced"), options.session_ms, {"log.flush.interval.messages": "1"}) as theirs:
                lines += _lines(f"Kafka {VERSION}, each append synced", theirs, options, 0)
        except Unavailable as reason:
            lines.append(Line(f"Apache Kafka: not measured, {reason}"))
    return lines


def fail_overs(cluster: Cluster, trials: int) -> list[float]:
    """Seconds without an acknowledgement around each kill -9 of a partition's leader."""
    topic = _new_topic(cluster, 1, NODES)
    producer = SteadyProducer(cluster.brokers, topic)
    try:
        return [_fail_over(cluster, topic, producer) for _ in range(trials)]
    finally:
        producer.stop()


def _fail_over(cluster: Cluster, topic: str, producer: SteadyProducer) -> float:
    cluster.wait(lambda: _all_in_sync(cluster, topic), _BACK_WITHIN_S)
    before = len(producer.acknowledged_at)
    cluster.wait(lambda: len(producer.acknowledged_at) > before + 20, _BACK_WITHIN_S)
    leader, _ = partitions_in_sync(cluster.brokers, topic)[0]
    cluster.kill(leader)
    killed_at = time.monotonic()
    cluster.wait(lambda: _acknowledged_after(producer, killed_at + 0.05), _BACK_WITHIN_S, running=False)
    acknowledged = list(producer.acknowledged_at)
    after = next(at for at in acknowledged if at > killed_at + 0.05)
    last = max(at for at in acknowledged if at < after)
    cluster.start(leader)
    return after - last


def _acknowledged_after(producer: SteadyProducer, at: float) -> bool:
    return bool(producer.acknowledged_at) and producer.acknowledged_at[-1] > at


def _all_in_sync(cluster: Cluster, topic: str) -> bool:
    with suppress(KafkaException, KeyError):
        return all(count == NODES for _, count in partitions_in_sync(cluster.brokers, topic).values())
    return False


def _lines(name: str, cluster: Cluster, options: ReplicationOptions, trials: int, wanted: str = "") -> list[Line]:
    say = f"bench: {name}: "
    sys.stderr.write(f"{say}replication 1 and 3 …\n")
    one, three = _rates(cluster, options)
    lines = [
        rate_line(f"{name}: 100 B, acks=all, replication 1", one),
        rate_line(f"{name}: 100 B, acks=all, replication 3", three, of=one, base="replication 1", wanted=wanted),
    ]
    sys.stderr.write(f"{say}latency …\n")
    alone, replicated = (_latency(cluster, replication, options.seconds) for replication in (1, NODES))
    at = f"100 B, acks=all, {_RATE} records/s"
    lines.append(latency_line(f"{name}: {at}, replication 1", alone))
    lines.append(latency_line(f"{name}: {at}, replication 3", replicated, of=alone, base="replication 1"))
    if trials:
        sys.stderr.write(f"{say}kill -9 of {trials} leaders …\n")
        lines.append(fail_over_line(name, fail_overs(cluster, trials), options.session_ms))
    return lines


def fail_over_line(name: str, gaps: Sequence[float], session_ms: int) -> Line:
    ordered = sorted(gaps)
    p50, p99 = statistics.median(ordered), ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    ratio = f"p99 {p99 * 1000 / session_ms:.2f} × session of {session_ms} ms"
    what = f"{name}: no acknowledgement after kill -9 of the leader, {len(ordered)} trials"
    return Line(what, f"p50 {p50 * 1000:.0f} ms", f"p99 {p99 * 1000:.0f} ms", ratio, "p99 ≤ 3 ×")


def _rates(cluster: Cluster, options: ReplicationOptions) -> tuple[Measured, Measured]:
    """Replication 1 and 3 in turn. Wall time of the client, processor time of all nodes."""
    topics = {replication: _new_topic(cluster, _PARTITIONS, replication) for replication in (1, NODES)}
    for topic in topics.values():
        produce_in_process(cluster.brokers, topic, _PARTITIONS, max(1000, options.records // 10))
    measured: dict[int, list[Measured]] = {replication: [] for replication in topics}
    for _ in range(options.rounds):
        for replication, topic in topics.items():
            spent = cluster.processor_s()
            wall = produce_in_process(cluster.brokers, topic, _PARTITIONS, options.records)
            measured[replication].append(Measured(options.records, wall, cluster.processor_s() - spent))
    return median(measured[1]), median(measured[NODES])


def _latency(cluster: Cluster, replication: int, seconds: float) -> Latency:
    return Latency.of(one_by_one(cluster.brokers, _new_topic(cluster, 1, replication), seconds, _RATE))


def _new_topic(cluster: Cluster, partitions: int, replication: int) -> str:
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    create_topic(cluster.brokers, topic, partitions, replication)
    return topic


@contextmanager
def _millstream(folder: Path, session_ms: int) -> Generator[Cluster]:
    with _running(millstream(local_places(NODES, folder / "data"), folder, session_ms=session_ms)) as cluster:
        yield cluster


@contextmanager
def _kafka(folder: Path, session_ms: int, settings: dict[str, str]) -> Generator[Cluster]:
    places = local_places(NODES, folder / "data")
    made = apache_kafka(places, folder, session_ms=session_ms, java_options=AS_SHIPPED, settings=settings)
    with _running(made) as cluster:
        yield cluster


@contextmanager
def _running(cluster: Cluster) -> Generator[Cluster]:
    try:
        cluster.start_all()
        cluster.wait(_ready(cluster), _SERVES_WITHIN_S)
        yield cluster
    finally:
        cluster.stop()


def _ready(cluster: Cluster) -> Callable[[], bool]:
    def ready() -> bool:
        with suppress(KafkaException, TimeoutError):
            topic = f"ready-{uuid.uuid4().hex[:8]}"
            create_topic(cluster.brokers, topic, 1, NODES)
            return _all_in_sync(cluster, topic)
        return False

    return ready
