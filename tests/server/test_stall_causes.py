"""The causes that EXPLAIN STALL finds in what it was given: one situation each, without an engine that runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from millstream.executor.executor import QueryMetrics, QueryStatus
from millstream.executor.figures import OperatorFigures, QueryFigures
from millstream.executor.queries.start_offsets import StartSettings
from millstream.logcore.client import Offsets, TopicPartition
from millstream.planner.catalog import PersistentQuery
from millstream.planner.insight.stall import Cause
from millstream.server.handlers.insight import stall_causes
from millstream.server.insight.stall import Situation
from millstream.testing import Sandbox

DDL = """
CREATE STREAM s (k STRING KEY, v INT, a ARRAY<INT>) WITH (kafka_topic='s', value_format='JSON', partitions=1);
"""
FULL = Offsets(0, 5, 5, 5)
EMPTY = Offsets(0, 0, 0, 0)
READ_ALL = {TopicPartition("s", 0): 5}


@pytest.fixture(scope="module")
def queries() -> dict[str, PersistentQuery]:
    with Sandbox() as sandbox:
        sandbox.execute(DDL)
        for statement in (
            "CREATE STREAM plain AS SELECT * FROM s;",
            "CREATE TABLE grouped AS SELECT v, COUNT(*) AS n FROM s GROUP BY v;",
            "CREATE STREAM exploded AS SELECT k, EXPLODE(a) AS e FROM s;",
        ):
            sandbox.execute(statement)
        return {query.sink: query for query in sandbox.engine.catalog.queries.values()}


def situation(
    query: PersistentQuery,
    status: QueryStatus | None = None,
    operators: tuple[OperatorFigures, ...] = (),
    bounds: Mapping[TopicPartition, Offsets] | None = None,
    *,
    writing: bool = False,
) -> Situation:
    root = query.plan.root
    both = {TopicPartition("s", 0): FULL, TopicPartition(getattr(root, "topic", ""), 0): EMPTY}
    return Situation(
        query,
        status or QueryStatus(query.id, "RUNNING", QueryMetrics(rows_in=5), READ_ALL, {TopicPartition("s", 0): 0}),
        QueryFigures(operators, state_known=True, writing=writing),
        StartSettings(),
        both if bounds is None else bounds,
    )


def codes(seen: Situation) -> dict[str, Cause]:
    return {cause.code: cause for cause in stall_causes(seen)}


def operator(*steps: str, rows_in: int = 0, rows_out: int = 0, rate: float = 0.0) -> OperatorFigures:
    return OperatorFigures(steps, rows_in, rows_out, 0, 0, 0, rate, rate, 0.0)


def test_a_query_that_has_stopped_says_why_and_how_it_goes_on(queries: dict[str, PersistentQuery]) -> None:
    query = queries["PLAIN"]
    cause = codes(situation(query, QueryStatus(query.id, "ERROR", error="disk on fire")))["FAILED"]
    assert cause.message == "The query has stopped: disk on fire."
    assert f"RESUME {query.id};" in cause.hint


def test_a_query_that_tries_again_says_what_it_waits_for(queries: dict[str, PersistentQuery]) -> None:
    query = queries["PLAIN"]
    found = codes(situation(query, QueryStatus(query.id, "RUNNING", error="the log is full")))
    assert found["RETRYING"].message == "The query cannot continue and retries: the log is full."


def test_topics_that_are_gone_are_named(queries: dict[str, PersistentQuery]) -> None:
    found = codes(situation(queries["PLAIN"], bounds={}))
    assert 'The topic "s" of S no longer exists.' == found["SOURCE_TOPIC_GONE"].message
    assert '"PLAIN"' in found["SINK_TOPIC_GONE"].message


def test_what_waits_to_be_read_blocks_only_where_nothing_moves(queries: dict[str, PersistentQuery]) -> None:
    query = queries["PLAIN"]
    status = QueryStatus(query.id, "RUNNING", QueryMetrics(rows_in=2), READ_ALL, {TopicPartition("s", 0): 3})
    still = codes(situation(query, status, (operator("source-1", rows_in=2, rows_out=2),), writing=True))["BEHIND"]
    assert still.blocks
    assert still.message == (
        '3 records of "s" are unread; it has read nothing in the last ten seconds. A batch waits for the log to '
        "write it."
    )
    moving = codes(situation(query, status, (operator("source-1", rows_in=2, rows_out=2, rate=40.0),)))["BEHIND"]
    assert not moving.blocks
    assert "it reads 40 rows/s" in moving.message


def test_rows_without_a_group_are_told_from_rows_that_a_filter_drops(queries: dict[str, PersistentQuery]) -> None:
    rekey = next(step for step in ("rekey-1",))
    found = codes(situation(queries["GROUPED"], operators=(operator("project-1", rekey, rows_in=7),)))
    assert found["NULL_KEYS"].message == "All 7 rows have a NULL grouping key, and were dropped."


def test_a_query_that_had_read_everything_before_a_restart_did_not_start_at_the_end(
    queries: dict[str, PersistentQuery],
) -> None:
    status = QueryStatus(queries["PLAIN"].id, "RUNNING", QueryMetrics(), READ_ALL, {TopicPartition("s", 0): 0})
    seen = situation(queries["PLAIN"], status)
    assert set(codes(replace(seen, start=StartSettings("latest")))) == {"STARTED_AT_END"}
    (cause,) = codes(replace(seen, start=StartSettings("earliest"))).values()
    assert cause.message == (
        'The query had read all of "s" (5 records) before it started here, and none has arrived since.'
    )


def test_an_aggregate_that_counts_nothing_is_named(queries: dict[str, PersistentQuery]) -> None:
    found = codes(situation(queries["GROUPED"], operators=(operator("aggregate-1", rows_in=7),)))
    assert found["NOTHING_TO_GROUP"].message == "7 rows reached the aggregate, and none was counted."


def test_a_step_that_gives_nothing_is_named_as_the_user_wrote_it(queries: dict[str, PersistentQuery]) -> None:
    found = codes(situation(queries["EXPLODED"], operators=(operator("explode-1", rows_in=3),)))
    assert found["NOTHING_PASSES"].message == "3 rows went into EXPLODE A, and none came out."
    fused = codes(situation(queries["EXPLODED"], operators=(operator("explode-1", "project-1", rows_in=1),)))
    assert fused["NOTHING_PASSES"].message == "1 row went into EXPLODE A, and none came out."


@pytest.mark.parametrize(("left", "told"), [(12, "12 records are"), (1, "1 record is")])
def test_a_recovery_blocks_and_says_how_much_is_left(queries: dict[str, PersistentQuery], left: int, told: str) -> None:
    query = queries["GROUPED"]
    cause = codes(situation(query, QueryStatus(query.id, "RUNNING", recovery_left=left)))["RECOVERY"]
    assert cause.blocks and cause.figures == {"left": left}
    assert cause.message == f"The query restores its state: {told} left to read."


def test_a_start_of_spark_blocks(queries: dict[str, PersistentQuery]) -> None:
    query = queries["GROUPED"]
    cause = codes(situation(query, QueryStatus(query.id, "RUNNING", spark_starts=True)))["SPARK_STARTS"]
    assert cause.blocks and cause.message == "Spark is starting."


def test_without_figures_of_operators_the_rest_is_told_all_the_same(queries: dict[str, PersistentQuery]) -> None:
    """As where Spark runs the query."""
    query = queries["PLAIN"]
    seen = situation(query, bounds={TopicPartition("s", 0): EMPTY, TopicPartition("PLAIN", 0): EMPTY})
    assert list(codes(replace(seen, figures=QueryFigures()))) == ["NO_RECORDS"]


def test_what_holds_a_query_back_stands_first(queries: dict[str, PersistentQuery]) -> None:
    query = queries["PLAIN"]
    status = QueryStatus(query.id, "PAUSED", QueryMetrics(rows_in=5, rows_out=5, rows_used=5), READ_ALL, {})
    assert [cause.code for cause in stall_causes(situation(query, status))] == ["PAUSED", "OUTPUT_IS_THERE"]


def test_a_sandbox_answers_too() -> None:
    with Sandbox() as sandbox:
        sandbox.execute(DDL + "CREATE STREAM plain AS SELECT * FROM s WHERE v > 3;")
        sandbox.produce("s", "a", {"V": 1})
        sandbox.drain()
        (stall,) = sandbox.execute("EXPLAIN STALL CSAS_PLAIN_1;")
        (live,) = sandbox.execute("EXPLAIN CSAS_PLAIN_1;")
    assert [cause["code"] for cause in stall["causes"]] == ["FILTER_DROPS_ALL"]
    assert live["queryDescription"]["live"]["operators"][0]["rowsIn"] == 1
