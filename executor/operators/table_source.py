"""A table's topic as changes: each record gives the row it replaces at -1 and the new one at +1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import duckdb
import numpy as np
import pyarrow as pa

from ...planner.schema import Schema
from ...sql.types import BIGINT, INTEGER, SqlType
from ..batch import ChangeBatch
from ..building import Operator
from ..state.store import StateStore
from .columns import (
    WINDOW,
    conform,
    flat,
    group,
    ints,
    key_types,
    last_of_group,
    number_within,
    previous_in_group,
    take,
    value_types,
    with_columns,
)


class TableSource(Operator):
    """In: one record per row: a +1 or a tombstone (`_null`). Out: changes that include the old rows.
    State: the row of each key.

    A tombstone for a key without a row gives no change.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        name: str,
        schema: Schema,
        windowed: bool,
        columns: Sequence[str] | None,
    ) -> None:
        types = value_types(schema)
        self._values = [name for name in types if columns is None or name in columns]
        key: dict[str, SqlType] = {"_part": INTEGER}
        key |= key_types(schema)
        key |= dict.fromkeys(WINDOW, BIGINT) if windowed else {}
        self._store = StateStore(connection, name, key, {name: types[name] for name in self._values} | {"_ts": BIGINT})
        self.stores = {name: self._store}

    def process(self, batch: ChangeBatch) -> ChangeBatch:
        rows = batch.rows
        if not len(rows):
            return batch
        keys = list(self._store.key)
        groups, first = group(rows, keys)
        found = self._store.read(take(rows.select(keys), first))
        old = self._old_rows(rows, groups, found, len(first))
        gone = flat(rows, "_null").to_numpy(zero_copy_only=False)

        last = last_of_group(groups, len(first))
        changed = rows.select([*keys, *self._values, "_ts"]).append_column("_deleted", pa.array(gone))
        self._store.change(take(changed, last))

        # Each record may give two rows, in the order -1, +1.
        sides = np.stack([old >= 0, ~gone], axis=1).reshape(-1)
        record = np.repeat(np.arange(len(rows)), 2)[sides]
        is_old = np.tile(np.array([True, False]), len(rows))[sides]
        pool = pa.concat_tables([rows.select(self._values), conform(found, rows.select(self._values).schema)])
        values = take(pool, np.where(is_old, old[record], record))
        out = with_columns(
            take(rows, record),
            {
                "_sub": pa.array(number_within(ints(rows, "_seq")[record])),
                "_weight": pa.array(np.where(is_old, -1, 1).astype(np.int8)),
                "_null": pa.array(np.zeros(len(record), dtype=np.bool_)),
                **{name: values.column(name) for name in self._values},
            },
        )
        return replace(batch, rows=out)

    def _old_rows(self, rows: pa.Table, groups: np.ndarray, found: pa.Table, size: int) -> np.ndarray:
        """For each record the row it replaces, as a position in the batch followed by the stored rows, or -1."""
        stored = np.full(size, -1, dtype=np.int64)
        stored[ints(found, "_index")] = np.arange(len(found), dtype=np.int64) + len(rows)
        before = previous_in_group(groups)
        gone = flat(rows, "_null").to_numpy(zero_copy_only=False)
        within = np.where(gone[before], -1, before)
        return np.where(before < 0, stored[groups], within)
