"""What a query on Spark does when Spark fails, hangs, or is not there; the jobs run in this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from jobs_in_process import DriverInProcess, JavaError
from spark_stages import OnDuckDB, contents, plan_of, produce

from millstream.executor.errors import SparkUnavailable
from millstream.executor.spark import spark_query
from millstream.executor.spark.spark_jobs import TaskCounts
from millstream.executor.spark.spark_query import FAILURES_MAX, SparkQuery
from millstream.logcore.client import LogClient

LOST_EXECUTOR = """An error occurred while calling o68.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times, most recent \
failure: Lost task 0.3 in stage 1.0 (TID 9) (10.0.0.7 executor 1): ExecutorLostFailure (executor 1 exited)
\tat java.base/java.lang.Thread.run(Thread.java:840)"""
OWN_ERROR = """Traceback (most recent call last):
  File "job_stages.py", line 1, in __call__
ValueError: a step that does not know what to do"""
LOST_STATE = """Traceback (most recent call last):
millstream.executor.errors.StateLost: the changelog of SPARK_1 has lost records"""


@pytest.fixture
def driver(log: LogClient, monkeypatch: pytest.MonkeyPatch) -> DriverInProcess:
    found = DriverInProcess(log)
    for name in ("BACKOFF_S", "BACKOFF_MAX_S", "PATIENCE_S"):
        monkeypatch.setattr(spark_query, name, 0.01)
    return found


@pytest.fixture
def query(log: LogClient, driver: DriverInProcess, tmp_path: Path) -> Iterator[SparkQuery]:
    found = make(log, driver, tmp_path)
    yield found
    driver.deaf = False
    driver.hangs.clear()
    found.stop()


def make(log: LogClient, driver: DriverInProcess, folder: Path, *, paused: bool = False) -> SparkQuery:
    plan = plan_of("group by another column", "SPARK")
    return SparkQuery(plan, log, driver.session, lambda: "nowhere", folder, {}, paused=paused, jobs=driver.jobs)


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def is_done(query: SparkQuery) -> bool:
    status = query.status()
    return len(status.lag) == 3 and not any(status.lag.values())


def assert_right(log: LogClient) -> None:
    OnDuckDB(plan_of("group by another column", "DUCK"), log).drain()
    got, wanted = contents(log, "SPARK"), contents(log, "DUCK")
    assert {key: records[-1] for key, records in got.items()} == {key: each[-1] for key, each in wanted.items()} != {}


def test_lost_executors_are_waited_for_however_often(
    log: LogClient, driver: DriverInProcess, query: SparkQuery
) -> None:
    produce(log, 0, 100)
    driver.failures += [JavaError(LOST_EXECUTOR) for _ in range(3 * FAILURES_MAX)]
    seen: set[tuple[str, str | None]] = set()
    query.start()

    def ended() -> bool:
        status = query.status()
        seen.add((status.state, status.error))
        return is_done(query)

    eventually(ended)
    assert {state for state, _ in seen} == {"RUNNING"}
    assert any("ExecutorLostFailure" in (error or "") for _, error in seen)
    eventually(lambda: query.status().error is None)
    assert_right(log)


def test_a_spark_that_does_not_start_is_waited_for(log: LogClient, driver: DriverInProcess, tmp_path: Path) -> None:
    produce(log, 0, 50)
    missing = 2 * FAILURES_MAX

    def session() -> object:
        nonlocal missing
        missing -= 1
        if missing > 0:
            raise SparkUnavailable("Spark does not start with master spark://gone:7077")
        return driver.session()

    plan = plan_of("group by another column", "SPARK")
    query = SparkQuery(plan, log, session, lambda: "nowhere", tmp_path, {}, jobs=driver.jobs)  # pyrefly: ignore[bad-argument-type]
    query.start()
    eventually(lambda: is_done(query))
    status = query.status()
    assert (status.state, status.spark_starts) == ("RUNNING", False)
    query.stop()
    assert query.status().state == "STOPPED"


def test_an_error_of_the_query_itself_stops_it_after_some_tries_and_resume_tries_again(
    log: LogClient, driver: DriverInProcess, query: SparkQuery
) -> None:
    produce(log, 0, 50)
    driver.failures += [JavaError(OWN_ERROR) for _ in range(FAILURES_MAX)]
    query.start()
    eventually(lambda: query.status().state == "ERROR")
    assert query.status().error == "ValueError: a step that does not know what to do"
    assert not driver.failures
    query.resume()
    eventually(lambda: is_done(query))
    assert query.status().state == "RUNNING"
    assert_right(log)


def test_lost_state_stops_the_query_at_once(log: LogClient, driver: DriverInProcess, query: SparkQuery) -> None:
    produce(log, 0, 50)
    driver.failures += [JavaError(LOST_STATE)] * 2
    query.start()
    eventually(lambda: query.status().state == "ERROR")
    assert "RESET SPARK_1" in (query.status().error or "")
    assert len(driver.failures) == 1


def test_a_second_run_stops_the_first(log: LogClient, driver: DriverInProcess, tmp_path: Path) -> None:
    first, second = make(log, driver, tmp_path), make(log, driver, tmp_path)
    produce(log, 0, 50)
    first.start()
    eventually(lambda: is_done(first))
    second.run_available()
    produce(log, 50, 100)
    eventually(lambda: first.status().state == "ERROR")
    second.run_available()
    first.stop()
    assert_right(log)


def test_a_pause_cancels_a_job_that_hangs_and_its_batch_is_done_afterwards(
    log: LogClient, driver: DriverInProcess, query: SparkQuery
) -> None:
    produce(log, 0, 50)
    driver.hangs.set()
    query.start()
    assert driver.job_began.wait(60)
    query.pause()
    assert query.status().state == "PAUSED"
    assert query.status().error is None
    driver.hangs.clear()
    query.resume()
    eventually(lambda: is_done(query))
    assert_right(log)


def test_a_query_stops_though_spark_answers_nothing(
    log: LogClient, driver: DriverInProcess, query: SparkQuery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_query, "STOP_S", 0.05)
    produce(log, 0, 50)
    driver.deaf = True
    driver.hangs.set()
    query.start()
    assert driver.job_began.wait(60)
    query.stop()
    assert query.status().state == "STOPPED"


def test_a_query_that_stops_while_spark_starts_writes_nothing_any_more(
    log: LogClient, driver: DriverInProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_query, "STOP_S", 0.05)
    asked, starts = threading.Event(), threading.Event()

    def session() -> object:
        asked.set()
        starts.wait(60)
        return driver.session()

    produce(log, 0, 50)
    plan = plan_of("group by another column", "SPARK")
    query = SparkQuery(plan, log, session, lambda: "nowhere", tmp_path, {}, jobs=driver.jobs)  # pyrefly: ignore[bad-argument-type]
    query.start()
    assert asked.wait(60)
    assert query.status().spark_starts
    before = set(log.topics())  # `status` has asked for the topic of committed offsets
    query.stop()
    assert not query.status().spark_starts, "it is stopped"
    starts.set()
    eventually(lambda: not any(thread.name == "spark-query-SPARK_1" for thread in threading.enumerate()))
    assert set(log.topics()) == before
    assert query.status().state == "STOPPED"


def test_a_paused_query_starts_when_it_is_resumed(log: LogClient, driver: DriverInProcess, tmp_path: Path) -> None:
    produce(log, 0, 50)
    query = make(log, driver, tmp_path, paused=True)
    query.start()
    assert query.status().state == "PAUSED"
    query.resume()
    eventually(lambda: is_done(query))
    query.stop()
    assert_right(log)


def test_a_job_that_no_executor_takes_is_told(
    log: LogClient, driver: DriverInProcess, query: SparkQuery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_query, "IDLE_S", 0.0)
    produce(log, 0, 50)
    driver.hangs.set()
    query.start()
    assert driver.job_began.wait(60)
    driver.counts = TaskCounts(active=1, completed=0)
    query.look()
    driver.counts = TaskCounts(active=0, completed=1)
    query.look()
    assert (query.status().state, query.status().error) == (
        "RUNNING", "the batch has waited 0 s for an executor of Spark: none is there, or all are busy"
    )  # fmt: skip
    driver.hangs.clear()
    eventually(lambda: is_done(query) and query.status().error is None)


def test_a_look_between_two_tasks_says_nothing(
    log: LogClient, driver: DriverInProcess, query: SparkQuery, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(log, 0, 50)
    driver.hangs.set()
    query.start()
    assert driver.job_began.wait(60)
    for counts in (TaskCounts(0, 0), TaskCounts(0, 1), TaskCounts(1, 1), TaskCounts(0, 2)):
        driver.counts = counts
        query.look()
        assert query.status().error is None
