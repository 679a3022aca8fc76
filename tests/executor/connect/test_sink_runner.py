"""How many records a task of a sink takes at once: few at first, all in the end, none left out and none twice."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import pytest

from millstream.executor.connect.connector import ConnectRecord, SinkConnector, TaskInfo
from millstream.executor.connect.connector_sandbox import ConnectorSandbox
from millstream.executor.connect.connector_settings import setting
from millstream.executor.connect.sink_runner import SinkRunner, reading
from millstream.executor.connect.task_clock import VirtualClock
from millstream.logcore.client import HEADERS, FetchedRows, RowRecords, TopicPartition
from millstream.logcore.log import Log


@dataclass(frozen=True)
class KeptSettings:
    unused: str = setting("Nothing.", default="")


class KeptBatches(SinkConnector):
    """Keeps what was written, for all lives."""

    settings = KeptSettings
    batches: ClassVar[list[list[tuple[int, int]]]] = []

    def __init__(self, settings: KeptSettings, task: TaskInfo) -> None:
        del settings, task

    def write(self, records: Sequence[ConnectRecord], positions: Mapping[TopicPartition, int]) -> None:
        last = {TopicPartition("rows", partition): offset + 1 for partition, offset in places(records)}
        assert {**positions, **last} == positions, "positions are those behind the records"
        self.batches.append(places(records))


def places(records: Sequence[ConnectRecord]) -> list[tuple[int, int]]:
    return [(record.partition or 0, record.offset or 0) for record in records]


@pytest.fixture
def box() -> ConnectorSandbox:
    KeptBatches.batches.clear()
    return ConnectorSandbox(KeptBatches, {"topics": "rows"})


def fill(box: ConnectorSandbox, counts: Sequence[int], batch: int = 700) -> None:
    """Records in each partition, in batches as producers write them."""
    box.log.create_topic("rows", len(counts))
    for partition, count in enumerate(counts):
        for begin in range(0, count, batch):
            values = [json.dumps({"n": number}).encode() for number in range(begin, min(begin + batch, count))]
            columns = {
                "timestamp": pa.array([0] * len(values), pa.int64()),
                "key": pa.nulls(len(values), pa.binary()),
                "value": pa.array(values, pa.binary()),
            }
            box.log.append("rows", partition, RowRecords(pa.table(columns)))


@pytest.mark.parametrize("counts", [(25_000,), (12_000, 9_999, 8_000), (10_000, 1), (0, 30_001)])
def test_a_task_begins_with_few_records_and_leaves_none_out(box: ConnectorSandbox, counts: tuple[int, ...]) -> None:
    with box:
        fill(box, counts)
        box.run()
        sizes = [len(batch) for batch in KeptBatches.batches]
        assert sizes[0] <= 10_000 and all(next_ <= 2 * 10_000 * 2**nth for nth, next_ in enumerate(sizes[1:]))
        written = [place for batch in KeptBatches.batches for place in batch]
        assert sorted(written) == [(part, at) for part, count in enumerate(counts) for at in range(count)]
        for partition in range(len(counts)):
            mine = [offset for part, offset in written if part == partition]
            assert mine == sorted(mine)


def test_a_task_lives_for_any_number_of_batches(box: ConnectorSandbox) -> None:
    """However small: it doubles how many records it takes, which would be more than a number of 64 bits holds."""
    with box:
        for number in range(70):
            box.produce("rows", None, {"n": number})
            box.run()
        assert KeptBatches.batches == [[(0, number)] for number in range(70)]


def test_a_task_that_dies_soon_after_each_start_gets_through_a_backlog(box: ConnectorSandbox) -> None:
    """Each life is long enough for one batch: where that is all there is, it would never be done."""
    with box:
        fill(box, (20_000, 15_000))
        for _ in range(4):
            box.kill_at("sink_after_commit")
            box.run()
            box.restart()
        assert box.deaths >= 1
        written = [place for batch in KeptBatches.batches for place in batch]
        assert len(written) == len(set(written)) == 35_000
        assert len(KeptBatches.batches[0]) == 10_000 and {part for part, _ in KeptBatches.batches[1]} == {0, 1}


@pytest.mark.parametrize("restarts", [True, False])
@pytest.mark.parametrize("is_seen", [True, False])
@pytest.mark.parametrize("count", [3, 8])
def test_a_topic_that_is_deleted_and_created_again_is_read_from_its_beginning(
    box: ConnectorSandbox, restarts: bool, is_seen: bool, count: int
) -> None:
    """Also where it is longer than what was read of the one before. In: `is_seen`: while it is gone."""
    fill(box, [5])
    box.run()
    box.log.delete_topic("rows")
    if is_seen:
        box.restart()
        box.run()
    fill(box, [count])
    if restarts:
        box.restart()
    box.clock.advance(10_000)
    box.run()
    box.restart()
    box.run()
    assert [offset for batch in KeptBatches.batches for _, offset in batch] == [*range(5), *range(count)]


class KeptPlaces(SinkConnector):
    """Keeps topic, partition and offset of what was written by all tasks."""

    settings = KeptSettings
    places: ClassVar[list[tuple[str | None, int | None, int | None]]] = []

    def __init__(self, settings: KeptSettings, task: TaskInfo) -> None:
        del settings, task

    def write(self, records: Sequence[ConnectRecord], positions: Mapping[TopicPartition, int]) -> None:
        del positions
        self.places.extend((record.read_from, record.partition, record.offset) for record in records)


def begun_tasks(log: Log, clock: VirtualClock, count: int, config: Mapping[str, str]) -> list[SinkRunner]:
    def task(number: int) -> SinkRunner:
        info = reading(TaskInfo("out", number, {"of": count}, clock=clock), log)
        sink = KeptPlaces(KeptSettings(), info)
        return SinkRunner(log, sink, info, config, lambda topic, batch, time_ms: pytest.fail("columnar"))

    return [task(number) for number in range(count)]


def add_record_to_each_partition(log: Log) -> None:
    rows = {"timestamp": pa.array([0]), "key": pa.nulls(1, pa.binary()), "value": pa.nulls(1, pa.binary())}
    for topic in list(log.topics()):
        for partition in range(log.partition_count(topic)):
            if not topic.startswith("_"):
                log.append(topic, partition, RowRecords(pa.table(rows)))


@pytest.mark.parametrize(
    "config", [{"topics": "rows,new,old"}, {"topics": "rows, rows,new, old,old"}, {"topics.regex": "rows|new|old"}]
)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_each_record_is_written_by_one_task_whichever_topics_and_partitions_are_added(
    box: ConnectorSandbox, config: Mapping[str, str], count: int
) -> None:
    """A task that has begun to read a partition keeps it: no other may begin to read it."""
    KeptPlaces.places.clear()
    with box:
        box.log.create_topic("rows", 1)
        box.log.create_topic("old", 3)
        tasks = begun_tasks(box.log, box.clock, count, config)
        for partitions in (1, 2, 4):
            box.log.add_partitions("rows", partitions) if partitions > 1 else None
            box.log.create_topic("new", 1) if partitions == 2 else None
            add_record_to_each_partition(box.log)
            box.clock.advance(10_000)
            for task in tasks:
                while task.step(0):
                    pass
        written = [(str(topic), partition) for topic, partition, _ in KeptPlaces.places]
        expected = {"rows": [3, 2, 1, 1], "old": [3, 3, 3], "new": [2]}
        assert Counter(written) == {
            (topic, partition): times for topic, of in expected.items() for partition, times in enumerate(of)
        }


def test_a_dead_letter_has_the_headers_of_its_record_and_those_of_its_trouble() -> None:
    config = {"topics": "rows", "errors.tolerance": "all", "errors.deadletterqueue.topic.name": "letters"}
    with ConnectorSandbox(KeptBatches, config) as box:
        box.log.create_topic("rows", 1)
        own = [[{"key": "traced", "value": b"1"}, {"key": "empty", "value": None}]]
        columns = {
            "timestamp": pa.array([0]), "key": pa.nulls(1, pa.binary()), "value": pa.array([b"{no"], pa.binary()),
            "headers": pa.array(own, HEADERS),
        }  # fmt: skip
        box.log.append("rows", 0, RowRecords(pa.table(columns)))
        box.run()
        [run] = box.log.fetch("letters", 0, 0).runs
        assert isinstance(run, FetchedRows)
        [headers] = run.table["headers"].to_pylist()
        assert headers[:2] == own[0]
        assert "__connect.errors.exception.message" in [header["key"] for header in headers[2:]]


@pytest.mark.parametrize("counts", [(2, 1, 2), (1, 2, 1), (1, 3, 2), (2, 2, 1), (3, 1, 3)])
@pytest.mark.parametrize("recreated", [0, 1, 2])
def test_a_recreated_topic_is_noticed_whatever_number_of_tasks_there_is(
    box: ConnectorSandbox, counts: tuple[int, ...], recreated: int
) -> None:
    """Its partitions may have another task than before. The new topic has more records than were read of the old one.
    In: `counts`: of tasks, one after the other; `recreated`: before which of them it happens."""
    KeptPlaces.places.clear()
    expected: Counter[tuple[str | None, int | None, int | None]] = Counter()
    with box:
        box.log.create_topic("rows", 3)
        end = 0
        for nth, count in enumerate(counts):
            if nth == recreated:
                box.log.delete_topic("rows")
                box.log.create_topic("rows", 3)
                end = 0
            for _ in range(nth + 1):
                add_record_to_each_partition(box.log)
            expected.update(("rows", part, end + number) for part in range(3) for number in range(nth + 1))
            end += nth + 1
            for _ in range(2):  # the second time after a restart
                for task in begun_tasks(box.log, box.clock, count, {"topics": "rows"}):
                    while task.step(0):
                        pass
        assert Counter(KeptPlaces.places) == expected


@pytest.mark.parametrize("topics", ["a,b,c,d", "d,a,c,b"])
def test_topics_of_one_partition_are_divided_among_all_tasks(box: ConnectorSandbox, topics: str) -> None:
    KeptPlaces.places.clear()
    with box:
        for topic in "abcd":
            box.log.create_topic(topic, 1)
        add_record_to_each_partition(box.log)
        for task in begun_tasks(box.log, box.clock, 4, {"topics": topics}):
            before = len(KeptPlaces.places)
            task.step(0)
            assert len(KeptPlaces.places) == before + 1
