"""When the local state file commits: seldom, and never before the log did."""

from __future__ import annotations

import time
from collections.abc import Mapping

from ..pipeline import Pipeline
from .state_file import StateFile

_EVERY_S = 1.0
_FEW_ROWS = 10_000  # a restart replays them in 10 ms: they wait
_FEW_TIMES = 10  # so many times as long
_EVERY_ROWS = 500_000  # of the changelog, so that what a restart replays stays bounded


class StateCommits:
    """One DuckDB transaction around several batches.

    A commit of DuckDB's costs a write and a sync, and what a store is told only then it gets once per key and not once
    per batch: for a windowed aggregate a commit per batch cost as much as all its other work. Whoever is killed in
    between replays a little more of the changelog.

    Closing the connection without `commit` leaves the file as it was, and that is the way out of an error: after one
    DuckDB's COMMIT would silently be a ROLLBACK.
    """

    def __init__(self, state: StateFile, pipeline: Pipeline) -> None:
        self._state = state
        self._pipeline = pipeline
        self._applied: dict[int, int] = {}
        self._rows = 0
        self._open = False
        self._committed_at = time.monotonic()

    def begin(self) -> None:
        """Before a batch is computed."""
        if not self._open and self._pipeline.stores:
            self._state.connection.execute("BEGIN")
            self._open = True

    def contain(self, applied: Mapping[int, int], rows: int) -> None:
        """A batch is committed in the log. In: the changelog's offsets after it, and how many rows it wrote there."""
        self._applied.update(applied)
        self._rows += rows

    @property
    def is_due(self) -> bool:
        return self._open and (self._rows >= _EVERY_ROWS or time.monotonic() >= self.due_s)

    @property
    def due_s(self) -> float:
        """When it commits by the clock (`time.monotonic`); 0 where there is nothing to commit. A commit costs
        about half of what a batch of one record does, and a query that gets one a second would commit each."""
        if not self._open:
            return 0.0
        return self._committed_at + _EVERY_S * (_FEW_TIMES if self._rows < _FEW_ROWS else 1)

    def commit(self) -> None:
        """Only while every batch that was computed is committed in the log."""
        if not self._open:
            return
        self._pipeline.settle()
        self._state.commit(self._applied, self._rows)
        self._open = False
        self._applied, self._rows, self._committed_at = {}, 0, time.monotonic()
