"""The rows of a store in DuckDB: an append-only table from which the store is loaded when it is opened.

Each row has an ascending number; of a key's rows, the one with the highest number counts. Updating in place would cost
a scan of the whole table per batch, and a primary key 2.5 times the memory (1M keys: 13 ms for 1 000 updates, 129 MB;
appending: 1.5 ms, 50 MB).

A `TableSettlement` has the changes of a store since the table was last written. The operators' thread makes it, and the
thread that writes the file applies it, at the same time as later batches or afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from ...sql.identifiers import quoted_for_duckdb
from ...sql.types import SqlType
from ..operators.columns import Ints
from ..operators.statement import BatchStatement, execute

NUMBER = "_version"
_LOAD_ROWS = 100_000


@dataclass(frozen=True, slots=True)
class TableSettlement:
    """Changes to apply to a table, in this order: delete the rows of tasks whose column is less than a bound
    (`expired`); append `rows`; and, unless `kept` is None, keep only rows with these numbers."""

    table: StateTable
    expired: Mapping[tuple[int, str], int]
    rows: Sequence[pa.Table]
    kept: Ints | None

    def apply(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Applies the changes in the caller's transaction. In: `connection`: to the table's database, used by this
        thread only."""
        for (part, column), below in self.expired.items():
            self.table.delete_below(connection, part, column, below)
        for rows in self.rows:
            self.table.insert(connection, rows)
        if self.kept is not None:
            self.table.keep(connection, self.kept)


class StateTable:
    """`rows`: the number of rows, including outdated ones. Settlements are applied one at a time, in order, and none is
    made while one is applied."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        name: str,
        columns: Mapping[str, SqlType],
    ) -> None:
        self._connection = connection
        self._name = name
        self._table = quoted_for_duckdb(f"state {name}")
        fields = [(column, type_.arrow) for column, type_ in columns.items()]
        self.schema = pa.schema([*fields, ("_deleted", pa.bool_()), (NUMBER, pa.int64())])
        listed = ", ".join(f"{column} {type_.duckdb}" for column, type_ in columns.items())
        self._columns = f"{listed}, _deleted BOOLEAN, {NUMBER} BIGINT"
        self._statements: dict[str, BatchStatement] = {}
        self._prepared_in: duckdb.DuckDBPyConnection | None = None
        execute(connection, f"CREATE TABLE IF NOT EXISTS {self._table} ({self._columns})")
        ((self.rows, self.last),) = execute(connection, f"SELECT count(*), max({NUMBER}) FROM {self._table}")

    def insert(self, connection: duckdb.DuckDBPyConnection, rows: pa.Table) -> None:
        sql = f"INSERT INTO {self._table} SELECT * FROM {{rows}}"
        self._statement(connection, "insert", sql, {"rows": self.schema}).run(rows=rows)
        self.rows += len(rows)

    def delete_below(self, connection: duckdb.DuckDBPyConnection, part: int, column: str, below: int) -> None:
        where = f"_part = {int(part)} AND {column} < {int(below)}"
        ((deleted,),) = execute(connection, f"DELETE FROM {self._table} WHERE {where}")
        self.rows -= deleted

    def _statement(
        self, connection: duckdb.DuckDBPyConnection, name: str, sql: str, inputs: Mapping[str, pa.Schema]
    ) -> BatchStatement:
        """The prepared statement of this name. Statements are kept for the connection that was used last: a replay uses
        another connection than the batches after it."""
        if self._prepared_in is not connection:
            self._statements, self._prepared_in = {}, connection
        if name not in self._statements:
            self._statements[name] = BatchStatement(connection, sql, inputs)
        return self._statements[name]

    def load(self, names: tuple[str, ...]) -> Iterator[pa.Table]:
        """All rows, including outdated ones, piece by piece, with these columns, `_deleted` and the number."""
        listed = ", ".join([*names, "_deleted", NUMBER])
        reader = self._connection.sql(f"SELECT {listed} FROM {self._table}").to_arrow_reader(_LOAD_ROWS)
        for batch in reader:
            yield pa.Table.from_batches([batch])

    def keep(self, connection: duckdb.DuckDBPyConnection, numbers: Ints) -> None:
        """Keeps only the rows with these numbers. It writes a new table: deleting rows would not free their space."""
        fresh = quoted_for_duckdb(f"state {self._name} compacted")
        execute(connection, f"CREATE TABLE {fresh} ({self._columns})")
        sql = f"INSERT INTO {fresh} SELECT * FROM {self._table} SEMI JOIN {{kept}} kept ON {NUMBER} = kept.number"
        statement = self._statement(connection, "keep", sql, {"kept": pa.schema([("number", pa.int64())])})
        statement.run(kept=pa.table({"number": pa.array(numbers)}))
        execute(connection, f"DROP TABLE {self._table}")
        execute(connection, f"ALTER TABLE {fresh} RENAME TO {self._table}")
        self.rows = len(numbers)
