"""Counts of what a Structured Streaming query has done, from Spark's own progress reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from .rows import COUNTS

REPORT = "millstream_report"


def observed(reports: DataFrame) -> DataFrame:
    """The same rows; their sums go to the listeners."""
    first, *rest = (F.sum(name).alias(name) for name in COUNTS)
    return reports.observe(REPORT, first, *rest)


class ProgressListener(StreamingQueryListener):
    """In: `callbacks`: by the id of a query's run; each gets the counts of every batch."""

    def __init__(self, callbacks: dict[str, Callable[[Mapping[str, int]], None]]) -> None:
        self._callbacks = callbacks

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing to count yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Passes the batch's counts on."""
        progress = event.progress
        callback = self._callbacks.get(str(progress.runId))
        report = progress.observedMetrics.get(REPORT)
        if callback is not None and report is not None:
            callback({name: report[name] or 0 for name in COUNTS})

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing has happened."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Nothing more will come."""
        self._callbacks.pop(str(event.runId), None)
