"""The rows of a store in DuckDB: a table that is only appended to, from which a store is loaded when it is opened.

Each row has a number, which grows; of the rows of a key the one with the highest number counts. Updating in place costs
a scan of the whole table per batch, and a primary key 2.5 times the memory (1M keys: 13 ms for 1 000 updates, 129 MB;
appending: 1.5 ms, 50 MB).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import duckdb
import pyarrow as pa

from ...sql.types import SqlType
from ..operators.columns import Ints
from ..operators.statement import BatchStatement, execute, quoted

NUMBER = "_version"
_LOAD_ROWS = 100_000


class StateTable:
    """Everything happens inside the caller's transaction."""

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
        execute(connection, f"CREATE TABLE IF NOT EXISTS {self._table} ({self._columns})")
        ((self.rows, self.last),) = execute(connection, f"SELECT count(*), max({NUMBER}) FROM {self._table}")

    def insert(self, rows: pa.Table) -> None:
        if "insert" not in self._statements:
            sql = f"INSERT INTO {self._table} SELECT * FROM {{rows}}"
            self._statements["insert"] = BatchStatement(self._connection, sql, {"rows": self.schema})
        self._statements["insert"].run(rows=rows)
        self.rows += len(rows)

    def delete_below(self, part: int, column: str, below: int) -> None:
        where = f"_part = {int(part)} AND {column} < {int(below)}"
        ((deleted,),) = execute(self._connection, f"DELETE FROM {self._table} WHERE {where}")
        self.rows -= deleted

    def load(self, names: tuple[str, ...]) -> Iterator[pa.Table]:
        """All rows, outdated ones too, piece by piece, with these columns, `_deleted` and the number."""
        listed = ", ".join([*names, "_deleted", NUMBER])
        reader = self._connection.sql(f"SELECT {listed} FROM {self._table}").to_arrow_reader(_LOAD_ROWS)
        for batch in reader:
            yield pa.Table.from_batches([batch])

    def keep(self, numbers: Ints) -> None:
        """These rows only. The table is written anew: deleting rows would leave their space taken."""
        fresh = quoted(f"state {self._name} compacted")
        execute(self._connection, f"CREATE TABLE {fresh} ({self._columns})")
        if "keep" not in self._statements:
            sql = f"INSERT INTO {fresh} SELECT * FROM {self._table} SEMI JOIN {{kept}} kept ON {NUMBER} = kept.number"
            self._statements["keep"] = BatchStatement(
                self._connection, sql, {"kept": pa.schema([("number", pa.int64())])}
            )
        self._statements["keep"].run(kept=pa.table({"number": pa.array(numbers)}))
        execute(self._connection, f"DROP TABLE {self._table}")
        execute(self._connection, f"ALTER TABLE {fresh} RENAME TO {self._table}")
        self.rows = len(numbers)
