"""What an executor is: it runs persistent queries. The DuckDB executor and the Spark executor both are one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from ..logcore.client import TopicPartition
from ..planner.catalog import PersistentQuery
from .figures import QueryFigures

QueryState = Literal["RUNNING", "PAUSED", "ERROR", "STOPPED"]


@dataclass(frozen=True, slots=True)
class QueryMetrics:
    """Counts since the query was started in this process.

    Invariant: rows_in == rows_used + rows_dropped + rows_failed.
    """

    rows_in: int = 0  # records read
    rows_used: int = 0  # records that gave at least one output row
    rows_dropped: int = 0  # records without one of their own: filtered, late, or replaced by a later change
    rows_failed: int = 0  # records that went to the processing log
    rows_out: int = 0  # records written to the sink
    bytes_in: int = 0
    batches: int = 0
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class QueryStatus:
    """A query at one moment. `lag` counts the records that are readable and not yet read, per source partition.

    `error`: why it stopped, or, where the state is RUNNING, what keeps it waiting: it tries again.
    """

    query_id: str
    state: QueryState
    metrics: QueryMetrics = field(default_factory=QueryMetrics)
    positions: Mapping[TopicPartition, int] = field(default_factory=dict)
    lag: Mapping[TopicPartition, int] = field(default_factory=dict)
    error: str | None = None


class Executor(Protocol):
    """Runs persistent queries. Methods may be called from any thread."""

    def start(self, query: PersistentQuery) -> None:
        """Begins or continues the query from its committed offsets; does nothing where it already runs."""
        ...

    def stop(self, query_id: str) -> None:
        """Ends the work and keeps everything that is needed to go on later."""
        ...

    def pause(self, query_id: str) -> None:
        """Returns once no batch is under way."""
        ...

    def resume(self, query_id: str) -> None: ...

    def drop(self, query_id: str) -> None:
        """Stops the query and removes its state, changelog and committed offsets. The sink's topic stays."""
        ...

    def status(self, query_id: str) -> QueryStatus:
        """Raises `UnknownQuery`."""
        ...

    def figures(self, query_id: str) -> QueryFigures | None:
        """What a query measures about its operators; None where nobody knows. Raises `UnknownQuery`."""
        ...

    def close(self) -> None:
        """Stops all queries; they go on when another executor starts them."""
        ...
