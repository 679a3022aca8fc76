"""Commits the local state file: rarely, after the log, and in parallel with the query's next batches.

A commit has three stages. After a batch, the operators' thread takes the settlements of the tables (`settle`). This
reads the stores, so no other batch may be computed at that time. Once the batch is committed in the log, the file may
contain it, too (`contain`). Writing the file needs neither the stores nor the operators' connection, so another thread
does it: when the query waited for it, it took a quarter of the time of queries that keep wide rows.
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
_FEW_ROWS = 10_000  # with fewer rows, the commit waits longer: a restart replays them in 10 ms
_FEW_TIMES = 10  # this many times as long
_EVERY_ROWS = 500_000  # of the changelog, so that a restart has a bounded number of rows to replay
_WAIT_ROWS = 2 * _EVERY_ROWS  # from this many rows on, a batch waits for the running commit

Settlements = Sequence[TableSettlement]


class StateCommits:
    """One DuckDB transaction around several batches.

    A commit of DuckDB costs a write and a sync, and with fewer commits a table gets a row once per key instead of once
    per batch: for a windowed aggregate, a commit per batch cost as much as all its other work. A process that is killed
    between commits replays a little more of the changelog.

    To give up, call `drop` and close the file: it stays as it was at the last commit.

    The operators' thread calls `begin` and `settle`. The writing threads call `contain`, one at a time and in the order
    of the batches.
    """

    def __init__(self, state: StateFile, pipeline: Pipeline) -> None:
        self._state = state
        self._pipeline = pipeline
        self._applied: dict[int, int] = {}
        self._rows = 0
        self._open = False  # batches were computed since `settle`
        self._on_its_way = False  # `settle` returned settlements that `contain` has not received yet
        self._under_way: Work[None] | None = None  # the last commit that was given to another thread
        self._settled_at = time.monotonic()

    def begin(self) -> None:
        """Call it before a batch is computed."""
        self._open = self._open or bool(self._pipeline.stores)

    def settle(self) -> Settlements | None:
        """The settlements that the file does not have yet, after a batch; None if no commit is due. Raises the error of
        the last commit, if it failed."""
        if not self._is_due:
            return None
        settlements = self._take()
        self._on_its_way = True
        return settlements

    def contain(
        self, applied: Mapping[int, int], rows: int, settlements: Settlements | None, *, may_go_on: bool
    ) -> None:
        """Notes that a batch is committed in the log. In: the changelog's offsets after it; how many rows it wrote
        there; the result of `settle` after it; whether another thread may write the file. Raises `duckdb.Error`."""
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
        """The time (`time.monotonic`) of the next commit; 0 if there is nothing to commit. A commit costs about half as
        much as a batch of one record, and a query that gets one record per second would commit each of them."""
        if not self._open:
            return 0.0
        return self._settled_at + _EVERY_S * (_FEW_TIMES if self._rows < _FEW_ROWS else 1)

    def commit(self) -> None:
        """Commits everything, and then returns. Call it only while every computed batch is committed in the log. Raises
        `duckdb.Error`."""
        self._wait()
        if self._open:
            self._write(self._take())()

    def drop(self) -> None:
        """Drops a commit that has not begun, and returns when none is running. Call it only while no batch is
        written."""
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
