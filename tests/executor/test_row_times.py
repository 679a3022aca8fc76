"""Rowtimes from a column are the same, whether DuckDB computes them or they are taken as they are."""

from __future__ import annotations

import pyarrow as pa
import pytest
from planned import plan_of

from millstream.executor import row_times
from millstream.executor.row_times import RowTimes
from millstream.planner.specs import SqlExpression
from millstream.planner.steps.sink import Sink
from millstream.sql.types import BIGINT

MICROS = [0, 1, 499, 500, 501, 999, 1000, 1499, 1500, -1, -499, -500, -501, -1500, 1_436_918_400_123_000, None]
NUMBERS = [0, -1, 7, 2**63 - 1, -(2**63), None]


def both(sql: str, table: pa.Table) -> tuple[list[int | None], list[int | None]]:
    expression = SqlExpression(sql, BIGINT)
    direct, computed = row_times.row_times(expression), row_times._Computed(expression)
    assert type(direct) is not type(computed)
    return times(direct, table), times(computed, table)


def times(of: RowTimes, table: pa.Table) -> list[int | None]:
    return of.of(table).to_pylist()


def with_times(column: pa.Array) -> pa.Table:
    return pa.table({"v0": column, "k1": column, "_ts": pa.array([0] * len(column))})


@pytest.mark.parametrize("sql", ['TRY(EPOCH_MS("v0"))', "TRY(EPOCH_MS(v0))", "TRY(EPOCH_MS(k1))"])
def test_of_timestamps(sql: str) -> None:
    direct, computed = both(sql, with_times(pa.array(MICROS, pa.timestamp("us"))))
    assert direct == computed


@pytest.mark.parametrize("sql", ["v0", '"v0"', "k1"])
def test_of_whole_numbers(sql: str) -> None:
    direct, computed = both(sql, with_times(pa.array(NUMBERS, pa.int64())))
    assert direct == computed == NUMBERS


@pytest.mark.parametrize(
    "sql", ["v0 + 1", "TRY(EPOCH_MS(v0)) + 1", "-v0", "epoch_ms(strptime(v0, 'x'))", "v0 + v1", "(v0)"]
)
def test_all_else_is_computed(sql: str) -> None:
    assert isinstance(row_times.row_times(SqlExpression(sql, BIGINT)), row_times._Computed)


@pytest.mark.parametrize(
    ("type_", "format_", "computed"),
    [("TIMESTAMP", "", False), ("BIGINT", "", False), ("STRING", ", timestamp_format='yyyy'", True)],
)
def test_what_plans_hold(type_: str, format_: str, computed: bool) -> None:
    plan = plan_of(
        f"CREATE STREAM s (id INT KEY, t {type_}) WITH (kafka_topic='s', value_format='JSON', partitions=1,"
        f" timestamp='t'{format_}); CREATE STREAM c WITH (timestamp='t'{format_}) AS SELECT id, t FROM s;"
    )
    assert isinstance(plan.root, Sink)
    for expression in (plan.sources()[0].timestamp, plan.root.timestamp):
        assert expression is not None
        assert isinstance(row_times.row_times(expression), row_times._Computed) == computed
