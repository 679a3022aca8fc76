"""What a statement of any shape comes to: as its topic says in the end, as a pull query answers, and as DuckDB does."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from planning import Planner

from millstream.executor.answers.materialization import Materialization
from millstream.executor.answers.pull_limits import PullLimits
from millstream.executor.answers.pull_query import PullQuery
from millstream.logcore.client import LogClient
from millstream.planner.planning import PlannedBatch, PlannedPull, PlanningContext
from millstream.planner.pull.pull_queries import plan_pull
from millstream.planner.steps.sink import Sink
from millstream.planner.steps.source import Source
from millstream.sql import ast
from millstream.sql.parser import parse
from millstream.sql.settings.property_table import PULL_FULL_SQL

from .reference import answer, normal
from .running import PROPERTIES, World, Written
from .shapes import ShapeCase

Rows = Counter[tuple[Any, ...]]


def rows_written(case: ShapeCase, it: World) -> Rows:
    """The rows of O in the end, in the order of the SELECT list."""
    sink = it.plans[-1].root
    assert isinstance(sink, Sink)
    records = it.written(it.plans[-1])
    if sink.kind == "TABLE":
        records = list({record.key: record for record in records}.values())
    return _counted(case, [_columns(sink, record) for record in records if record.value is not None])


def rows_pulled(case: ShapeCase, it: World) -> Rows:
    """What a pull query with the text of the query answers."""
    found: Rows = Counter()
    for statement in parse("".join(f"{select};" for select in case.selects)):
        assert isinstance(statement, ast.Query)
        context = PlanningContext(it.planner.catalog, {PULL_FULL_SQL.name: "true"}, it.planner.topics, "PULL")
        planned = plan_pull(statement, context)
        table = _answer(planned, it.planner, it.client)
        names = table.column_names[: len(planned.schema.columns)]
        rows = zip(*(table.column(name).to_pylist() for name in names), strict=True)
        found += _counted(case, [dict(zip(_names(case), row, strict=True)) for row in rows])
    return found


def rows_expected(case: ShapeCase) -> Rows:
    rows = answer(case.sources, case.shape.reference)
    return _counted(case, [dict(zip(_names(case), row, strict=True)) for row in rows])


def _answer(planned: PlannedPull | PlannedBatch, planner: Planner, client: LogClient) -> Any:
    def table_rows(source: Source) -> Any:
        kept = Materialization(planner.catalog.source(source.name), client, PROPERTIES, timestamp=source.timestamp)
        kept.catch_up()
        return kept.rows()

    if isinstance(planned, PlannedBatch):
        return PullQuery(planned, client, PROPERTIES, PullLimits()).answer(table_rows)
    kept = Materialization(planned.source_info, client, PROPERTIES, timestamp=planned.timestamp)
    kept.catch_up()
    return kept.query(planned.sql, planned.udfs)


def _names(case: ShapeCase) -> list[str]:
    return [col.name for col in case.shape.cols]


def _counted(case: ShapeCase, rows: list[dict[str, Any]]) -> Rows:
    """`ShapeCase.counted`: a group that ksqlDB keeps with a count of 0 is none."""
    listed = [tuple(normal(row[name]) for name in _names(case)) for row in rows]
    if case.count_column is None:
        return Counter(listed)
    at = _names(case).index(case.count_column)
    return Counter(row for row in listed if row[at] != normal(0))


def _columns(sink: Sink, record: Written) -> dict[str, Any]:
    assert isinstance(record.value, bytes)
    keys = [column.name for column in sink.schema.key]
    found: Mapping[str, Any] = json.loads(record.value)
    key = None if record.key is None else json.loads(record.key)
    held = dict.fromkeys(keys) if key is None else {keys[0]: key} if len(keys) == 1 else key
    return {**found, **(held if keys else {})}
