"""Rows of SQL tables: the types of their columns, values in those types, upserts and deletes."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite

from ..connector_errors import ConnectorFailed
from ..converters import json_text
from ..json_times import day_of, moment_of, time_of
from .record_rows import KeyedRow


def column_types(rows: Sequence[KeyedRow], *, keyed: bool) -> list[sa.Column[Any]]:
    """Of a table that is to be created: by the first value of each column that is not NULL."""
    found: dict[str, Any] = {}
    keys: set[str] = set()
    for row in rows:
        keys |= row.key.keys() if keyed else set()
        for name, value in {**row.key, **(row.values or {})}.items():
            if found.get(name) is None:
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


class TableRows:
    """Writes rows to one table. In: `upsert`: rows have keys, and each key comes once."""

    def __init__(self, table: sa.Table, upsert: bool) -> None:
        self._table = table
        self._upsert = upsert
        self._by_name = {name.lower(): name for name in table.columns.keys()}

    def write(self, connection: sa.Connection, rows: Sequence[KeyedRow]) -> None:
        """Raises `ConnectorFailed` for a column that is not there."""
        deleted = [self._typed(row.key) for row in rows if row.values is None]
        if deleted:
            connection.execute(self._delete(deleted[0]), [_bound(row) for row in deleted])
        for names, group in self._by_columns(rows).items():
            if not self._upsert:
                connection.execute(sa.insert(self._table), group)
            else:
                self._upserted(connection, names, [self._column(name) for name in rows[0].key], group)

    def _by_columns(self, rows: Sequence[KeyedRow]) -> dict[tuple[str, ...], list[dict[str, Any]]]:
        """A statement has the same columns for all its rows."""
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
        """The column of this name; in another case, where only that is there: ksqlDB's names are in upper case."""
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
            case "mysql" | "mariadb":
                own = mysql.insert(self._table)
                changed = {name: own.inserted[name] for name in others or key}
                connection.execute(own.on_duplicate_key_update(changed), rows)
            case _:  # a DELETE and an INSERT are an upsert in every database, within a transaction
                keys = [{name: row[name] for name in key} for row in rows]
                connection.execute(self._delete(keys[0]), [_bound(row) for row in keys])
                connection.execute(sa.insert(self._table), rows)


def _bound(key: dict[str, Any]) -> dict[str, Any]:
    return {f"k_{name}": value for name, value in key.items()}


def typed_value(value: Any, type_: sa.types.TypeEngine[Any]) -> Any:
    """A JSON value in the type of its column. Times are milliseconds since 1970, dates days, or both ISO 8601."""
    match type_:
        case sa.JSON():
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
            return base64.b64decode(value) if isinstance(value, str) else value
        case sa.String():
            return value if isinstance(value, str) else json_text(value)
        case _:
            return value
