"""The rows that answer a pull query: from the materialization of its one source, or from a plan that runs once."""

from __future__ import annotations

import pyarrow as pa

from ..executor.materialization import record_count
from ..executor.pull_limits import Deadline, PullLimits
from ..executor.pull_query import PullQuery
from ..planner.physical import Source
from ..planner.planning import PlannedBatch, PlannedPull
from .properties import number_of
from .request import Request

STREAM_ROWS = "millstream.query.pull.max.stream.rows"


def answer(planned: PlannedPull | PlannedBatch, request: Request) -> pa.Table:
    """The rows, in their order; the first columns are those of `planned.schema`. Raises `PullLimitExceeded`."""
    settings = request.settings
    limits = PullLimits.of(settings)
    deadline = limits.begin()
    if isinstance(planned, PlannedBatch):
        return _run_once(planned, request, deadline)
    kept = request.materializations
    if planned.batch is not None:
        topic = planned.source_info.topic
        if record_count(request.log, topic) > number_of(settings, STREAM_ROWS):
            kept.forget(planned.source_info.name)  # it was shorter once
            return _run_once(planned.batch, request, deadline)
    with kept.using(planned.source_info, request.catalog, settings, planned.timestamp, deadline) as found:
        return found.query(planned.sql, planned.udfs, limits, deadline)


def _run_once(planned: PlannedBatch, request: Request, deadline: Deadline) -> pa.Table:
    def table_rows(source: Source) -> pa.Table:
        info = request.catalog.source(source.name)
        kept = request.materializations
        with kept.using(info, request.catalog, request.settings, source.timestamp, deadline) as found:
            return found.rows(deadline)

    return PullQuery(planned, request.log, request.settings, deadline.limits).answer(table_rows, deadline)
