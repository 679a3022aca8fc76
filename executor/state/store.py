"""Keyed state of operators, in DuckDB, with the changes that rebuild it elsewhere.

A store is a table that is only appended to: a write adds rows with a higher version, a read takes each key's newest,
and now and then the older ones are cleared away. Updating in place costs a scan of the whole table per batch, and a
primary key 2.5 times the memory (1M keys: 13 ms for 1 000 updates, 129 MB; appending: 1.5 ms, 50 MB).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import duckdb
import numpy as np
import pyarrow as pa

from ...sql.types import SqlType
from ..operators.columns import conform, flat, group, ints
from ..operators.statement import BatchStatement, execute, fetch, quoted

_COMPACT_FROM = 60_000  # rows; below that a read is fast however many of them are outdated


_COUNT_TO = 500_000  # rows; of larger tables nobody waits for an exact count
_SAMPLE_ROWS = 1_000

_EXPIRED = b"millstream.expired"


@dataclass(frozen=True, slots=True)
class StoreChanges:
    """What a store changed: key columns, value columns and `_deleted`, in order. Replaying them, once or several
    times, from any point before, rebuilds the store (`StateStore.restore`).

    `key`: the key columns: of several rows of one key the last one counts. `expired_column` names the column by which
    rows have expired: `rows` then has that one and `_part`, and ends what is below.
    """

    store: str
    rows: pa.Table
    key: tuple[str, ...] = ()

    @property
    def expired_column(self) -> str | None:
        return _expired_column(self.rows)


class StateStore:
    """Rows by key. Everything happens inside the caller's transaction.

    A key column may be NULL; NULLs are equal. Of the rows that `expire` removes the changes only say up to where they
    go, so that compaction can take them from the changelog.

    In: `write_once`: no row is ever written again or deleted, so that only what has expired can be cleared away.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        name: str,
        key: Mapping[str, SqlType],
        value: Mapping[str, SqlType],
        *,
        write_once: bool = False,
    ) -> None:
        self.name = name
        self.key: Mapping[str, SqlType] = MappingProxyType(dict(key))
        self.value: Mapping[str, SqlType] = MappingProxyType(dict(value))
        self.key_schema = pa.schema([(column, type_.arrow) for column, type_ in key.items()])
        self.change_schema = pa.schema(
            [*self.key_schema, *((column, type_.arrow) for column, type_ in value.items()), ("_deleted", pa.bool_())]
        )
        self._read_schema = pa.schema([("_index", pa.int64()), *list(self.change_schema)[:-1]])
        self._connection = connection
        self._table = quoted(f"state {name}")
        self._statements: dict[str, BatchStatement] = {}
        self._changes: list[pa.Table] = []
        columns = ", ".join(f"{column} {type_.duckdb}" for column, type_ in {**key, **value}.items())
        self._columns = f"{columns}, _deleted BOOLEAN, _version BIGINT"
        execute(connection, f"CREATE TABLE IF NOT EXISTS {self._table} ({self._columns})")
        ((self._rows, self._version),) = execute(
            connection, f"SELECT count(*), coalesce(max(_version), 0) FROM {self._table}"
        )
        self._live = self._rows
        self._replayed = self._rows > 0
        self._write_once = write_once
        self._expired = self._rows > 0
        self._settle: Callable[[], None] | None = None

    def __len__(self) -> int:
        """Of the rows in the table; outdated ones count."""
        return self._rows

    def read(self, keys: pa.Table, by: Sequence[str] | None = None) -> pa.Table:
        """The rows of these keys: `_index` (the key's position), the key and the value columns. `keys` are distinct.

        `by` reads by some of the key columns only; then a key may have several rows, in the order of the others.
        """
        columns = tuple(self.key if by is None else by)
        if not self._rows or not len(keys):
            return self._read_schema.empty_table()
        asked = keys.select(columns).append_column("_index", pa.array(np.arange(len(keys), dtype=np.int64)))
        nullable = tuple(column for column in columns if asked.column(column).null_count)
        found = self._newest(self._reader(columns, nullable).run(keys=asked), columns)
        return conform(found.drop_columns(["_deleted", "_version"]), self._read_schema)

    def read_between(self, asked: pa.Table, by: Sequence[str], column: str) -> pa.Table:
        """For each asked row the rows with its values of the key columns `by` and with `column` within its `_low` and
        `_high`, both included; as `read`, but in no order, and asked rows need not be distinct.

        For stores whose rows are written once and never changed.
        """
        columns = [*by, "_low", "_high"]
        if not self._rows or not len(asked):
            return self._read_schema.empty_table()
        asked = asked.select(columns).append_column("_index", pa.array(np.arange(len(asked), dtype=np.int64)))
        name = f"read by {tuple(by)} between {column}"
        if name not in self._statements:
            matches = " AND ".join(f"state.{each} = asked.{each}" for each in by)
            sql = (
                f"SELECT asked._index, state.* FROM {self._table} state JOIN {{keys}} asked "
                f"ON {matches} AND state.{column} BETWEEN asked._low AND asked._high"
            )
            bounds = [(each, pa.int64()) for each in ("_low", "_high", "_index")]
            schema = pa.schema([*(self.key_schema.field(each) for each in by), *bounds])
            self._statements[name] = BatchStatement(self._connection, sql, {"keys": schema})
        found = self._statements[name].run(keys=asked)
        if self._replayed:  # then a row may be there more than once
            found = self._newest(found, tuple(by))
        return conform(found.drop_columns(["_deleted", "_version"]), self._read_schema)

    def write(self, rows: pa.Table) -> None:
        """Upsert rows of key and value columns; keys are distinct."""
        self._append(rows.append_column("_deleted", pa.array(np.zeros(len(rows), dtype=np.bool_))))

    def delete(self, keys: pa.Table) -> None:
        self._append(
            conform(keys.append_column("_deleted", pa.array(np.ones(len(keys), np.bool_))), self.change_schema)
        )

    def change(self, rows: pa.Table) -> None:
        """Upsert and delete at once: rows of key and value columns and `_deleted`; keys are distinct."""
        self._append(rows)

    def on_settle(self, settle: Callable[[], None]) -> None:
        """For an owner that keeps what it wrote in memory for a while, and answers for what it reads: `settle` gives
        the rows that were deferred to `apply`. It is called before the table as a whole is looked at."""
        self._settle = settle

    def settle(self) -> None:
        """Brings the table to what was written."""
        if self._settle is not None:
            self._settle()

    def defer(self, rows: pa.Table) -> pa.Table:
        """Upsert rows of key and value columns: a change as by `write`, but the table gets the rows that are returned
        by `apply`."""
        rows = conform(
            rows.append_column("_deleted", pa.array(np.zeros(len(rows), dtype=np.bool_))), self.change_schema
        )
        if len(rows):
            self._changes.append(rows)
        return rows

    def apply(self, rows: pa.Table) -> None:
        """Put deferred rows into the table; keys are distinct."""
        self._insert(rows)

    def restore(self, rows: pa.Table) -> None:
        """Apply recorded changes, in order; several of one key may be among them. They are not recorded again."""
        self._replayed = True
        column = _expired_column(rows)
        if column is None:
            self._insert(conform(rows, self.change_schema), in_order=True)
        else:
            for part, below in zip(rows["_part"].to_pylist(), rows[column].to_pylist(), strict=True):
                self._expire(part, column, below)

    def expire(self, part: int, column: str, below: int) -> None:
        """Forget the task's rows whose `column` is less than `below`."""
        self.settle()
        if self._rows:
            expired = pa.table({"_part": pa.array([part], pa.int32()), column: pa.array([below], pa.int64())})
            self._changes.append(expired.replace_schema_metadata({_EXPIRED: column.encode()}))
        self._expire(part, column, below)

    def _expire(self, part: int, column: str, below: int) -> None:
        execute(self._connection, f"DELETE FROM {self._table} WHERE _part = {part} AND {column} < {below}")
        self._expired = True

    def is_empty(self) -> bool:
        """Whether there is no row; outdated ones count."""
        self.settle()
        return not execute(self._connection, f"SELECT 1 FROM {self._table} WHERE NOT _deleted LIMIT 1")

    def between(self, part: int, column: str, low: int, high: int) -> pa.Table:
        """The task's rows with low < `column` <= high, ordered by the key."""
        return self._selected(f" WHERE _part = {part} AND {column} > {low} AND {column} <= {high}")

    def rows(self, part: int | None = None) -> pa.Table:
        """All rows (of one task), key and value columns, ordered by the key."""
        return self._selected("" if part is None else f" WHERE _part = {part}")

    def measure(self) -> tuple[int, int]:
        """How many rows there are, and about how many bytes they have as Arrow; of large stores outdated rows count."""
        self.settle()
        rows = self._rows
        if rows <= _COUNT_TO:
            ((rows,),) = execute(self._connection, f"SELECT count(*) FROM ({self._latest()}) WHERE NOT _deleted")
        names = ", ".join([*self.key, *self.value])
        sample = fetch(self._connection, f"SELECT {names} FROM {self._table} LIMIT {_SAMPLE_ROWS}")
        return rows, sample.nbytes * rows // max(1, len(sample))

    def by_task(self, column: str) -> list[tuple[int, int, int]]:
        """Of each task how many rows there are, and the least value of this key column."""
        self.settle()
        if self._rows > _COUNT_TO:
            source = f"{self._table} WHERE NOT _deleted"
        else:
            source = f"({self._latest()}) WHERE NOT _deleted"
        return execute(
            self._connection, f"SELECT _part, count(*), min({column}) FROM {source} GROUP BY _part ORDER BY _part"
        )

    @property
    def version(self) -> int:
        """Grows with every write and restore: what was read at this version is still so."""
        return self._version

    def take_changes(self) -> list[StoreChanges]:
        """What changed since the last call, oldest first."""
        taken, self._changes = self._changes, []
        return [StoreChanges(self.name, rows, tuple(self.key)) for rows in taken]

    def _selected(self, where: str) -> pa.Table:
        """`where` is over key columns."""
        self.settle()
        names, order = ", ".join([*self.key, *self.value]), ", ".join(self.key)
        rows = fetch(
            self._connection,
            f"SELECT {names} FROM ({self._latest(where)}) WHERE NOT _deleted ORDER BY {order}",
        )
        return conform(rows, pa.schema(list(self.change_schema)[:-1]))

    def _reader(self, columns: tuple[str, ...], nullable: tuple[str, ...]) -> BatchStatement:
        """Joins on `=` where no NULL is asked for: only then DuckDB skips row groups (1M keys, 1 asked: 20 ms else)."""
        name = f"read by {columns}, {nullable}"
        if name not in self._statements:
            equals = {column: "IS NOT DISTINCT FROM" if column in nullable else "=" for column in columns}
            matches = " AND ".join(f"state.{column} {equals[column]} asked.{column}" for column in columns)
            sql = f"SELECT asked._index, state.* FROM {self._table} state JOIN {{keys}} asked ON {matches}"
            asked = pa.schema([*(self.key_schema.field(column) for column in columns), ("_index", pa.int64())])
            self._statements[name] = BatchStatement(self._connection, sql, {"keys": asked})
        return self._statements[name]

    def _newest(self, found: pa.Table, columns: tuple[str, ...]) -> pa.Table:
        """Of each key the row of the highest version, if it is not a deletion."""
        rest = [column for column in self.key if column not in columns]
        index, version = ints(found, "_index"), ints(found, "_version")
        groups, first = group(found, ["_index", *rest]) if rest else (index, None)
        size = int(groups.max(initial=-1)) + 1 if first is None else len(first)
        order = np.argsort(version, kind="stable")
        newest = np.full(size, -1, dtype=np.int64)
        newest[groups[order]] = order  # of several, the last one stays
        newest = newest[newest >= 0]
        alive = newest[~flat(found, "_deleted").to_numpy(zero_copy_only=False)[newest]]
        if len(alive) < len(found):
            found = found.take(pa.array(alive))
        return found.sort_by([(name, "ascending") for name in ("_index", *rest)]) if rest else found

    def _append(self, rows: pa.Table) -> None:
        rows = conform(rows, self.change_schema)
        if not len(rows):
            return
        self._changes.append(rows)
        self._insert(rows)

    def _insert(self, rows: pa.Table, *, in_order: bool = False) -> None:
        """`in_order`: a later row of the same key wins."""
        if not len(rows):
            return
        steps = np.arange(len(rows), dtype=np.int64) if in_order else np.zeros(len(rows), dtype=np.int64)
        version = pa.array(steps + (self._version + 1))
        self._version += int(steps[-1]) + 1
        if "insert" not in self._statements:
            schema = self.change_schema.append(pa.field("_version", pa.int64()))
            sql = f"INSERT INTO {self._table} SELECT * FROM {{rows}}"
            self._statements["insert"] = BatchStatement(self._connection, sql, {"rows": schema})
        self._statements["insert"].run(rows=rows.append_column("_version", version))
        self._rows += len(rows)
        if self._rows > max(_COMPACT_FROM, 2 * self._live) and (self._expired or not self._only_once):
            self._compact()

    def _compact(self) -> None:
        """Keep the newest row of each key. The table is written anew: deleting rows would leave their space taken."""
        fresh = quoted(f"state {self.name} compacted")
        execute(self._connection, f"CREATE TABLE {fresh} ({self._columns})")
        kept = self._table if self._only_once else f"({self._latest()}) WHERE NOT _deleted"
        execute(self._connection, f"INSERT INTO {fresh} SELECT * FROM {kept}")
        execute(self._connection, f"DROP TABLE {self._table}")
        execute(self._connection, f"ALTER TABLE {fresh} RENAME TO {self._table}")
        ((self._rows,),) = execute(self._connection, f"SELECT count(*) FROM {self._table}")
        self._live = self._rows
        self._expired = False

    @property
    def _only_once(self) -> bool:
        """Whether each key has one row. Who replays may apply a change twice."""
        return self._write_once and not self._replayed

    def _latest(self, where: str = "") -> str:
        keys = ", ".join(self.key)
        return (
            f"SELECT * FROM {self._table}{where} "
            f"QUALIFY row_number() OVER (PARTITION BY {keys} ORDER BY _version DESC) = 1"
        )


def _expired_column(rows: pa.Table) -> str | None:
    name = (rows.schema.metadata or {}).get(_EXPIRED)
    return None if name is None else name.decode()
