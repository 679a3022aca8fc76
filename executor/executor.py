"""The interface of executors, which run persistent queries. The DuckDB and the Spark executor implement it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from ..logcore.client import TopicPartition
from ..planner.catalog import PersistentQuery
from .figures import QueryFigures

QueryState = Literal["RUNNING", "PAUSED", "ERROR", "STOPPED"]
ExecutorKind = Literal["duckdb", "spark"]


@dataclass(frozen=True, slots=True)
class QueryMetrics:
    """Counts since the query was started in this process.

    Invariant: rows_in == rows_used + rows_dropped + rows_failed.
    """

    rows_in: int = 0  # records read
    rows_used: int = 0  # records that gave at least one output row
    rows_dropped: int = 0  # records that gave no output row: filtered, late, or replaced by a later change
    rows_failed: int = 0  # records that went to the processing log
    rows_out: int = 0  # records written to the sink
    bytes_in: int = 0
    batches: int = 0
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class QueryStatus:
    """A query at one moment. `lag` counts the records that are readable and not yet read, per source partition.

    `error`: why the query stopped; if it is RUNNING, the failure after which it is retrying. `executor`: which executor
    runs it or will run it. `backfill_left`: records left to read on Spark; None without a backfill. `recovery_left`:
    records left to read before it continues, of its changelog or, if it was replaced, of a table's topic; else None.
    `spark_starts`: whether it waits until Spark has started.
    """

    query_id: str
    state: QueryState
    metrics: QueryMetrics = field(default_factory=QueryMetrics)
    positions: Mapping[TopicPartition, int] = field(default_factory=dict)
    lag: Mapping[TopicPartition, int] = field(default_factory=dict)
    error: str | None = None
    executor: ExecutorKind | None = None
    backfill_left: int | None = None
    recovery_left: int | None = None
    spark_starts: bool = False

    @property
    def shown_state(self) -> QueryState:
        """The state for users and alarms. If every record failed so far, it is ERROR, although the query continues
        with the next record."""
        return "ERROR" if self.state == "RUNNING" and self._fails_always else self.state

    @property
    def trouble(self) -> str | None:
        """The error, or what makes a running query useless."""
        if self.error is not None or not self._fails_always:
            return self.error
        return (
            f"all {self.metrics.rows_failed} records that the query has read failed and were left out: PRINT "
            "'default_ksql_processing_log' FROM BEGINNING; shows why, EXPLAIN ANALYZE the last one"
        )

    @property
    def _fails_always(self) -> bool:
        return 0 < self.metrics.rows_in == self.metrics.rows_failed


class Executor(Protocol):
    """Runs persistent queries. Methods may be called from any thread."""

    def start(self, query: PersistentQuery) -> None:
        """Starts or continues the query from its committed offsets; does nothing if it already runs."""
        ...

    def stop(self, query_id: str) -> None:
        """Stops the query and keeps everything that is needed to continue later."""
        ...

    def pause(self, query_id: str) -> None:
        """Returns once no batch is in progress."""
        ...

    def resume(self, query_id: str) -> None: ...

    def drop(self, query_id: str) -> None:
        """Stops the query and removes its state, changelog and committed offsets. The sink's topic stays."""
        ...

    def status(self, query_id: str) -> QueryStatus:
        """Raises `UnknownQuery`."""
        ...

    def figures(self, query_id: str) -> QueryFigures | None:
        """The measurements of a query's operators; None if there are none. Raises `UnknownQuery`."""
        ...

    def close(self) -> None:
        """Stops all queries; they continue when another executor starts them."""
        ...
