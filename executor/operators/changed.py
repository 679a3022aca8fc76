"""CHANGED: the rows that differ from the previous row of their key.

The state is only the last row of each key. A row that is left out equals the last emitted one. So only emitted rows
change the state, and batch boundaries make no difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import duckdb
import numpy as np
import pyarrow as pa

from ...planner.schema import Schema
from ...planner.steps.changed import Changed
from ...sql.types import INTEGER, SqlType
from ..batch import ChangeBatch
from ..building import Building, ChainNode, Operator, builds
from ..state.store import StateStore
from .columns import (
    Bools,
    batch_schema,
    conform,
    flat,
    group,
    ints,
    key_types,
    last_of_group,
    previous_in_group,
    take,
)


class ChangeFilter(Operator):
    """In and out: see the step `Changed`.
    State: the watched columns (`w0`…) of each key's last row.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        step: Changed,
        schema: Schema,
        extra: Sequence[str],
        columns: Sequence[str] | None,
    ) -> None:
        key: dict[str, SqlType] = {"_part": INTEGER}
        key |= key_types(schema)
        self._keys = list(key)
        self._read = [each.sql for each in step.watched]
        watched = {f"w{number}": each.type for number, each in enumerate(step.watched)}
        self._watched = list(watched)
        self._last = StateStore(connection, step.id, key, watched)
        self.stores = {step.id: self._last}
        self.schema, self.extra, self.columns = schema, tuple(extra), columns
        self._batch_schema = batch_schema(schema, extra, columns)

    def process(self, batch: ChangeBatch) -> ChangeBatch:
        rows = conform(batch.rows, self._batch_schema)
        there = np.flatnonzero(~flat(rows, "_null").to_numpy(zero_copy_only=False))
        compared = take(rows.select([*self._keys, *self._read]), there)
        given = there[self._changed(compared.rename_columns([*self._keys, *self._watched]))]
        return replace(batch, rows=rows if len(given) == len(rows) else take(rows, given))

    def _changed(self, rows: pa.Table) -> Bools:
        """Which rows differ from the previous row of their key. Stores the last row of each key."""
        if not len(rows):
            return np.empty(0, np.bool_)
        keys, first = group(rows, self._keys)
        found = self._last.read(take(rows.select(self._keys), first))
        stored = np.full(len(first), -1, np.int64)  # the position of each key's stored row, after the rows
        stored[ints(found, "_index")] = np.arange(len(rows), len(rows) + len(found))
        together = pa.concat_tables([rows.select(self._watched), found.select(self._watched)])
        values, _ = group(together, self._watched)  # equal numbers mean equal values; NULL equals NULL
        before = previous_in_group(keys)
        before = np.where(before >= 0, before, stored[keys])
        changed = (before < 0) | (values[: len(rows)] != values[before])
        last = last_of_group(keys, len(first))
        self._last.write(take(rows, last[(stored < 0) | (values[last] != values[stored])]))
        return changed


@builds(Changed)
def build(step: Changed, building: Building) -> ChainNode:
    below = building.node(step.input)
    operator = ChangeFilter(building.connection, step, below.schema, below.extra, below.columns)
    return building.chain(below, operator, step)
