"""When the local state file commits: seldom, behind the log, and beside what the query does next.

A commit has three moments. After a batch the operators' thread takes what the tables have yet to get (`settle`): that
looks into the stores, so no other batch may be computed meanwhile. When the log has the batch, the file may have it,
too (`contain`). Writing it then needs neither the stores nor the operators' connection, and is left to another thread:
while all waited for it, it took a quarter of the time of queries that keep wide rows.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial

from ...logcore.failpoints import fp
from ..pipeline import Pipeline
from ..work_pool import Work, work_pool
from .state_file import StateFile
from .state_table import TableSettlement

_EVERY_S = 1.0
_FEW_ROWS = 10_000  # a restart replays them in 10 ms: they wait
_FEW_TIMES = 10  # so many times as long
_EVERY_ROWS = 500_000  # of the changelog, so that what a restart replays stays bounded
_WAIT_ROWS = 2 * _EVERY_ROWS  # with so many, a batch waits for the commit that is under way

Settlements = Sequence[TableSettlement]


class StateCommits:
    """One DuckDB transaction around several batches.

    A commit of DuckDB's costs a write and a sync, and what a store is told only then it gets once per key and not once
    per batch: for a windowed aggregate a commit per batch cost as much as all its other work. Whoever is killed in
    between replays a little more of the changelog.

    Whoever gives up drops it (`drop`), and closes the file: that stays as it was at the last commit.

    `begin` and `settle` are for the operators' thread, `contain` for the threads that write, one after the other and in
    the order of the batches.
    """

    def __init__(self, state: StateFile, pipeline: Pipeline) -> None:
        self._state = state
        self._pipeline = pipeline
        self._applied: dict[int, int] = {}
        self._rows = 0
        self._open = False  # batches were computed since `settle`
        self._on_its_way = False  # `settle` gave something that `contain` has not got
        self._under_way: Work[None] | None = None  # the last commit that was left to another thread
        self._settled_at = time.monotonic()

    def begin(self) -> None:
        """Before a batch is computed."""
        self._open = self._open or bool(self._pipeline.stores)

    def settle(self) -> Settlements | None:
        """What the file has yet to get, after a batch; None where no commit is due. Raises what made the last commit
        fail."""
        if not self._is_due:
            return None
        settlements = self._take()
        self._on_its_way = True
        return settlements

    def contain(
        self, applied: Mapping[int, int], rows: int, settlements: Settlements | None, *, may_go_on: bool
    ) -> None:
        """A batch is committed in the log. In: the changelog's offsets after it; how many rows it wrote there; what
        `settle` gave after it; whether the file may be written by another thread. Raises `duckdb.Error`."""
        self._applied.update(applied)
        self._rows += rows
        if settlements is None:
            return
        write = self._write(settlements)
        if may_go_on:
            self._under_way = work_pool().begin(write)
        else:
            write()
        self._on_its_way = False

    @property
    def due_s(self) -> float:
        """When it commits by the clock (`time.monotonic`); 0 where there is nothing to commit. A commit costs
        about half of what a batch of one record does, and a query that gets one a second would commit each."""
        if not self._open:
            return 0.0
        return self._settled_at + _EVERY_S * (_FEW_TIMES if self._rows < _FEW_ROWS else 1)

    def commit(self) -> None:
        """Returns when the file has everything. Only while every batch that was computed is committed in the log.
        Raises `duckdb.Error`."""
        self._wait()
        if self._open:
            self._write(self._take())()

    def drop(self) -> None:
        """Returns when no commit is under way. Only while no batch is written."""
        if self._under_way is not None:
            self._under_way.drop()

    @property
    def _is_due(self) -> bool:
        if not self._open or self._on_its_way:
            return False
        if self._under_way is not None and not self._under_way.is_over:
            return self._rows >= _WAIT_ROWS
        return self._rows >= _EVERY_ROWS or time.monotonic() >= self.due_s

    def _take(self) -> Settlements:
        self._wait()
        self._state.clear_laid_aside()
        self._open, self._settled_at = False, time.monotonic()
        return self._pipeline.take_settlements()

    def _wait(self) -> None:
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            under_way.result()

    def _write(self, settlements: Settlements) -> partial[None]:
        applied, rows = self._applied, self._rows
        self._applied, self._rows = {}, 0
        return partial(self._commit_file, settlements, applied, rows)

    def _commit_file(self, settlements: Settlements, applied: Mapping[int, int], rows: int) -> None:
        fp("query.store_commit")
        self._state.write(settlements, applied, rows)
        fp("query.store_committed")
