"""A topic that is deleted, or deleted and created again, under a query on Spark: the same words and ways out as on
DuckDB. The jobs run in this process."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from hand_plans import read_all, rows
from jobs_in_process import DriverInProcess, JavaError, JobsInProcess
from spark_stages import StagedRun, plan_of, produce
from waiting import eventually

from millstream.executor.errors import PositionLost
from millstream.executor.queries.known_topics import KnownTopics
from millstream.executor.queries.query import QueryRuntime
from millstream.executor.spark import spark_query, spark_run
from millstream.executor.spark.alignment import take_from_spark
from millstream.executor.spark.spark_query import SparkQuery
from millstream.executor.spark.spark_run import SparkRun
from millstream.logcore.client import LogClient
from millstream.logcore.errors import LogError
from millstream.logcore.log import Log
from millstream.planner.physical import PhysicalPlan

COPY, COUNT = "stateless", "group by the key"
MadeQuery = Callable[[str], SparkQuery]


@pytest.fixture
def driver(log: Log, monkeypatch: pytest.MonkeyPatch) -> DriverInProcess:
    monkeypatch.setattr(spark_run, "PARTITIONS_S", 0.01)
    monkeypatch.setattr(spark_query, "BACKOFF_S", 0.01)
    return DriverInProcess(log)


@pytest.fixture
def start(log: Log, driver: DriverInProcess, tmp_path: Path) -> Iterator[MadeQuery]:
    made: list[SparkQuery] = []

    def make(query: str) -> SparkQuery:
        plan = plan_of(query, "SPARK", 1)
        made.append(SparkQuery(plan, log, driver.session, lambda: "nowhere", tmp_path, {}, jobs=driver.jobs))
        made[-1].start()
        return made[-1]

    make_anew(log, "clicks", "users", "SPARK")  # with one partition
    yield make
    for each in made:
        each.stop()


@pytest.fixture
def make_anew_at_once(log: Log, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """No run finds the topic between the two: none is in a step."""
    between_steps, step = threading.Lock(), SparkRun.step

    def locked(run: SparkRun) -> object:
        time.sleep(0.01)  # locks are not fair
        with between_steps:
            return step(run)

    def make(topic: str) -> None:
        with between_steps:
            make_anew(log, topic)

    monkeypatch.setattr(SparkRun, "step", locked)
    return make


def make_anew(log: Log, *topics: str) -> None:
    for topic in topics:
        log.delete_topic(topic)
        log.create_topic(topic, 1)


def click(log: LogClient, *numbers: int, user: str = "ada") -> None:
    log.append("clicks", 0, rows([(user, {"PAGE": "p", "N": n}, 1_000) for n in numbers]))


def numbers(log: LogClient, column: str = "N2") -> list[object]:
    """What is written, in order."""
    try:
        return [record["value"][column] for record in read_all(log, "SPARK")]
    except LogError:  # it was deleted and is not there yet
        return []


def error(query: SparkQuery) -> str:
    """Of a query that has stopped."""
    eventually(lambda: query.status().state == "ERROR")
    return query.status().error or ""


@pytest.mark.parametrize(("query", "state"), [(COPY, ""), (COUNT, ", and keeps its state")])
def test_a_source_that_was_made_anew_stops_the_query_and_resume_reads_it_from_its_beginning(
    log: Log, start: MadeQuery, make_anew_at_once: Callable[[str], None], query: str, state: str
) -> None:
    column = "N2" if query == COPY else "C"
    click(log, 1, 2)
    running = start(query)
    eventually(lambda: numbers(log, column) == ([2, 4] if query == COPY else [1, 2]))
    make_anew_at_once("clicks")
    click(log, 4, 5, 7, 8)  # more than was read of the one before
    assert error(running) == (
        'topic "clicks", which query SPARK_1 reads, was deleted and created again. RESUME SPARK_1; lets the '
        f"query go on: it reads the new topic from its first record{state}. RESET SPARK_1; computes "
        "everything anew from what its sources hold."
    )
    assert numbers(log, column) == ([2, 4] if query == COPY else [1, 2])
    running.resume()
    wanted = [2, 4, 8, 10, 14, 16] if query == COPY else [1, 2, 3, 4, 5, 6]
    eventually(lambda: numbers(log, column) == wanted)
    assert running.status().state == "RUNNING"


def test_no_batch_is_of_another_topic_though_nobody_has_looked_meanwhile(
    log: Log, start: MadeQuery, make_anew_at_once: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_run, "PARTITIONS_S", 3_600.0)
    click(log, 1)
    running = start(COPY)
    eventually(lambda: numbers(log) == [2])
    make_anew_at_once("clicks")
    click(log, 4, 5)
    assert "created again" in error(running)
    assert numbers(log) == [2]


def test_a_run_that_comes_back_does_not_take_another_topic_for_the_one_before(log: Log, start: MadeQuery) -> None:
    click(log, 1, 2)
    running = start(COUNT)
    eventually(lambda: numbers(log, "C") == [1, 2])
    running.stop()
    make_anew(log, "clicks")
    click(log, 4, 5, 7)
    again = start(COUNT)
    assert "which query SPARK_1 reads, was deleted and created again" in error(again)
    again.resume()
    eventually(lambda: numbers(log, "C") == [1, 2, 3, 4, 5])
    again.stop()
    start(COUNT)  # what RESUME has accepted, the next start accepts
    click(log, 8)
    eventually(lambda: numbers(log, "C") == [1, 2, 3, 4, 5, 6])


@pytest.mark.parametrize("restarts", [False, True])
def test_a_sink_that_was_made_anew_stops_the_query_before_it_writes_there(
    log: Log, start: MadeQuery, make_anew_at_once: Callable[[str], None], restarts: bool
) -> None:
    click(log, 1)
    running = start(COUNT)
    eventually(lambda: numbers(log, "C") == [1])
    if restarts:
        running.stop()
    make_anew_at_once("SPARK")
    click(log, 2)
    running = start(COUNT) if restarts else running
    assert error(running) == (
        'topic "SPARK", which query SPARK_1 writes, was deleted and created again. RESUME SPARK_1; lets the query go '
        "on: the new topic has only what it writes from then on, and keeps its state. RESET SPARK_1; computes "
        "everything anew from what its sources hold."
    )
    assert numbers(log, "C") == []
    running.resume()
    eventually(lambda: numbers(log, "C") == [2])


@pytest.mark.parametrize(("topic", "does"), [("clicks", "reads"), ("SPARK", "writes")])
def test_a_topic_that_is_gone_is_missed_until_it_is_there_again(
    log: Log, start: MadeQuery, topic: str, does: str
) -> None:
    click(log, 1)
    running = start(COUNT)
    eventually(lambda: numbers(log, "C") == [1])
    log.delete_topic(topic)
    assert error(running).startswith(
        f'topic "{topic}", which query SPARK_1 {does}, was deleted. Create it with 1 partition again. Then RESUME'
    )
    running.resume()
    assert ". Create it with 1 partition" in error(running)
    log.create_topic(topic, 1)
    running.resume()
    click(log, 2)
    eventually(lambda: numbers(log, "C")[-1:] == [2])


def test_a_task_that_finds_less_than_was_there_gives_up(log: Log, driver: DriverInProcess, start: MadeQuery) -> None:
    click(log, 1)
    driver.hangs.set()
    running = start(COPY)
    assert driver.job_began.wait(60)
    make_anew(log, "clicks")
    driver.hangs.clear()
    assert error(running).startswith('topic "clicks", which query SPARK_1 reads, was deleted and created again. RESUME')
    click(log, 4)
    running.resume()
    eventually(lambda: numbers(log) == [8])


@pytest.mark.parametrize("query", [COPY, COUNT])
def test_a_task_that_finds_another_topic_gives_up_though_it_holds_as_much(
    log: Log, driver: DriverInProcess, start: MadeQuery, query: str
) -> None:
    """The batch was planned, and its job waited for a core."""
    column = "N2" if query == COPY else "C"
    click(log, 1, 2)
    driver.hangs.set()
    running = start(query)
    assert driver.job_began.wait(60)
    make_anew(log, "clicks")
    click(log, 4, 5, 7)
    driver.hangs.clear()
    assert error(running).startswith('topic "clicks", which query SPARK_1 reads, was deleted and created again. RESUME')
    assert numbers(log, column) == []
    running.resume()
    wanted = [8, 10, 14] if query == COPY else [1, 2, 3]
    eventually(lambda: numbers(log, column) == wanted)


@pytest.mark.parametrize("made_anew", [False, True])
def test_of_what_a_task_finds_out_the_query_says_what_it_does_with_the_topic(
    log: Log, driver: DriverInProcess, start: MadeQuery, monkeypatch: pytest.MonkeyPatch, made_anew: bool
) -> None:
    """A task does not know that, and Spark passes on no more than its words."""

    def fail(*_: object) -> None:
        if made_anew:
            make_anew(log, "clicks")
        raise JavaError('Traceback\nmillstream.executor.errors.PositionLost: topic "clicks" was deleted')

    click(log, 1)
    monkeypatch.setattr(JobsInProcess, "run", fail)
    assert ("created again. RESUME SPARK_1;" in error(start(COPY))) == made_anew


@pytest.mark.parametrize("on_duckdb", [False, True])
def test_what_is_left_to_do_of_a_batch_is_done_without_the_records_of_a_topic_that_is_another_one(
    log: Log, driver: DriverInProcess, tmp_path: Path, on_duckdb: bool
) -> None:
    """One bucket has done the batch, the others have not; then a source is made anew, and has more records than were
    read of it. What is left of the other source counts once, and the new topic from its first record."""
    plan, other = (plan_of("join with a table", sink) for sink in ("SPARK", "DUCK"))
    topics, topics_of_other = KnownTopics(log, plan), KnownTopics(log, other)
    produce(log, 0, 60)
    topics.check()
    run = StagedRun(plan, log, "run")
    run.step(only={0})
    run.close()
    on_other_executor(other, log)
    before = {sink: written(log, sink) for sink in ("SPARK", "DUCK")}
    log.delete_topic("clicks")
    log.create_topic("clicks", 3)
    produce(log, 100, 220)
    for known in (topics, topics_of_other):
        with pytest.raises(PositionLost, match="created again"):
            known.check()
        known.accept()
    if on_duckdb:
        on_other_executor(plan, log)
    else:
        SparkQuery(plan, log, driver.session, lambda: "nowhere", tmp_path, {}, jobs=driver.jobs).run_available()
    on_other_executor(other, log)
    since = {sink: written(log, sink) - before[sink] for sink in ("SPARK", "DUCK")}
    assert since["SPARK"] == since["DUCK"]
    assert since["DUCK"].total() > 100


def on_other_executor(plan: PhysicalPlan, log: LogClient) -> None:
    """Runs it to the end of what there is."""
    runtime = QueryRuntime(plan, log, None, take_over=partial(take_from_spark, plan, log, {}))
    while runtime.step():
        pass
    runtime.close()


def written(log: LogClient, topic: str) -> Counter[str]:
    records = read_all(log, topic, range(log.partition_count(topic)))
    return Counter(str([record[name] for name in ("partition", "key", "value", "timestamp")]) for record in records)
