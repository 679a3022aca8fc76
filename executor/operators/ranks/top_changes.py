"""Top-n of a table: keeps all rows of each partition, because when a row leaves, the next one moves up.

The output of a change, or of a batch, is the difference between the first rows of the touched partitions before and
after it. These come from ordered rows (`ordered_rows.py`), however many rows a partition has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import duckdb
import numpy as np
import pyarrow as pa

from ....planner.schema import Schema
from ....planner.steps.top_rows import TopRows
from ....sql.types import BIGINT
from ...batch import ChangeBatch
from ...building import Emit, Operator
from ...state.key_hash import key_hashes
from ...state.key_index import KeyIndex, slots_of
from ...state.store import StateStore
from ..columns import (
    batch_schema,
    conform,
    flat,
    ints,
    last_of_group,
    number_within,
    take,
    with_columns,
    with_values,
)
from ..statement import BatchStatement
from .arrival_numbers import ARRIVAL, ArrivalNumbers
from .ordered_rows import OrderedRows, RankChanges
from .partition_columns import PartitionColumns
from .sort_bytes import SortBytes, sort_bytes
from .sort_columns import SortColumns


class TopChangesOperator(Operator):
    """In:    a table's changes with their old rows, keyed by their partition.
    Out:   see the step `TopRows`: the effect of each change under its `_seq` (`every`), or the net effect of the batch;
           a row's time is its own.
    State: the rows of each partition with the number of their arrival in the task, and the largest such number.

    Rows with the same identity are versions of one row. A row that changes gets a new arrival number.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        step: TopRows,
        schema: Schema,
        extra: Sequence[str],
        columns: Sequence[str] | None,
        emit: Emit,
    ) -> None:
        self._step = step
        self._every = emit == "every"
        kept = PartitionColumns(schema, extra, columns)
        self._input_schema = kept.input
        self._keys, self._values = list(kept.key), list(kept.values)
        ids = [f"i{i}" for i in range(len(step.identity))]
        made = [f"({each.sql})::{each.type.duckdb} AS {name}" for name, each in zip(ids, step.identity, strict=True)]
        sql = f"SELECT *, {', '.join(made)} FROM {{input}}"
        self._sort = SortColumns(connection, step.call.order, self._input_schema)
        computed = [(name, type_.arrow) for name, type_ in self._sort.kept.items()]
        self._identify = BatchStatement(connection, sql, {"input": pa.schema([*self._input_schema, *computed])})
        key = {**kept.key, **dict(zip(ids, (each.type for each in step.identity), strict=True))}
        value = {**kept.values, **self._sort.kept, ARRIVAL: BIGINT, "_ts": BIGINT}
        self._rows = StateStore(connection, step.id, key, value)
        self._arrivals = ArrivalNumbers(connection, step.id)
        self.stores = {store.name: store for store in (self._rows, self._arrivals.store)}
        self.schema, self.extra = step.schema, ()
        self.columns = kept.out([f"v{step.rank_position}"])
        self._output_schema = batch_schema(step.schema, (), self.columns)
        self._shown = [*self._keys, *self._values, ARRIVAL, "_ts"]
        self._partitions = KeyIndex()
        self._ordered: OrderedRows | None = None
        self._at = (-1, -1)

    def process(self, batch: ChangeBatch) -> ChangeBatch:
        rows = with_values(conform(batch.rows, self._input_schema))
        if not len(rows):
            return replace(batch, rows=self._output_schema.empty_table())
        ordered = self._in_order()
        rows = self._arrivals.number(self._identify.run(input=self._sort.added(rows)))
        numbered, known = self._rows.locate([flat(rows, name) for name in self._rows.key])
        comes = ints(rows, "_weight") > 0
        sequence = ints(rows, "_seq")
        runs = sequence if self._every else np.full(len(rows), sequence.max())
        partitions = self._partitions.number(key_hashes([flat(rows, name) for name in self._keys]))
        groups, slots = partitions.slot[partitions.group], numbered.slot[numbered.group]
        changes = ordered.change(slots, groups, comes, self._sort_bytes(rows), runs)
        out = self._output(rows, changes)
        last = last_of_group(numbered.group, len(numbered))
        changed = np.flatnonzero(known | comes[last])
        written = take(rows, last[changed]).append_column("_deleted", pa.array(~comes[last[changed]]))
        self._rows.change_at(numbered.slot[changed], written)
        self._at = (self._rows.version, self._rows.numbering)
        return replace(batch, rows=out)

    def _in_order(self) -> OrderedRows:
        """All rows in order: those in memory, or loaded again if the store changed."""
        if self._ordered is None or self._at != (self._rows.version, self._rows.numbering):
            self._ordered = ordered = OrderedRows(self._step.call.function, self._step.largest)
            self._partitions = KeyIndex()
            names = dict.fromkeys([*self._keys, *self._sort.names, ARRIVAL])  # a column may occur twice
            for slots, rows in self._rows.pieces(list(names)):
                numbered = self._partitions.number(key_hashes([flat(rows, name) for name in self._keys]))
                ordered.load(slots, slots_of(numbered), self._sort_bytes(rows))
            self._at = (self._rows.version, self._rows.numbering)
        return self._ordered

    def _sort_bytes(self, rows: pa.Table) -> SortBytes:
        columns = [flat(rows, name) for name in self._sort.names]
        return sort_bytes(columns, self._step.call.order, ints(rows, ARRIVAL))

    def _output(self, rows: pa.Table, changes: RankChanges) -> pa.Table:
        """For each run, first all rows at -1, then all rows at +1. Call it before the rows are written."""
        stored = np.flatnonzero(changes.row < 0)
        old = pa.table(self._rows.values_at(changes.slot[stored], self._shown), names=self._shown)
        place = changes.row + len(old)
        place[stored] = np.arange(len(old))
        arrivals = np.concatenate([ints(old, ARRIVAL), ints(rows, ARRIVAL)])[place]
        order = np.lexsort((arrivals, changes.place, changes.weight, changes.run))
        shown = take(pa.concat_tables([old, conform(rows.select(self._shown), old.schema)]), place[order])
        run = changes.run[order]
        columns = {
            "_seq": pa.array(run),
            "_sub": pa.array(number_within(run)),
            "_weight": pa.array(changes.weight[order].astype(np.int8)),
            "_null": pa.array(np.zeros(len(order), np.bool_)),
            f"v{self._step.rank_position}": pa.array(changes.rank[order]),
        }
        return conform(with_columns(shown, columns), self._output_schema)
