"""Collects the rows of an answer: nets the changes of a table, and keeps the rows of a stream in order."""

from __future__ import annotations

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..operators.statement import readable
from ..updates import settle

_PENDING_ROWS_MAX = 500_000


class AnswerRelation:
    """The relation `answer` on `connection`: the columns of the rows, and `_place`, which increases in their order.

    In: `keyed`: whether the rows are changes of a table. Then a later row of a key replaces or deletes the earlier one.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, shape: pa.Schema, *, keyed: bool) -> None:
        self._connection = connection
        self._keyed = keyed
        kept = [name for name in shape.names if name[0] in "kv" or name in ("_ts", "_ws", "_we", "_weight")]
        self._shape = pa.schema([shape.field(name) for name in kept])
        self._keys = [name for name in kept if name[0] == "k"] + [name for name in ("_ws", "_we") if name in kept]
        self._pending: list[pa.Table] = []
        self._pending_rows = 0
        self._next = 0
        self._exists = False  # the relation
        self.row_count = 0  # of the relation and the pending rows

    def add(self, rows: pa.Table) -> None:
        """Adds the pipeline's output for one batch."""
        rows = settle(rows) if self._keyed else rows.filter(pc.invert(rows["_null"]))
        if not rows.num_rows:
            return
        places = np.arange(self._next, self._next + rows.num_rows, dtype=np.int64)
        self._pending.append(rows.select(self._shape.names).append_column("_place", pa.array(places)))
        self._next += rows.num_rows
        self._pending_rows += rows.num_rows
        self.row_count += rows.num_rows
        if self._pending_rows >= _PENDING_ROWS_MAX:
            self.settle()

    def settle(self) -> None:
        """Moves the pending rows into the relation, and makes it if there is none. One statement does all of it where
        it can, because each costs 2 to 3 ms, as much as a small query."""
        if self._exists and not self._pending:
            return
        shape = self._shape.append(pa.field("_place", pa.int64()))
        self._connection.register("arrived", readable(pa.concat_tables([shape.empty_table(), *self._pending])))
        self._connection.execute(self._taking_in())
        self._connection.unregister("arrived")
        self._pending, self._pending_rows, self._exists = [], 0, True
        self.row_count = self._connection.sql("SELECT count(*) FROM answer").fetchall()[0][0]

    def _taking_in(self) -> str:
        if not self._keyed:
            return f"{'INSERT INTO answer BY NAME' if self._exists else 'CREATE TABLE answer AS'} FROM arrived"
        by = f"PARTITION BY {', '.join(self._keys)} " if self._keys else ""
        rows = "(FROM answer UNION ALL BY NAME FROM arrived)" if self._exists else "arrived"
        return (
            "CREATE OR REPLACE TABLE answer AS SELECT * EXCLUDE _latest FROM (SELECT *, "
            f"row_number() OVER ({by}ORDER BY _place DESC) = 1 AS _latest FROM {rows}) WHERE _latest AND _weight > 0"
        )
