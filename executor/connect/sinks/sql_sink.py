"""The sink `sql`: writes rows of topics to tables of any database that SQLAlchemy supports. Transactional.

The offsets are in a table of the same database. They are written in the transaction of the rows, and only if they still
have the values that the task read before. So each record takes effect exactly once, even while an older task still
runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError, NoSuchTableError

from ....logcore.client import TopicPartition
from ....logcore.failpoints import fp
from ..connector import ConnectRecord, Guarantee, RecordsRefused, SinkConnector, TaskInfo
from ..connector_errors import ConnectorFailed, SystemUnavailable
from ..connector_settings import setting
from ..converters import json_text
from ..sql_databases import ROW_ERRORS, create_table, database_engine, database_errors, database_url, row_problem
from .record_rows import KeyedRow, after_the_last_tombstone, last_of_each_key, rows_of
from .sql_rows import TableRows, column_types, has_columns


@dataclass(frozen=True)
class SqlSinkSettings:
    connection_url: str = setting("Database, as SQLAlchemy writes it: postgresql+psycopg://user@host/database.")
    connection_password: str | None = setting("Password, in place of one in the URL.", default=None, secret=True)
    table_name_format: str = setting("Table of a topic; ${topic} is the topic's name.", default="${topic}")
    insert_mode: str = setting(
        "upsert keeps one row for each key, insert adds a row for each record.",
        default="upsert",
        choices=("upsert", "insert"),
    )
    delete_enabled: bool = setting("A tombstone deletes the row of its key.", default=True)
    pk_mode: str = setting(
        "Where the columns of the primary key are.",
        default="record_key",
        choices=("record_key", "record_value", "none"),
    )
    pk_fields: tuple[str, ...] = setting("Columns of the primary key; the name of a key that is one value.", default=())
    auto_create: bool = setting("Create a table that does not exist, with types by its first record.", default=False)
    offsets_table: str = setting("Table that keeps the offsets.", default="millstream_offsets")

    def __post_init__(self) -> None:
        if self.insert_mode == "upsert" and self.pk_mode == "none":
            raise ValueError("insert.mode=upsert needs a primary key: pk.mode is none")
        if self.pk_mode == "record_value" and not self.pk_fields:
            raise ValueError("pk.mode=record_value needs pk.fields")
        if database_url(self.connection_url).get_backend_name() == "duckdb":
            raise ValueError(
                "connection.url: the sink sql does not write DuckDB, whose driver does not tell the columns of tables;"
                " DuckDB reads what the sinks parquet, delta and iceberg write"
            )

    @property
    def url(self) -> sa.URL:
        return database_url(self.connection_url, self.connection_password)


class SqlSink(SinkConnector):
    """Tables of a SQL database.

    State: a connection pool, the current definitions of the tables, and the offset of each partition in the database.
    """

    settings = SqlSinkSettings
    guarantee: ClassVar[Guarantee] = "transactional"

    def __init__(self, settings: SqlSinkSettings, task: TaskInfo) -> None:
        self._settings = settings
        self._task = task
        self._tables: dict[str, sa.Table] = {}
        self._offsets: dict[TopicPartition, int | None] = {}
        self._engine = database_engine(settings.url, pool_size=1, json_serializer=json_text)
        self._offset_table = _offset_table(settings.offsets_table)

    def positions(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        with database_errors():
            create_table(self._engine, self._offset_table)
        with database_errors(), self._engine.begin() as connection:
            known = self._offset_table.c
            rows = connection.execute(sa.select(known.topic, known.partition, known.next_offset).where(
                known.connector == self._task.connector
            ))  # fmt: skip
            for topic, partition, offset in rows:
                found[TopicPartition(topic, partition)] = offset
        for at in partitions:
            self._offsets[at] = found.get(at)
        return found

    def write(self, records: Sequence[ConnectRecord], positions: Mapping[TopicPartition, int]) -> None:
        by_table = self._rows_by_table(records)
        with database_errors():
            try:
                self._commit(by_table, positions)
            except ROW_ERRORS as error:
                if row_problem(error) is None:
                    raise
                self._tables.clear()  # they may have changed
                self._refuse_rows(by_table, positions)
                self._commit(by_table, positions)
        fp("connect.sql_after_commit")
        self._offsets.update(positions)

    def _commit(self, by_table: Mapping[str, Sequence[KeyedRow]], positions: Mapping[TopicPartition, int]) -> None:
        writers = self._writers(by_table)
        with self._engine.begin() as connection:
            self._begin(connection, positions, writers)
            for name, rows in by_table.items():
                writers[name].write(connection, rows)
            fp("connect.sql_before_commit")

    def _refuse_rows(self, by_table: Mapping[str, Sequence[KeyedRow]], positions: Mapping[TopicPartition, int]) -> None:
        """Finds the rows that the tables do not accept, without writing any. Raises `RecordsRefused` if there are
        any."""
        writers, refused = self._writers(by_table), list[tuple[ConnectRecord, str]]()
        with self._engine.begin() as connection:
            self._begin(connection, positions, writers)
            for name, rows in by_table.items():
                refused += writers[name].refused(connection, rows)
            connection.rollback()
        if refused:
            raise RecordsRefused(refused, others_written=False)

    def _begin(
        self, connection: sa.Connection, positions: Mapping[TopicPartition, int], writers: Mapping[str, TableRows]
    ) -> None:
        """Begins a transaction: updates the offsets, and checks that the tables have not changed."""
        for at, offset in positions.items():
            self._move(connection, at, offset)
        for writer in writers.values():
            writer.check(connection)

    def _writers(self, by_table: Mapping[str, Sequence[KeyedRow]]) -> dict[str, TableRows]:
        """The writers of the tables. Call it before a transaction: in databases without transactional DDL, creating a
        table would commit the offsets without the rows."""
        upsert = self._settings.insert_mode == "upsert"
        return {name: TableRows(self._table(name, rows), upsert) for name, rows in by_table.items()}

    def close(self) -> None:
        self._engine.dispose()

    @classmethod
    def forget(cls, settings: SqlSinkSettings, task: TaskInfo) -> None:
        engine = database_engine(settings.url)
        table = _offset_table(settings.offsets_table)
        with database_errors(), engine.begin() as connection:
            if sa.inspect(connection).has_table(table.name):
                connection.execute(sa.delete(table).where(table.c.connector == task.connector))
        engine.dispose()

    def _rows_by_table(self, records: Sequence[ConnectRecord]) -> dict[str, list[KeyedRow]]:
        """The rows of each table, in order: with upserts only the last change of each key, else those that no later
        tombstone deletes. Raises `RecordsRefused`."""
        settings = self._settings
        found: dict[str, list[KeyedRow]] = defaultdict(list)
        for record, row in zip(records, rows_of(records, settings.pk_mode, settings.pk_fields), strict=True):
            if row.values is None and not (settings.delete_enabled and row.key):
                continue
            found[settings.table_name_format.replace("${topic}", record.topic)].append(row)
        remaining = last_of_each_key if settings.insert_mode == "upsert" else after_the_last_tombstone
        return {name: remaining(rows) for name, rows in found.items()}

    def _table(self, name: str, rows: Sequence[KeyedRow]) -> sa.Table:
        """The table's current definition. Creates the table first if the settings say so, and reads the definition
        again if rows have unknown columns."""
        if name not in self._tables or not has_columns(self._tables[name], rows):
            schema, _, bare = name.rpartition(".")
            if self._settings.auto_create:
                columns = column_types(rows, keyed=self._settings.insert_mode == "upsert")
                create_table(self._engine, sa.Table(bare, sa.MetaData(), *columns, schema=schema or None))
            try:
                self._tables[name] = sa.Table(bare, sa.MetaData(), schema=schema or None, autoload_with=self._engine)
            except NoSuchTableError:
                raise ConnectorFailed(
                    f"the table {name} does not exist in the database",
                    hint="CREATE TABLE it, set table.name.format, or set auto.create=true.",
                ) from None
        return self._tables[name]

    def _move(self, connection: sa.Connection, at: TopicPartition, offset: int) -> None:
        """Sets the offset in the database, if it still is the one that this task has written or read last."""
        table, before = self._offset_table, self._offsets.get(at)
        place = {"connector": self._task.connector, "topic": at.topic, "partition": at.partition}
        if before is None:
            try:
                connection.execute(sa.insert(table).values(**place, next_offset=offset))
            except IntegrityError:
                raise _overtaken(at) from None
            return
        here = sa.and_(*(table.c[name] == value for name, value in place.items()), table.c.next_offset == before)
        if connection.execute(sa.update(table).where(here).values(next_offset=offset)).rowcount != 1:
            raise _overtaken(at)


def _overtaken(at: TopicPartition) -> SystemUnavailable:
    return SystemUnavailable(f"another task has written {at.topic}, partition {at.partition}, meanwhile")


def _offset_table(name: str) -> sa.Table:
    schema, _, bare = name.rpartition(".")
    return sa.Table(
        bare,
        sa.MetaData(),
        sa.Column("connector", sa.String(255), primary_key=True),
        sa.Column("topic", sa.String(255), primary_key=True),
        sa.Column("partition", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("next_offset", sa.BigInteger, nullable=False),
        schema=schema or None,
    )
