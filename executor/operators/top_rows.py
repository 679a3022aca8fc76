"""Top-n of a stream: keeps only the first rows of each partition, and compares new rows with them.

With one row per partition, the row is found by the partition's key. Otherwise each row has a place in its partition. A
new row takes the place of a row that leaves, so it costs one written row, whatever its rank. Ranks are not stored: they
are computed from the kept rows (`ranked_rows.py`), so a row whose rank changes is not written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import duckdb
import numpy as np
import pyarrow as pa

from ...planner.schema import Schema
from ...planner.steps.top_rows import TopRows
from ...sql.types import BIGINT
from ..batch import ChangeBatch
from ..building import Building, ChainNode, Emit, Operator, builds
from ..state.key_index import Numbered
from ..state.store import StateStore
from .columns import (
    Ints,
    batch_schema,
    conform,
    flat,
    ints,
    number_within,
    take,
    with_values,
)
from .ranked_rows import Ranked, rank_rows
from .ranks.arrival_numbers import ARRIVAL, ArrivalNumbers
from .ranks.partition_columns import PartitionColumns
from .ranks.sort_columns import SortColumns
from .ranks.top_changes import TopChangesOperator
from .sort_words import sort_words

_PLACE = "_place"


@dataclass(frozen=True, slots=True)
class _Pool:
    """The kept rows of the touched partitions, then the new rows. `slots`: of the kept rows. `groups`: of all rows."""

    rows: pa.Table
    numbered: Numbered
    slots: Ints
    groups: Ints

    @property
    def known(self) -> int:
        return len(self.slots)


class TopRowsOperator(Operator):
    """In and out: see the step `TopRows`; a row's time is its own.
    State: the rows whose rank counts; with `numbered`, or several rows per partition, also their arrival numbers.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        step: TopRows,
        schema: Schema,
        extra: Sequence[str],
        columns: Sequence[str] | None,
        task_count: int,
        emit: Emit,
    ) -> None:
        self._step = step
        self._every = emit == "every"
        self._task_count = task_count
        kept = PartitionColumns(schema, extra, columns)
        self._input_schema = kept.input
        self._keys, self._values = list(kept.key), list(kept.values)
        self._sort = SortColumns(connection, step.call.order, self._input_schema)
        self._single = step.largest == 1 and step.call.function == "ROW_NUMBER"
        self._store = self._make_store(connection, kept)
        self._arrivals = ArrivalNumbers(connection, step.id) if ARRIVAL in self._store.value else None
        stores = [self._store, *([] if self._arrivals is None else [self._arrivals.store])]
        self.stores = {store.name: store for store in stores}
        self.schema, self.extra = step.schema, ()
        made = [f"v{position}" for position in range(len(schema.value), len(step.schema.value))]
        self.columns = kept.out(made)
        self._output_schema = batch_schema(step.schema, (), self.columns)

    def _make_store(self, connection: duckdb.DuckDBPyConnection, kept: PartitionColumns) -> StateStore:
        value = {**kept.values, **self._sort.kept, "_ts": BIGINT}
        if self._step.numbered or not self._single:
            value[ARRIVAL] = BIGINT
        key = kept.key if self._single else {**kept.key, _PLACE: BIGINT}
        return StateStore(connection, self._step.id, key, value)

    def process(self, batch: ChangeBatch) -> ChangeBatch:
        rows = with_values(conform(batch.rows, self._input_schema))
        if not len(rows):
            return replace(batch, rows=self._output_schema.empty_table())
        rows = self._sort.added(rows)
        pool = self._pool(rows if self._arrivals is None else self._arrivals.number(rows))
        ranked = self._ranked(pool)
        changes = self._changes(pool, ranked)
        self._remember(pool, ranked)
        return replace(batch, rows=changes)

    def _pool(self, rows: pa.Table) -> _Pool:
        keys = [flat(rows, name) for name in self._keys]
        if self._single:
            numbered, there = self._store.locate(keys)
            return _Pool(rows, numbered, numbered.slot[there], np.append(np.flatnonzero(there), numbered.group))
        numbered, groups, slots = self._store.locate_by(keys, self._keys)
        order = np.argsort(self._kept_ints(slots, ARRIVAL), kind="stable")
        return _Pool(rows, numbered, slots[order], np.append(groups[order], numbered.group))

    def _ranked(self, pool: _Pool) -> Ranked:
        """Ranks the rows. It reads only as many columns of the kept rows as are needed to decide."""
        for count in self._sort.looks:
            columns = [self._sort_column(pool, name) for name in self._sort.names[:count]]
            ranked = rank_rows(
                sort_words(columns, self._step.call.order[:count], len(pool.groups)),
                pool.groups,
                len(pool.numbered),
                pool.known,
                self._step.call.function,
                self._step.largest,
                exact=count == len(self._sort.names),
                every=self._every,
                old=self._step.emit_old,
            )
            if ranked is not None:
                return ranked
        raise AssertionError("all sort keys decide")

    def _sort_column(self, pool: _Pool, name: str) -> pa.Array:
        new = flat(pool.rows, name)
        if not pool.known:
            return new
        (kept,) = self._store.values_at(pool.slots, [name])
        return pa.concat_arrays([kept, new])

    def _kept_ints(self, slots: Ints, name: str) -> Ints:
        (column,) = self._store.values_at(slots, [name])
        return column.to_numpy(zero_copy_only=False)

    # -------------------------------------------------------------- output

    def _changes(self, pool: _Pool, ranked: Ranked) -> pa.Table:
        row, rank, weight, cause = (
            (ranked.row, ranked.rank, ranked.weight, ranked.cause) if self._every else self._net(pool, ranked)
        )
        if not len(row):
            return self._output_schema.empty_table()
        sequence = ints(pool.rows, "_seq")[cause - pool.known]
        out = self._rows(pool, row)
        columns = {name: out.column(name) for name in out.column_names}
        columns |= {
            "_seq": pa.array(sequence),
            "_sub": pa.array(number_within(sequence)),
            "_weight": pa.array(weight.astype(np.int8)),
            "_null": pa.array(np.zeros(len(row), np.bool_)),
            f"v{self._step.rank_position}": pa.array(rank),
        }
        if self._step.numbered:
            number = ints(out, ARRIVAL) * self._task_count + ints(out, "_part")
            columns[f"v{self._step.rank_position + 1}"] = pa.array(number)
        return conform(pa.table(columns), self._output_schema)

    def _net(self, pool: _Pool, ranked: Ranked) -> tuple[Ints, Ints, Ints, Ints]:
        """The net changes of the batch, in the form of the events of `Ranked`."""
        differ = ranked.before != ranked.after
        gone = np.flatnonzero(differ & (ranked.before > 0)) if self._step.emit_old else np.empty(0, np.int64)
        come = np.flatnonzero(differ & (ranked.after > 0))
        row = np.concatenate([gone, come])
        rank = np.concatenate([ranked.before[gone], ranked.after[come]])
        weight = np.repeat(np.array([-1, 1]), [len(gone), len(come)])
        cause = ranked.last[pool.groups[row]]
        order = np.lexsort((rank, weight, cause))
        return row[order], rank[order], weight[order], cause[order]

    def _rows(self, pool: _Pool, row: Ints) -> pa.Table:
        """The rows of the pool with these numbers."""
        names = [*self._keys, *self._values, "_ts", *([ARRIVAL] if self._step.numbered else [])]
        new = pool.rows.select(names)
        kept = np.flatnonzero(row < pool.known)
        if not len(kept):
            return take(new, row - pool.known)
        place = row - pool.known + len(kept)
        place[kept] = np.arange(len(kept))
        found = pa.table(self._store.values_at(pool.slots[row[kept]], names), schema=new.schema)
        return take(pa.concat_tables([found, new]), place)

    # -------------------------------------------------------------- what is kept

    def _remember(self, pool: _Pool, ranked: Ranked) -> None:
        come = pool.known + np.flatnonzero(ranked.after[pool.known :] > 0)
        if not len(come):
            return
        rows = take(pool.rows, come - pool.known)
        groups = pool.groups[come]
        if self._single:
            self._store.write_at(pool.numbered.slot[groups], rows.select([*self._store.key, *self._store.value]))
            return
        gone = np.flatnonzero(ranked.after[: pool.known] == 0)
        places, left = self._places(pool, groups, gone)
        written = rows.append_column(_PLACE, pa.array(places)).append_column("_deleted", pa.array(places < 0))
        keys = pa.table(self._store.values_at(pool.slots[left], list(self._store.key)), schema=self._store.key_schema)
        deleted = keys.append_column("_deleted", pa.array(np.ones(len(left), np.bool_)))
        schema = self._store.change_schema
        self._store.change(pa.concat_tables([conform(written, schema), conform(deleted, schema)]))

    def _places(self, pool: _Pool, groups: Ints, gone: Ints) -> tuple[Ints, Ints]:
        """Out: a place for each new row: that of a kept row of its group that is gone, or else one after all places;
        and the gone rows whose place was not reused. In: `groups`: of the new rows; `gone`: the kept rows that
        leave."""
        kept_groups = pool.groups[: pool.known]
        kept_places = self._kept_ints(pool.slots, _PLACE)
        behind = np.zeros(len(pool.numbered), np.int64)
        np.maximum.at(behind, kept_groups, kept_places + 1)
        gone = gone[np.argsort(kept_groups[gone], kind="stable")]
        free = np.bincount(kept_groups[gone], minlength=len(behind))
        first = np.cumsum(free) - free
        number = _number_in_group(groups)
        taken = number < free[groups]
        places = behind[groups] + number - free[groups]
        places[taken] = kept_places[gone[first[groups[taken]] + number[taken]]]
        came = np.bincount(groups, minlength=len(behind))
        return places, gone[_number_in_group(kept_groups[gone]) >= came[kept_groups[gone]]]


def _number_in_group(groups: Ints) -> Ints:
    """For each row, the number of earlier rows in its group."""
    order = np.argsort(groups, kind="stable")
    number = np.empty(len(groups), np.int64)
    number[order] = number_within(groups[order])
    return number


@builds(TopRows)
def build(step: TopRows, building: Building) -> ChainNode:
    below = building.node(step.input)
    inputs = building.connection, step, below.schema, below.extra, below.columns
    if step.identity:
        return building.chain(below, TopChangesOperator(*inputs, building.emit), step)
    operator = TopRowsOperator(*inputs, step.input.task_count, building.emit)
    return building.chain(below, operator, step)
