"""Lifetimes of a table's rows that expire if they are not updated (TTL).

A row expires when its task's stream time reaches its rowtime + TTL. It expires at the first input row, of any key, at
which this is true, so batch boundaries change nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa

from ...sql.functions.aggregation.aggregate_kernels import running_max
from ...sql.types import BIGINT, SqlType
from ..state.store import StateStore
from .columns import Bools, Ints, group, ints, last_of_group, latest_in_group, previous_in_group, take, with_columns
from .stream_time import NEVER

FAR = 1 << 62


@dataclass(frozen=True, slots=True)
class Life:
    """What happens to the rows of a batch.

    `lives`: the rows that appear; the others were too old when they arrived, or are deletions. `was_there`: whether the
    key had a row immediately before. `restarts`: if a row appears after an earlier row of its key in this batch has
    expired, that earlier row; else -1. `ends`: one row for each row that expires, with the key columns, `_due` (time
    of expiry), `_row` (the row of the batch at which it expires; the number of rows if it expires at the end) and
    `_cause` (the row of the batch that expires; -1 if it is older than the batch).
    """

    lives: Bools
    was_there: Bools
    restarts: Ints
    ends: pa.Table


class Lifetimes:
    """The rowtimes of a table's rows, by key. State: one row per key.

    In: `key`: the columns of a key, `_part` first. `cumulative`: the time of a row is the largest rowtime of all its
    input rows, as for groups; else it is the rowtime of its last version.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        name: str,
        key: Mapping[str, SqlType],
        ttl_ms: int,
        *,
        cumulative: bool = False,
    ) -> None:
        self.store = StateStore(connection, name, key, {"_ts": BIGINT})
        self._key = list(key)
        self._ttl_ms = ttl_ms
        self._cumulative = cumulative
        self._oldest: dict[int, int] = {}  # per task a lower bound of the rowtimes in the store; absent if unknown

    def advance(self, rows: pa.Table, appears: Bools, at_rows: Ints, after: Mapping[int, int]) -> Life:
        """Applies a batch.

        In: the rows in their order; which of them appear; `at_rows`: the stream time at each row; `after`: the stream
        time of each task after the batch.
        """
        groups, first = group(rows, self._key) if len(rows) else (np.empty(0, np.int64), np.empty(0, np.int64))
        stored = self._stored(take(rows.select(self._key), first))
        times = self._times(groups, ints(rows, "_ts"), appears, stored)
        due = np.where(appears, times + self._ttl_ms, FAR)
        lives = appears & (due > at_rows)
        before = previous_in_group(groups)
        has_before = before >= 0
        kept_until = np.where(stored > NEVER, stored + self._ttl_ms, NEVER)
        until = np.where(has_before, np.where(lives[before], due[before], NEVER), kept_until[groups])
        alive = latest_in_group(groups, lives)  # rows in between that were too old make no difference
        restarts = np.where(lives & (alive >= 0) & (due[alive] <= at_rows), alive, -1)
        part = ints(rows, "_part")
        final = _of_tasks(part, after)
        last = last_of_group(groups, len(first))
        stays = lives[last] & (due[last] > final[last])
        self._write(take(rows.select(self._key), first), times[last], stays)
        ends = [
            self._ends(rows, np.flatnonzero(lives & (due <= _next(groups, at_rows, final))), due),
            self._stored_ends(rows, first, kept_until, at_rows),
            *(self._due(task, time) for task, time in sorted(after.items())),
        ]
        return Life(lives, until > at_rows, restarts, self._with_rows(pa.concat_tables(ends), part, at_rows))

    # -------------------------------------------------------------- state

    def _stored(self, keys: pa.Table) -> Ints:
        found = self.store.read(keys)
        times = np.full(len(keys), NEVER, dtype=np.int64)
        times[ints(found, "_index")] = ints(found, "_ts")
        return times

    def _write(self, keys: pa.Table, times: Ints, stays: Bools) -> None:
        if not len(keys):
            return
        rows = keys.append_column("_ts", pa.array(times)).append_column("_deleted", pa.array(~stays))
        self.store.change(rows)
        parts = ints(keys, "_part")
        for task in np.unique(parts[stays]).tolist():
            if task in self._oldest:
                self._oldest[task] = min(self._oldest[task], int(times[stays & (parts == task)].min()))

    def _due(self, task: int, time: int) -> pa.Table:
        """Removes the expired rows from the store and returns them. The batch contains none of their keys."""
        if self._oldest.get(task, NEVER) + self._ttl_ms > time:
            return self._no_ends()
        rows = self.store.rows(task)
        times = ints(rows, "_ts")
        gone = times + self._ttl_ms <= time
        self._oldest[task] = int(times[~gone].min(initial=FAR - self._ttl_ms - 1))
        if not gone.any():
            return self._no_ends()
        ended = rows.filter(pa.array(gone))
        self.store.delete(ended.select(self._key))
        return self._ended(ended.select(self._key), times[gone] + self._ttl_ms, np.full(len(ended), -1))

    # -------------------------------------------------------------- expired rows

    def _times(self, groups: Ints, times: Ints, appears: Bools, stored: Ints) -> Ints:
        if not self._cumulative or not len(times):
            return times
        return running_max(groups, np.where(appears, times, NEVER), stored.copy())

    def _ends(self, rows: pa.Table, causes: Ints, due: Ints) -> pa.Table:
        return self._ended(take(rows.select(self._key), causes), due[causes], causes)

    def _stored_ends(self, rows: pa.Table, first: Ints, kept_until: Ints, at_rows: Ints) -> pa.Table:
        """Stored rows that have expired when the first row of their key arrives in the batch."""
        gone = (kept_until > NEVER) & (kept_until <= at_rows[first])
        return self._ended(
            take(rows.select(self._key), first[gone]), kept_until[gone], np.full(int(gone.sum()), -1, np.int64)
        )

    def _ended(self, keys: pa.Table, due: Ints, cause: Ints) -> pa.Table:
        return with_columns(keys, {"_due": pa.array(due, pa.int64()), "_cause": pa.array(cause, pa.int64())})

    def _no_ends(self) -> pa.Table:
        empty = np.empty(0, np.int64)
        return self._ended(self.store.key_schema.empty_table(), empty, empty)

    def _with_rows(self, ends: pa.Table, part: Ints, at_rows: Ints) -> pa.Table:
        """Adds `_row`, and sorts the expired rows by row, time and key."""
        parts, due = ints(ends, "_part"), ints(ends, "_due")
        row = np.full(len(ends), len(part), dtype=np.int64)
        for task in np.unique(parts).tolist():
            own = np.flatnonzero(part == task)
            chosen = parts == task
            place = np.searchsorted(at_rows[own], due[chosen])
            row[chosen] = np.append(own, len(part))[place]
        ends = ends.append_column("_row", pa.array(row))
        simple = [name for name in self._key if not pa.types.is_nested(ends.schema.field(name).type)]
        return ends.sort_by([(name, "ascending") for name in ("_row", "_due", *simple)])


def _next(groups: Ints, at_rows: Ints, final: Ints) -> Ints:
    """The stream time at the next row of the same group, or after the batch."""
    before = previous_in_group(groups)
    following = final.copy()
    following[before[before >= 0]] = at_rows[before >= 0]
    return following


def _of_tasks(part: Ints, times: Mapping[int, int]) -> Ints:
    """The time of each row's task."""
    out = np.full(len(part), NEVER, dtype=np.int64)
    for task in np.unique(part).tolist():
        out[part == task] = times.get(task, NEVER)
    return out
