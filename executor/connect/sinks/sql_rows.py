"""Rows of SQL tables: the types of their columns, values in those types, upserts and deletes."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite

from ..connector import ConnectRecord
from ..connector_errors import ConnectorFailed, SystemUnavailable
from ..converters import json_text
from ..json_times import day_of, moment_of, time_of
from ..sql_databases import ROW_ERRORS, row_problem
from .mysql_packets import refuse_large_rows
from .record_rows import KeyedRow


def column_types(rows: Sequence[KeyedRow], *, keyed: bool) -> list[sa.Column[Any]]:
    """The columns for a new table. Their types follow from the first value of each column that is not NULL. A column
    of numbers that has a fraction among these rows is DOUBLE."""
    found: dict[str, Any] = {}
    keys: set[str] = set()
    for row in rows:
        keys |= row.key.keys() if keyed else set()
        for name, value in {**row.key, **(row.values or {})}.items():
            before = found.get(name)
            if before is None or (type(before) is int and isinstance(value, (float, Decimal))):
                found[name] = value
    return [sa.Column(name, _type_of(value, name in keys), primary_key=name in keys, autoincrement=False)
            for name, value in found.items()]  # fmt: skip


def _type_of(value: Any, is_key: bool) -> sa.types.TypeEngine[Any]:
    match value:
        case bool():
            return sa.Boolean()
        case int():
            return sa.BigInteger()
        case float() | Decimal():
            return sa.Double()
        case dict() | list():
            return sa.JSON()
        case _:
            return sa.String(255) if is_key else sa.Text()


def has_columns(table: sa.Table, rows: Iterable[KeyedRow]) -> bool:
    """Whether the table has all columns of the rows."""
    known = {name.lower() for name in table.columns.keys()}
    return all(name.lower() in known for row in rows for name in row.key | (row.values or {}))


def check_unchanged(connection: sa.Connection, table: sa.Table) -> None:
    """Checks that the table is unchanged, and locks its definition until the transaction ends. Otherwise SQLite would
    accept values of the earlier types, and MySQL would update a row that is equal in another key; PostgreSQL refuses
    both. Raises `SystemUnavailable`, because the next task reads the definition again."""
    if connection.dialect.name not in ("sqlite", "mysql", "mariadb"):
        return
    connection.execute(sa.select(sa.literal(1)).select_from(table).limit(0))
    now = sa.Table(table.name, sa.MetaData(), schema=table.schema, autoload_with=connection, resolve_fks=False)
    if _shape(now) != _shape(table):
        raise SystemUnavailable(f"the table {table.name} was changed or made anew meanwhile")


def _shape(table: sa.Table) -> object:
    columns = {name: repr(column.type) for name, column in table.columns.items()}
    return columns, _unique_columns(table)


def _unique_columns(table: sa.Table) -> list[set[str]]:
    """The column names of the primary key and each unique index."""
    unique = [set(table.primary_key.columns.keys())]
    unique += [set(index.columns.keys()) for index in table.indexes if index.unique]
    return sorted((names for names in unique if names), key=sorted)


class TableRows:
    """Writes rows to one table. In: `upsert`: whether rows have keys; then each key may occur only once."""

    def __init__(self, table: sa.Table, upsert: bool) -> None:
        self._table = table
        self._upsert = upsert
        self._by_name = {name.lower(): name for name in table.columns.keys()}

    def check(self, connection: sa.Connection) -> None:
        check_unchanged(connection, self._table)

    def write(self, connection: sa.Connection, rows: Sequence[KeyedRow]) -> None:
        """Writes the rows. Raises `ConnectorFailed` for a missing column, and `ROW_ERRORS`."""
        refuse_large_rows(connection, rows)
        deleted = [self._typed(row.key) for row in rows if row.values is None]
        if deleted:
            connection.execute(self._delete(deleted[0]), [_bound(row) for row in deleted])
        for names, group in self._by_columns(rows).items():
            if not self._upsert:
                connection.execute(sa.insert(self._table), group)
            else:
                self._upserted(connection, names, [self._column(name) for name in rows[0].key], group)

    def refused(self, connection: sa.Connection, rows: Sequence[KeyedRow]) -> list[tuple[ConnectRecord, str]]:
        """Writes the valid rows, within savepoints. Out: the other records, each with a clause about what is wrong."""
        deleted, others = ([row for row in rows if (row.values is None) == wanted] for wanted in (True, False))
        return self._refused_of(connection, deleted) + self._refused_of(connection, others)

    def _refused_of(self, connection: sa.Connection, rows: Sequence[KeyedRow]) -> list[tuple[ConnectRecord, str]]:
        if not rows:
            return []
        try:
            with connection.begin_nested():
                self.write(connection, rows)
            return []
        except ROW_ERRORS as error:
            problem = row_problem(error)
            if problem is None:
                raise
        if len(rows) == 1:
            assert rows[0].record is not None
            return [(rows[0].record, problem)]
        half = len(rows) // 2
        return self._refused_of(connection, rows[:half]) + self._refused_of(connection, rows[half:])

    def _by_columns(self, rows: Sequence[KeyedRow]) -> dict[tuple[str, ...], list[dict[str, Any]]]:
        """The rows grouped by their columns, because all rows of a statement have the same columns."""
        groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
        for row in rows:
            if row.values is not None:
                typed = self._typed(row.values)
                groups.setdefault(tuple(typed), []).append(typed)
        return groups

    def _typed(self, values: dict[str, Any]) -> dict[str, Any]:
        return {
            self._column(name): typed_value(value, self._table.columns[self._column(name)].type)
            for name, value in values.items()
        }

    def _column(self, name: str) -> str:
        """The column with this name. If there is none, the case of letters is ignored: ksqlDB's names are in upper
        case."""
        if name in self._table.columns:
            return name
        found = self._by_name.get(name.lower())
        if found is None:
            raise ConnectorFailed(
                f"the table {self._table.name} has no column {name}",
                hint=f"ALTER TABLE {self._table.name} ADD it, or leave the field out with a query.",
            )
        return found

    def _delete(self, key: dict[str, Any]) -> sa.Delete:
        return sa.delete(self._table).where(*(self._table.columns[name] == sa.bindparam(f"k_{name}") for name in key))

    def _upserted(
        self, connection: sa.Connection, names: tuple[str, ...], key: Sequence[str], rows: list[dict[str, Any]]
    ) -> None:
        others = [name for name in names if name not in key]
        match connection.dialect.name:
            case "postgresql" | "sqlite" | "duckdb":
                module = sqlite if connection.dialect.name == "sqlite" else postgresql
                insert = module.insert(self._table)
                if others:
                    changed = {name: insert.excluded[name] for name in others}
                    connection.execute(insert.on_conflict_do_update(index_elements=list(key), set_=changed), rows)
                else:
                    connection.execute(insert.on_conflict_do_nothing(index_elements=list(key)), rows)
            case "mysql" | "mariadb" if self._is_key(key):
                own = mysql.insert(self._table)
                changed = {name: own.inserted[name] for name in others or key}
                connection.execute(own.on_duplicate_key_update(changed), rows)
            case _:
                self._one_by_one(connection, key, others, rows)

    def _is_key(self, key: Sequence[str]) -> bool:
        """Whether the key is the only unique key of the table: MySQL's upsert changes a row that is equal in any unique
        index."""
        return _unique_columns(self._table) == [set(key)]

    def _one_by_one(
        self, connection: sa.Connection, key: Sequence[str], others: Sequence[str], rows: list[dict[str, Any]]
    ) -> None:
        """Works in every database: an UPDATE for each row, or an INSERT if the row does not exist."""
        here = sa.and_(*(self._table.columns[name] == sa.bindparam(f"k_{name}") for name in key))
        there = sa.select(sa.literal(1)).select_from(self._table).where(here).with_for_update()
        change = sa.update(self._table).where(here).values({name: sa.bindparam(f"v_{name}") for name in others})
        for row in rows:
            bound = _bound({name: row[name] for name in key})
            if connection.execute(there, bound).first() is None:
                connection.execute(sa.insert(self._table), row)
            elif others:
                connection.execute(change, bound | {f"v_{name}": row[name] for name in others})


def _bound(key: dict[str, Any]) -> dict[str, Any]:
    return {f"k_{name}": value for name, value in key.items()}


def typed_value(value: Any, type_: sa.types.TypeEngine[Any]) -> Any:
    """A JSON value in the type of its column. Times are milliseconds since 1970, dates are days, or both are ISO
    8601. Raises ValueError."""
    match type_:
        case sa.JSON() if value is None:
            return sa.null()  # None would be the null of JSON
        case sa.JSON() | sa.ARRAY():
            return value
        case _ if value is None:
            return None
        case sa.DateTime():
            return moment_of(value, zoned=bool(type_.timezone))
        case sa.Date():
            return day_of(value)
        case sa.Time():
            return time_of(value)
        case sa.Float():
            return float(value)
        case sa.Numeric():
            return Decimal(str(value))
        case sa.LargeBinary():
            return base64.b64decode(value, validate=True) if isinstance(value, str) else value
        case sa.String():
            return value if isinstance(value, str) else json_text(value)
        case _ if isinstance(value, (dict, list)):  # a driver may convert [1] to 1
            raise ValueError(
                f"an {'object' if isinstance(value, dict) else 'array'} is no value of a column of {type_}"
            )
        case sa.Integer():
            return _whole(value, type_)
        case _:
            return value


def _whole(value: Any, type_: sa.types.TypeEngine[Any]) -> Any:
    """A value for a column of whole numbers, in which databases round fractions. Raises ValueError for a fraction."""
    try:
        number = Decimal(value) if isinstance(value, (float, Decimal, str)) else None
    except InvalidOperation:
        return value  # the database refuses it
    if number is None or not number.is_finite():
        return value
    if number != number.to_integral_value():
        raise ValueError(f"{value} is no value of a column of {type_}, which would round it")
    return value if isinstance(value, str) else int(number)
