"""An aggregate that a query calls twice is computed once; calls that only Python takes for equal are two."""

from __future__ import annotations

import pytest
from planned import plan_of

from millstream.planner.steps.aggregate import Aggregate
from millstream.sql.types import INTEGER, Array

STREAM = "CREATE STREAM s (k INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);"


def types_of_calls(*calls: str) -> list[object]:
    """The types of the columns that the query computes."""
    columns = ", ".join(f"{call} AS c{number}" for number, call in enumerate(calls))
    plan = plan_of(f"{STREAM} CREATE TABLE t AS SELECT k, {columns} FROM s GROUP BY k;")
    (step,) = (step for step in plan.steps() if isinstance(step, Aggregate))
    return [call.type for call in step.calls]


@pytest.mark.parametrize("boolean", ["true", "false"])
@pytest.mark.parametrize("name", ["EARLIEST_BY_OFFSET", "LATEST_BY_OFFSET"])
def test_one_value_is_not_an_array_of_one(name: str, boolean: str) -> None:
    """In Python, `True == 1`."""
    one, several = f"{name}(v, {boolean})", f"{name}(v, 1)"
    assert types_of_calls(one, several) == [INTEGER, Array(INTEGER)]
    assert types_of_calls(several, one) == [Array(INTEGER), INTEGER]


def test_the_same_call_is_computed_once() -> None:
    assert len(types_of_calls("LATEST_BY_OFFSET(v, 2)", "LATEST_BY_OFFSET(V, 2)", "LATEST_BY_OFFSET(v, 3)")) == 2
    assert len(types_of_calls("COUNT(*)", "COUNT(v)", "COUNT(*)", "COUNT(DISTINCT v)")) == 3
