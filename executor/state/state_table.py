"""The rows of a store in DuckDB: a table that is only appended to, from which a store is loaded when it is opened.

Each row has a number, which grows; of the rows of a key the one with the highest number counts. Updating in place costs
a scan of the whole table per batch, and a primary key 2.5 times the memory (1M keys: 13 ms for 1 000 updates, 129 MB;
appending: 1.5 ms, 50 MB).

What a store has become since the table was written is a `TableSettlement`: it is put together where the operators run,
and applied by whoever writes the file, meanwhile or later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from ...sql.types import SqlType
from ..operators.columns import Ints
from ..operators.statement import BatchStatement, execute, quoted

NUMBER = "_version"
_LOAD_ROWS = 100_000


@dataclass(frozen=True, slots=True)
class TableSettlement:
    """What a table has yet to get, in this order: the tasks' rows whose column is less than a bound go, rows come, and
    of all only those with the numbers `kept` stay, unless that is None."""

    table: StateTable
    expired: Mapping[tuple[int, str], int]
    rows: Sequence[pa.Table]
    kept: Ints | None

    def apply(self, connection: duckdb.DuckDBPyConnection) -> None:
        """In a transaction of the caller's. In: `connection`: to the table's database, and of this thread alone."""
        for (part, column), below in self.expired.items():
            self.table.delete_below(connection, part, column, below)
        for rows in self.rows:
            self.table.insert(connection, rows)
        if self.kept is not None:
            self.table.keep(connection, self.kept)


class StateTable:
    """`rows`: how many it has, outdated ones too. Settlements are applied one after the other, in their order, and none
    is put together while one is applied."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        name: str,
        columns: Mapping[str, SqlType],
    ) -> None:
        self._connection = connection
        self._name = name
        self._table = quoted(f"state {name}")
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
        """Prepared once in the connection that was used last: a replay has another one than what follows it."""
        if self._prepared_in is not connection:
            self._statements, self._prepared_in = {}, connection
        if name not in self._statements:
            self._statements[name] = BatchStatement(connection, sql, inputs)
        return self._statements[name]

    def load(self, names: tuple[str, ...]) -> Iterator[pa.Table]:
        """All rows, outdated ones too, piece by piece, with these columns, `_deleted` and the number."""
        listed = ", ".join([*names, "_deleted", NUMBER])
        reader = self._connection.sql(f"SELECT {listed} FROM {self._table}").to_arrow_reader(_LOAD_ROWS)
        for batch in reader:
            yield pa.Table.from_batches([batch])

    def keep(self, connection: duckdb.DuckDBPyConnection, numbers: Ints) -> None:
        """These rows only. The table is written anew: deleting rows would leave their space taken."""
        fresh = quoted(f"state {self._name} compacted")
        execute(connection, f"CREATE TABLE {fresh} ({self._columns})")
        sql = f"INSERT INTO {fresh} SELECT * FROM {self._table} SEMI JOIN {{kept}} kept ON {NUMBER} = kept.number"
        statement = self._statement(connection, "keep", sql, {"kept": pa.schema([("number", pa.int64())])})
        statement.run(kept=pa.table({"number": pa.array(numbers)}))
        execute(connection, f"DROP TABLE {self._table}")
        execute(connection, f"ALTER TABLE {fresh} RENAME TO {self._table}")
        self.rows = len(numbers)
