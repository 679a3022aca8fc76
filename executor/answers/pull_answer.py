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
        self._load(self._shape.append(pa.field("_place", pa.int64())).empty_table(), "CREATE TABLE answer AS")
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
        """Inserts the pending rows into the relation."""
        if self._pending:
            self._load(pa.concat_tables(self._pending), "INSERT INTO answer BY NAME")
            self._pending, self._pending_rows = [], 0
        if self._keyed:
            self._keep_latest()
        self.row_count = self._connection.sql("SELECT count(*) FROM answer").fetchall()[0][0]

    def _load(self, rows: pa.Table, statement: str) -> None:
        self._connection.register("arrived", readable(rows))
        self._connection.execute(f"{statement} SELECT * FROM arrived")
        self._connection.unregister("arrived")

    def _keep_latest(self) -> None:
        by = f"PARTITION BY {', '.join(self._keys)} " if self._keys else ""
        self._connection.execute(
            f"CREATE OR REPLACE TABLE answer AS SELECT * EXCLUDE _latest FROM (SELECT *, "
            f"row_number() OVER ({by}ORDER BY _place DESC) = 1 AS _latest FROM answer) WHERE _latest AND _weight > 0"
        )
