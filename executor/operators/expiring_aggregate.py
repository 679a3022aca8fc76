"""An aggregation with a TTL: a group expires when no row was added to it for that long. Its next row starts it anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import duckdb
import numpy as np
import pyarrow as pa

from ...planner.schema import Schema
from ...planner.steps.aggregate import Aggregate
from ...sql.types import INTEGER, SqlType
from ..batch import ChangeBatch
from ..building import Emit, Operator
from ..state.connection import Guard
from .aggregate import Aggregator
from .columns import (
    Ints,
    batch_schema,
    conform,
    ints,
    key_names,
    key_types,
    take,
    with_columns,
    with_values_and_keys,
)
from .expiry import TaskTime, ended_rows, numbered
from .lifetimes import Lifetimes


class ExpiringAggregator(Operator):
    """In:    as for `Aggregator`, without windows.
    Out:   as for `Aggregator`, and a -1 for each group that expires; its rowtime is the time of expiry.
    State: the state of the groups, and the largest rowtime of each.

    A row that is already too old when it arrives is added to an existing group but creates no group.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        step: Aggregate,
        schema: Schema,
        extra: Sequence[str],
        columns: Sequence[str] | None,
        properties: Mapping[str, str],
        emit: Emit,
        guard: Guard,
    ) -> None:
        assert step.ttl_ms is not None and step.window is None
        self._groups = Aggregator(connection, step, schema, extra, columns, properties, emit, guard)
        self.schema, self.extra = self._groups.schema, self._groups.extra
        self._input_schema = batch_schema(schema, extra, columns)
        self._output_schema = batch_schema(step.schema, self.extra)
        self._keys = ["_part", *key_names(step.schema)]
        key: dict[str, SqlType] = {"_part": INTEGER}
        key |= key_types(step.schema)
        self._lifetimes = Lifetimes(connection, f"{step.id}.ttl", key, step.ttl_ms, cumulative=True)
        self._time = TaskTime(connection, f"{step.id}.ttl_time", extra)
        self.stores = {
            **self._groups.stores,
            f"{step.id}.ttl": self._lifetimes.store,
            **self._time.stores,
        }

    def process(self, batch: ChangeBatch) -> ChangeBatch:
        rows = with_values_and_keys(conform(batch.rows, self._input_schema), self._keys[1:])
        at_rows, after = self._time.advance(batch, rows)
        life = self._lifetimes.advance(rows, np.ones(len(rows), np.bool_), at_rows, after)
        left = life.ends.append_column("_rank", pa.array(np.arange(len(life.ends), dtype=np.int64)))
        results: list[pa.Table] = []
        forgotten: list[pa.Table] = []
        # Split the batch so that no group restarts within a stretch. Batch boundaries do not change results.
        for begin, end in _stretches(life.restarts):
            due = ints(left, "_cause") < begin
            forgotten.append(self._forgotten(left.filter(pa.array(due)), rows))
            left = left.filter(pa.array(~due))
            stretch = rows.slice(begin, end - begin).filter(pa.array(life.lives[begin:end]))
            results.append(self._groups.process(ChangeBatch(stretch, batch.stream_time_ms)).rows)
        forgotten.append(self._forgotten(left, rows))
        return replace(batch, rows=self._in_order(pa.concat_tables(forgotten), pa.concat_tables(results)))

    def _forgotten(self, ends: pa.Table, rows: pa.Table) -> pa.Table:
        found = self._groups.take_out(ends.select(self._keys))
        index = ints(found, "_index")
        gone = ended_rows(take(ends, index), rows, self._output_schema)
        results = {name: found.column(name) for name in found.column_names if name in gone.column_names}
        shown = with_columns(gone, {**results, "_null": pa.array(np.zeros(len(gone), np.bool_))})
        return conform(shown, self._output_schema).append_column("_rank", take(ends, index).column("_rank"))

    def _in_order(self, forgotten: pa.Table, results: pa.Table) -> pa.Table:
        """Both by `_seq`; at equal `_seq`, expired groups come before new results."""
        if not len(forgotten):
            return results
        rank = np.concatenate([ints(forgotten, "_rank"), len(forgotten) + np.arange(len(results), dtype=np.int64)])
        together = pa.concat_tables([forgotten.drop_columns(["_rank"]), results])
        return numbered(take(together, np.lexsort((rank, ints(together, "_seq")))))


def _stretches(restarts: Ints) -> list[tuple[int, int]]:
    """Splits the batch into stretches, at least one. No group that restarts in a stretch has earlier rows in it."""
    borders = [0]
    for row in np.flatnonzero(restarts >= 0).tolist():
        if restarts[row] >= borders[-1]:
            borders.append(row)
    return list(zip(borders, [*borders[1:], len(restarts)], strict=True))
