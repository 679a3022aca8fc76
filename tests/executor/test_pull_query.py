"""A pull query that reads streams: what retention deletes meanwhile is left out, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from hand_plans import rows
from laws.running import PROPERTIES
from planning import Planner

from millstream.executor.answers import pull_query
from millstream.executor.answers.pull_limits import PullLimits
from millstream.executor.answers.pull_query import PullQuery
from millstream.logcore.client import LogClient
from millstream.logcore.errors import OffsetOutOfRange
from millstream.logcore.log import open_log
from millstream.planner.planning import PlannedBatch, PlanningContext
from millstream.planner.pull.pull_queries import plan_pull
from millstream.planner.steps.source import Source
from millstream.sql import ast
from millstream.sql.parser import parse
from millstream.sql.settings.property_table import PULL_FULL_SQL

STREAM = "CREATE STREAM s (k STRING KEY, x BIGINT) WITH (kafka_topic='s', format='JSON', partitions={});"


class Deleting:
    """The log; the second fetch finds the records before `before` of partition 0 deleted."""

    def __init__(self, log: LogClient, before: int) -> None:
        self._log = log
        self._before = before
        self._fetches = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def fetch(self, *where: Any, **how: Any) -> Any:
        self._fetches += 1
        if self._fetches == 2:
            self._log.delete_records("s", 0, self._before)
        return self._log.fetch(*where, **how)


class NeverThere:
    """The log; what is fetched is always said to be gone, and the log's start does not move."""

    def __init__(self, log: LogClient) -> None:
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def fetch(self, *where: Any, **how: Any) -> Any:
        raise OffsetOutOfRange("it is gone")


def answer(log: Any, partitions: int) -> list[int]:
    planner = Planner()
    assert list(planner.plans(STREAM.format(partitions))) == []
    (query,) = parse("SELECT SUM(x) AS total, COUNT(*) AS n FROM s;")
    context = PlanningContext(planner.catalog, {PULL_FULL_SQL.name: "true"}, planner.topics, "PULL")
    planned = plan_pull(cast(ast.Query, query), context)
    assert isinstance(planned, PlannedBatch)
    (row,) = PullQuery(planned, log, PROPERTIES, PullLimits()).answer(no_table).to_pylist()
    return list(row.values())[:2]


def no_table(source: Source) -> pa.Table:
    raise AssertionError("there is no table")


@pytest.fixture(autouse=True)
def one_record_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull_query, "MAX_BATCH_BYTES", 1)


@pytest.mark.parametrize("partitions", [1, 2])
@pytest.mark.parametrize("before", [1, 4, 10])
def test_what_retention_deletes_before_it_is_read_is_left_out(tmp_path: Path, partitions: int, before: int) -> None:
    with open_log(tmp_path, sync="never") as log:
        log.create_topic("s", partitions)
        for partition in range(partitions):
            for number in range(10):
                log.append("s", partition, rows([('"k"', {"X": 10**number}, number)]))
        whole = 1_111_111_111
        first, left = 1, sum(10**number for number in range(before, 10))
        of_first = first + left if before > 1 else whole
        read = of_first + (partitions - 1) * whole
        count = 10 * partitions - (before - 1)
        found = answer(Deleting(log, before), partitions)
        # with two partitions the second fetch may be that of the other one: then nothing of the first was read before
        assert found in ([read, count], [read - 1, count - 1])


def test_a_record_that_is_missing_for_another_reason_is_an_error(tmp_path: Path) -> None:
    with open_log(tmp_path, sync="never") as log:
        log.create_topic("s", 1)
        log.append("s", 0, rows([('"k"', {"X": 1}, 1)]))
        with pytest.raises(OffsetOutOfRange):
            answer(NeverThere(log), 1)
