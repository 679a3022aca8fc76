"""Computes the rows of a pull query: from the materialization of its only source, or with a plan that runs once."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from ...executor.answers.apart import apart
from ...executor.answers.materialization import record_count
from ...executor.answers.pull_limits import Deadline, PullLimits
from ...executor.answers.pull_query import PullQuery
from ...planner.planning import PlannedBatch, PlannedPull
from ...planner.steps.source import Source
from .request import Request
from .statement_settings import StatementSettings


class PullAnswer(NamedTuple):
    """The rows, in order; the first columns are those of `planned.schema`. `left_out`: the number of records of the
    sources that could not be read."""

    rows: pa.Table
    left_out: int


def answer(planned: PlannedPull | PlannedBatch, request: Request, query_id: str = "") -> PullAnswer:
    """Raises `PullLimitExceeded`."""
    return apart(lambda: _answer(planned, request, query_id))


def _answer(planned: PlannedPull | PlannedBatch, request: Request, query_id: str) -> PullAnswer:
    settings = request.settings
    limits = PullLimits.of(settings)
    deadline = limits.begin()
    if isinstance(planned, PlannedBatch):
        return _run_once(planned, request, deadline, query_id)
    kept = request.materializations
    if planned.batch is not None:
        topic = planned.source_info.topic
        if record_count(request.log, topic) > StatementSettings.of(settings).pull_stream_rows:
            kept.forget(planned.source_info.name)  # it may have a materialization from when it was shorter
            return _run_once(planned.batch, request, deadline, query_id)
    with kept.using(planned.source_info, request.catalog, settings, planned.timestamp, deadline, query_id) as found:
        return PullAnswer(found.query(planned.sql, planned.udfs, limits, deadline), found.left_out)


def _run_once(planned: PlannedBatch, request: Request, deadline: Deadline, query_id: str) -> PullAnswer:
    of_tables: dict[str, int] = {}

    def table_rows(source: Source) -> pa.Table:
        info, kept = request.catalog.source(source.name), request.materializations
        using = kept.using(info, request.catalog, request.settings, source.timestamp, deadline, query_id)
        with using as found:
            of_tables[source.topic] = found.left_out
            return found.rows(deadline)

    query = PullQuery(planned, request.log, request.settings, deadline.limits)
    rows = query.answer(table_rows, deadline)
    return PullAnswer(rows, query.left_out.count + sum(of_tables.values()))
