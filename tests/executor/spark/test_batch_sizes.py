"""How large batches are: by records and by bytes, and smaller ones where memory does not suffice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from drawn import sampled
from hand_plans import rows
from jobs_in_process import DriverInProcess, JavaError
from spark_stages import OnDuckDB, StagedRun, contents, plan_of, produce
from waiting import eventually

from millstream.executor.batch import ChangeBatch
from millstream.executor.pipeline import Pipeline
from millstream.executor.spark import batch_ends, spark_query, spark_trouble
from millstream.executor.spark.batch_ends import FEW, SMALL, BatchEnds
from millstream.executor.spark.batch_size import GROWS_AFTER, BatchSize
from millstream.executor.spark.lanes import Positions
from millstream.executor.spark.spark_query import SparkQuery
from millstream.logcore.client import Fetched, TopicPartition
from millstream.logcore.log import Log

PARTED = (
    *("partition by", "group by another column", "final results", "session window by another column"),
    *("join with a table", "join of streams", "join by a foreign key", "average of maxima", "rows of two aggregates"),
)
RECORD = 10_000  # bytes
ROOM = 100_000


@pytest.fixture
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BatchSize, "bytes_max", lambda _self, _parallelism: ROOM)
    monkeypatch.setattr(batch_ends, "FEW", 3)


def large_records(log: Log, topic: str, count: int, *, begin: int = 0, size: int = RECORD) -> None:
    for partition in range(3):
        records = [(f"u{i}", {"PAGE": "p" * size}, i) for i in range(begin, begin + count)]
        log.append(topic, partition, rows(records))


def batches(ends: BatchEnds, start: Positions) -> list[Positions]:
    """How far each batch goes in each lane, until nothing is left."""
    found: list[Positions] = []
    while (end := ends.next(start, ends.available(start))) != start:
        found.append({lane: offset - start[lane] for lane, offset in end.items()})
        start = end
    return found


def lanes(*topics: str) -> Positions:
    return {TopicPartition(topic, partition): 0 for topic in topics for partition in range(3)}


@pytest.mark.usefixtures("little_room")
@pytest.mark.parametrize(("query", "topics"), [
    ("group by the key", ("clicks",)),  # each lane by itself
    ("group by another column", ("clicks",)),  # by time
    ("join with a table", ("clicks", "users")),
])  # fmt: skip
def test_a_batch_ends_where_its_bytes_are_as_many_as_fit(log: Log, query: str, topics: tuple[str, ...]) -> None:
    for _ in range(10):
        large_records(log, "clicks", 10)
    found = batches(BatchEnds(plan_of(query, "SPARK"), log, BatchSize(10**6)), lanes(*topics))
    assert sum(sum(batch.values()) for batch in found) == 300
    # An append is read as a whole, here 100 kB of each of three lanes where they are merged by time.
    assert max(sum(batch.values()) for batch in found) * RECORD <= (1 if query == "group by the key" else 3) * ROOM


@pytest.mark.usefixtures("little_room")
@pytest.mark.parametrize(("query", "topics"), [
    ("group by another column", ("clicks",)),
    ("join with a table", ("clicks", "users")),  # whose lanes have nothing
])  # fmt: skip
def test_a_batch_that_is_merged_by_time_has_all_that_fits(log: Log, query: str, topics: tuple[str, ...]) -> None:
    for number in range(40):
        large_records(log, "clicks", 5, begin=5 * number, size=900)  # the reader finds some 20 of them at a time
    found = batches(BatchEnds(plan_of(query, "SPARK"), log, BatchSize(10**6)), lanes(*topics))
    counts = [sum(batch.values()) for batch in found]
    assert sum(counts) == 600
    assert 0.5 * ROOM < min(counts[:-1]) * 900 < max(counts) * 900 <= ROOM


def test_a_batch_that_is_merged_by_time_has_as_many_records_as_are_allowed(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(40):
        large_records(log, "clicks", 5, begin=5 * number, size=900)
    size = BatchSize(50)
    monkeypatch.setattr(BatchSize, "bytes_max", lambda _self, _parallelism: ROOM)
    ends, start = BatchEnds(plan_of("group by another column", "SPARK"), log, size), lanes("clicks")
    until = ends.available(start)
    for count in (50, 50, 50, 20, 20, 50):
        size.records = count  # less after a batch that had no room
        end = ends.next(start, until)
        assert sum(end.values()) - sum(start.values()) == count
        start = end


@pytest.mark.usefixtures("little_room")
@pytest.mark.parametrize("append", [1, 7, 40])
def test_where_lanes_are_merged_by_time_no_batch_runs_ahead_of_older_records(log: Log, append: int) -> None:
    for begin in range(0, 200, append):
        large_records(log, "clicks", min(append, 200 - begin), begin=begin, size=700)
    done = dict.fromkeys(lanes("clicks"), 0)
    for batch in batches(
        BatchEnds(plan_of("group by another column", "SPARK"), log, BatchSize(10**6)), lanes("clicks")
    ):
        done = {lane: done[lane] + count for lane, count in batch.items()}
        assert max(done.values()) - min(done.values()) <= 1  # a record of each lane at each time
    assert set(done.values()) == {200}


@pytest.mark.usefixtures("little_room")
def test_records_that_get_larger_in_the_middle_are_noticed(log: Log) -> None:
    for number in range(30):
        large_records(log, "clicks", 100, begin=100 * number, size=1 if number < 12 else 1_000)
    start = lanes("clicks")
    ends = BatchEnds(plan_of("group by the key", "SPARK"), log, BatchSize(10**6))
    end = ends.next(start, ends.available(start))
    assert 0 < sum(end.values()) <= ROOM / 1_000


def test_a_few_records_are_not_looked_at(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    large_records(log, "clicks", FEW // 3)
    ends = BatchEnds(plan_of("group by the key", "SPARK"), log, BatchSize(10**6))
    available = ends.available(lanes("clicks"))
    monkeypatch.setattr(log, "fetch", lambda *_args, **_kwargs: pytest.fail("it was read"))
    assert ends.next(lanes("clicks"), available) == available


def test_of_small_batches_of_small_records_the_first_is_looked_at(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = BatchEnds(plan_of("group by the key", "SPARK"), log, BatchSize(10**6))
    large_records(log, "clicks", SMALL // 3, size=10)
    start = ends.available(lanes("clicks"))
    assert ends.next(lanes("clicks"), start) == start
    large_records(log, "clicks", SMALL // 3, size=10)
    end = ends.available(start)
    with monkeypatch.context() as patch:
        patch.setattr(log, "fetch", lambda *_args, **_kwargs: pytest.fail("it was read"))
        assert ends.next(start, end) == end
    large_records(log, "clicks", SMALL, size=10)
    looked: list[TopicPartition] = []
    fetch = log.fetch

    def note(topic: str, partition: int, *arguments: int, **others: Any) -> Fetched:
        looked.append(TopicPartition(topic, partition))
        return fetch(topic, partition, *arguments, **others)

    monkeypatch.setattr(log, "fetch", note)
    ends.next(end, ends.available(end))
    assert set(looked) == lanes("clicks").keys()


def test_what_is_planned_halves_until_a_record_is_alone() -> None:
    size = BatchSize(1_000)
    assert not size.shrink(1), "no batch is known"
    size.planned(300)
    records: list[int] = []
    while size.shrink(1):
        records.append(size.records)
        size.planned(min(300, size.records))
    assert records == [150, 75, 37, 18, 9, 4, 2, 1]


def test_it_gets_no_smaller_than_is_said() -> None:
    size = BatchSize(1_000)
    size.planned(300)
    assert size.shrink(100)
    size.planned(150)
    assert size.shrink(100)
    assert size.records == 100
    size.planned(100)
    assert not size.shrink(100)


def test_it_grows_again_when_many_batches_were_done() -> None:
    size = BatchSize(1_000)
    size.planned(700)
    size.shrink(1)
    for _ in range(GROWS_AFTER - 1):
        size.done()
    assert size.records == 350
    size.done()
    assert size.records == 700
    for _ in range(GROWS_AFTER):
        size.done()
    assert size.records == 1_000


@pytest.mark.parametrize("query", sampled(PARTED, 2))
def test_a_bucket_without_room_for_its_share_does_it_in_parts(
    query: str, log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    duck, run = OnDuckDB(plan_of(query, "DUCK"), log), StagedRun(plan_of(query, "SPARK"), log, "run", tmp_path)
    refused = []
    for begin in (0, 60):
        produce(log, begin, begin + 60)
        duck.drain()
        with monkeypatch.context() as patch:
            patch.setattr(Pipeline, "process", with_room_for(9, refused))
            run.drain()
    assert refused
    assert contents(log, "SPARK") == contents(log, "DUCK") != {}


def with_room_for(row_count: int, refused: list[int]) -> Callable[..., ChangeBatch]:
    """A `Pipeline.process` that runs out of memory, after its work, where it gets rows of more records."""
    process = Pipeline.process

    def limited(pipeline: Pipeline, inputs: dict[str, ChangeBatch]) -> ChangeBatch:
        found = process(pipeline, inputs)
        records = {number for batch in inputs.values() for number in batch.rows["_seq"].to_pylist()}
        if len(records) > row_count:
            refused.append(len(records))
            raise MemoryError(f"{len(records)} records")
        return found

    return limited


def test_a_record_for_which_there_is_no_room_alone_ends_the_attempt(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = StagedRun(plan_of("group by the key", "SPARK"), log, "run", tmp_path)
    produce(log, 0, 20)
    with monkeypatch.context() as patch:
        patch.setattr(Pipeline, "process", with_room_for(0, []))
        with pytest.raises(MemoryError, match="1 records"):
            run.step()
    duck = OnDuckDB(plan_of("group by the key", "DUCK"), log)
    duck.drain()
    run.drain()
    assert contents(log, "SPARK") == contents(log, "DUCK") != {}


# ------------------------------------------------------------------ a query


@pytest.fixture
def driver(log: Log, monkeypatch: pytest.MonkeyPatch) -> DriverInProcess:
    monkeypatch.setattr(spark_query, "BACKOFF_S", 0.01)
    return DriverInProcess(log)


@pytest.fixture
def query(log: Log, driver: DriverInProcess, tmp_path: Path) -> Iterator[SparkQuery]:
    plan = plan_of("group by another column", "SPARK")
    found = SparkQuery(plan, log, driver.session, lambda: "nowhere", tmp_path, {}, jobs=driver.jobs)
    yield found
    found.stop()


def is_done(query: SparkQuery) -> bool:
    status = query.status()
    assert status.state == "RUNNING", status.error
    return len(status.lag) == 3 and not any(status.lag.values())


def assert_right(log: Log) -> None:
    OnDuckDB(plan_of("group by another column", "DUCK"), log).drain()
    got, wanted = contents(log, "SPARK"), contents(log, "DUCK")
    assert {key: records[-1] for key, records in got.items()} == {key: each[-1] for key, each in wanted.items()} != {}


def test_a_batch_that_does_not_fit_is_tried_again_smaller(
    log: Log, driver: DriverInProcess, query: SparkQuery, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    wait_out = SparkQuery._wait_out

    def note(self: SparkQuery, trouble: spark_query.QueryTrouble, failures: int) -> None:
        wait_out(self, trouble, failures)
        said.append(self.status().error or "")

    monkeypatch.setattr(SparkQuery, "_wait_out", note)
    for begin in range(0, 200, 100):
        produce(log, begin, begin + 100)
    driver.room = 60
    query.start()
    assert eventually(lambda: is_done(query), 60)
    assert driver.record_counts[:3] == [200, 100, 50]
    assert said == [
        f"MemoryError: Unable to allocate 3 GiB; the next batch has at most {half} records" for half in (100, 50)
    ]
    assert_right(log)


def test_a_lost_executor_makes_the_next_batch_smaller(
    log: Log, driver: DriverInProcess, query: SparkQuery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_trouble, "LOST_MIN", 10)
    for begin in range(0, 300, 100):
        produce(log, begin, begin + 100)
    lost = "org.apache.spark.SparkException: Job aborted: ExecutorLostFailure (executor 1 exited) Reason: code 137"
    driver.failures += [JavaError(lost), JavaError("java.net.ConnectException: Connection refused")]
    query.start()
    assert eventually(lambda: is_done(query), 60)
    assert driver.record_counts == [150, 150], "half of all, and no less where nobody was there"
    assert_right(log)
