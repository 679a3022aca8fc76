"""The application on a Spark cluster: how long it keeps its executors, and what happens where it gets none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jobs_in_process import DriverInProcess
from spark_stages import contents, plan_of, produce
from waiting import eventually

from millstream.executor.spark import spark_executor, spark_query
from millstream.executor.spark.spark_executor import SparkExecutor
from millstream.executor.spark.spark_jobs import TaskCounts
from millstream.logcore.client import LogClient
from millstream.planner.catalog import PersistentQuery

CLUSTER = {"spark.master": "spark://master:7077", "millstream.spark.bootstrap.servers": "log:9092"}


class Application:
    """State: `opened` and `ended` count sessions; in a session that is `unknown` to the master, no task ever runs."""

    def __init__(self, log: LogClient, folder: Path, master: dict[str, str]) -> None:
        self.driver = DriverInProcess(log)
        self.opened = self.ended = 0
        self.executor = SparkExecutor(
            log, folder, master, session=self._open, end=self._end, jobs=self.driver.jobs
        )  # fmt: skip

    def _open(self, settings: object) -> Any:
        self.opened += 1
        return self.driver.session()

    def _end(self) -> None:
        self.ended += 1
        self.driver.hangs.clear()  # its jobs end, and those of the next session run

    def start(self) -> str:
        plan = plan_of("group by another column", "SPARK")
        self.executor.start(PersistentQuery(plan.query_id, "", plan, "SPARK", ("CLICKS",), "CREATE_AS"))
        return plan.query_id


@pytest.fixture
def on_cluster(log: LogClient, tmp_path: Path) -> Iterator[Application]:
    found = Application(log, tmp_path / "queries", CLUSTER)
    yield found
    found.driver.hangs.clear()
    found.executor.close()


def test_a_cluster_gets_its_executors_back_when_the_engine_leaves(log: LogClient, on_cluster: Application) -> None:
    produce(log, 0, 50)
    on_cluster.start()
    eventually(lambda: contents(log, "SPARK"))
    assert on_cluster.ended == 0
    on_cluster.executor.close()
    assert on_cluster.ended == 1


def test_spark_in_this_process_stays_for_the_next_engine(log: LogClient, tmp_path: Path) -> None:
    here = Application(log, tmp_path, {**CLUSTER, "spark.master": "local[2]"})
    here.start()
    here.executor.close()
    assert here.ended == 0


def test_an_application_that_the_master_has_forgotten_registers_anew(
    log: LogClient, on_cluster: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name, seconds in (
        (spark_executor, "LOOK_S", 0.02), (spark_executor, "REGISTER_S", 0.5), (spark_query, "IDLE_S", 0.02),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, seconds)
    on_cluster.executor._register_after_s = 60.0
    on_cluster.driver.counts = TaskCounts(active=0, completed=0)
    on_cluster.driver.hangs.set()
    produce(log, 0, 50)
    query = on_cluster.start()
    eventually(lambda: "for an executor" in (on_cluster.executor.status(query).error or ""))
    on_cluster.executor._register_after_s = 0.3
    eventually(lambda: on_cluster.ended)
    eventually(lambda: contents(log, "SPARK"))
    assert on_cluster.executor.status(query).state == "RUNNING"
    on_cluster.driver.counts = TaskCounts(active=1, completed=0)
    produce(log, 50, 100)
    eventually(lambda: on_cluster.executor._register_after_s == 0.5)  # the next outage is another one


def test_an_application_with_executors_is_left_alone(
    log: LogClient, on_cluster: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_executor, "LOOK_S", 0.01)
    on_cluster.executor._register_after_s = 0.05
    on_cluster.driver.hangs.set()  # a long task, which runs
    produce(log, 0, 50)
    on_cluster.start()
    assert on_cluster.driver.job_began.wait(60)
    looks: list[float] = []
    look = spark_query.SparkQuery.look
    monkeypatch.setattr(spark_query.SparkQuery, "look", lambda query: looks.append(0.0) or look(query))
    eventually(lambda: len(looks) > 20)
    assert on_cluster.ended == 0
