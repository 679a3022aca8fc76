"""Three logs in a ring, each with a topic of its own: each log gets every record of the others once, and nothing goes
round. How many records says MILLSTREAM_SOAK_RECORDS."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from millstream.errors import LogError
from millstream.logcore.client import FetchedRows, LogClient, RowRecords
from millstream.logcore.external.kafka_properties import KafkaProperties
from millstream.logcore.log import Log, open_log
from millstream.logcore.mirrors.mirror_source import MirrorSource, TopicFilter
from millstream.logcore.mirrors.renamed_mirror import RenamedMirror, RenamedMirrorSettings
from millstream.logcore.server import LogServer

from ..soak import count_of

NAMES = "abc"
PARTITIONS = 3
BATCH = 1_000
EVERYTHING = TopicFilter(("*",))


def test_records_go_through_a_ring_once(memory_folder: Path) -> None:
    go_round(memory_folder, records=9_000, within_s=100)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_many_records_go_through_a_ring_once(tmp_path: Path) -> None:
    go_round(tmp_path, records=count_of("RECORDS", 10_000_000), within_s=7000)


def go_round(folder: Path, records: int, within_s: float) -> None:
    each = records // len(NAMES) // PARTITIONS
    with ExitStack() as opened:
        logs = {name: opened.enter_context(open_log(folder / name, sync="never")) for name in NAMES}
        addresses = {name: opened.enter_context(LogServer(log, port=0)).address for name, log in logs.items()}
        for name, log in logs.items():
            log.create_topic("t", PARTITIONS)
            log.create_topic(f"only-{name}", 1)
        with contextlib.ExitStack() as stopping:
            ring = [Copier(logs[here], addresses[there], there, here) for there, here in zip(NAMES, "bca", strict=True)]
            for copier in ring:
                stopping.callback(copier.stop)
                copier.start()
            writers = [threading.Thread(target=write, args=(log, name, each)) for name, log in logs.items()]
            for writer in writers:
                writer.start()
            for writer in writers:
                writer.join()
            until(lambda: all(is_whole(logs[name], topic, each) for name, topic, _ in expected()), within_s, ring)
            time.sleep(1.0)
            sizes = {name: sum(ends(log)) for name, log in logs.items()}
            time.sleep(2.0)
            assert {name: sum(ends(log)) for name, log in logs.items()} == sizes, "something goes round"
        for name, log in logs.items():
            wanted = {topic for at, topic, _ in expected() if at == name}
            assert {topic for topic in log.topics() if topic.endswith(".t")} == wanted
        for name, topic, origin in expected():
            for partition in range(PARTITIONS):
                check_values(logs[name], topic, partition, origin, each)


def expected() -> Iterator[tuple[str, str, str]]:
    """Log, name of the copy there, and the log that the records come from."""
    for place, origin in enumerate(NAMES):
        way = [NAMES[(place + step) % 3] for step in range(3)]
        yield way[1], f"{origin}.t", origin
        yield way[2], f"{way[1]}.{origin}.t", origin


class Copier(threading.Thread):
    """One mirror of the ring, begun anew after what passes. State: why it ended, if it did."""

    def __init__(self, into: Log, address: str, alias: str, target: str) -> None:
        super().__init__(daemon=True)
        self._into, self._address = into, address
        self._settings = RenamedMirrorSettings(f"from-{alias}", alias, target, EVERYTHING, EVERYTHING, look_ms=200)
        self._ends = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._ends.is_set():
                with contextlib.suppress(LogError):
                    self._live()
        except BaseException as error:
            self.failure = error

    def _live(self) -> None:
        mirror = RenamedMirror(
            self._into, MirrorSource(KafkaProperties({"bootstrap.servers": self._address})), self._settings
        )
        try:
            while not self._ends.is_set():
                mirror.step(0.1)
        finally:
            mirror.close()

    def stop(self) -> None:
        self._ends.set()
        self.join(60)


def write(log: Log, name: str, each: int) -> None:
    for first in range(0, each, BATCH):
        for partition in range(PARTITIONS):
            log.append("t", partition, RowRecords(numbers(name, partition, first, min(BATCH, each - first))))


def numbers(name: str, partition: int, first: int, count: int) -> pa.Table:
    values = pc.binary_join_element_wise(
        f"{name}{partition}-", pc.cast(pa.array(range(first, first + count)), pa.string()), ""
    )
    return pa.table({
        "timestamp": pa.array([1_000] * count, pa.int64()),
        "key": pa.nulls(count, pa.binary()),
        "value": pc.cast(values, pa.binary()),
    })  # fmt: skip


def is_whole(log: Log, topic: str, each: int) -> bool:
    """Offsets also count the markers of transactions; so there may be more."""
    if log.topic(topic) is None or log.partition_count(topic) < PARTITIONS:
        return False
    return all(last_value(log, topic, number) == each - 1 for number in range(PARTITIONS))


def last_value(log: Log, topic: str, partition: int) -> int:
    end = log.offsets(topic, partition).log_end_offset
    fetched = log.fetch(topic, partition, max(0, end - 20), max_bytes=1 << 20)
    values = [value for run in fetched.runs if isinstance(run, FetchedRows) for value in run.table["value"].to_pylist()]
    return int(values[-1].rpartition(b"-")[2]) if values else -1


def check_values(log: LogClient, topic: str, partition: int, origin: str, each: int) -> None:
    """All that were written, in their order, and no other."""
    offset, first = 0, 0
    while True:
        fetched = log.fetch(topic, partition, offset)
        for run in fetched.runs:
            assert isinstance(run, FetchedRows)
            found = pc.cast(run.table["value"], pa.binary()).combine_chunks()
            wanted = numbers(origin, partition, first, len(found))["value"].combine_chunks()
            assert found.equals(wanted), f"{topic}-{partition} has other records behind the first {first}"
            first += len(found)
        if fetched.next_offset <= offset:
            break
        offset = fetched.next_offset
    assert first == each


def ends(log: Log) -> list[int]:
    """Of all copies; the topics in which mirrors tell of themselves grow without records."""
    return [
        log.offsets(topic, number).log_end_offset
        for topic, described in log.topics().items()
        if topic.endswith(".t")
        for number in range(described.partition_count)
    ]


def until(holds: Callable[[], bool], within_s: float, ring: list[Copier]) -> None:
    deadline = time.monotonic() + within_s
    while not holds():
        for copier in ring:
            if copier.failure is not None:
                raise copier.failure
        assert time.monotonic() < deadline, "the ring is too slow"
        time.sleep(0.2)
