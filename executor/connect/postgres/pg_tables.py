"""The tables that a connector reads, its publication and its slot, from PostgreSQL's catalog."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import psycopg
import structlog

from ..cdc.cdc_records import is_named
from ..connector_errors import ConnectorFailed
from .pg_connections import explained, lsn_of, lsn_text, quoted, slot_lost
from .pg_types import with_base_types
from .pgoutput import RelationColumn, TableRelation

_PARTITIONS_SINCE: Final = 130_000
_AS_ONE_TABLE: Final = "publish_via_partition_root = true"
_log = structlog.get_logger("millstream.connect")


@dataclass(frozen=True, slots=True)
class CapturedTable:
    """`key`: see `key_columns`. `row_filter`: the filter of the publication, as SQL; None if it has none."""

    relation: TableRelation
    key: tuple[str, ...]
    row_filter: str | None

    @property
    def name(self) -> str:
        return f"{self.relation.schema}.{self.relation.name}"

    @property
    def sql_name(self) -> str:
        return f"{quoted(self.relation.schema)}.{quoted(self.relation.name)}"


def check_server(connection: psycopg.Connection[Any]) -> None:
    """Raises `ConnectorFailed` if logical replication is off."""
    with explained("SHOW wal_level"):
        row = connection.execute("SHOW wal_level").fetchone()
    if row is None or row[0] != "logical":
        raise ConnectorFailed(
            f"wal_level of this PostgreSQL is {row and row[0]}, but must be logical",
            hint="ALTER SYSTEM SET wal_level = logical; then restart PostgreSQL and this connector.",
        )


def ensure_publication(
    connection: psycopg.Connection[Any], name: str, include: Sequence[str], exclude: Sequence[str], *, create: bool
) -> None:
    """Makes sure that the publication exists and has the tables that the settings name. Raises `ConnectorFailed`."""
    with explained(f"the publication {name}"):
        found = connection.execute("SELECT puballtables FROM pg_publication WHERE pubname = %s", [name]).fetchone()
        if not create:
            if found is None:
                raise ConnectorFailed(
                    f"the publication {name} does not exist",
                    hint="CREATE PUBLICATION it, or leave publication.autocreate.mode out.",
                )
            return
        missing = unpublished_tables(connection, name, include, exclude)
        if not missing:
            if found is None:
                raise no_table(include)
            return
        if found is not None and any(partitioned for _, _, partitioned in missing):
            connection.execute(f"ALTER PUBLICATION {quoted(name)} SET ({_AS_ONE_TABLE})".encode())
            missing = unpublished_tables(connection, name, include, exclude)
        tables = ", ".join(f"{quoted(schema)}.{quoted(table)}" for schema, table, _ in missing)
        as_one = connection.info.server_version >= _PARTITIONS_SINCE
        command = (
            f"CREATE PUBLICATION {quoted(name)} FOR TABLE {tables}{f' WITH ({_AS_ONE_TABLE})' if as_one else ''}"
            if found is None
            else f"ALTER PUBLICATION {quoted(name)} ADD TABLE {tables}"
        )
        if tables:
            connection.execute(command.encode())


def unpublished_tables(
    connection: psycopg.Connection[Any], publication: str, include: Sequence[str], exclude: Sequence[str]
) -> list[tuple[str, str, bool]]:
    """The tables that the settings name and that are not published: schema, name, and whether it is partitioned. Raises
    `ConnectorFailed`."""
    with explained(f"the publication {publication}"):
        if connection.execute("SELECT FROM pg_publication WHERE pubname = %s AND puballtables", [publication]).rowcount:
            return []
        published = {
            (row[0], row[1])
            for row in connection.execute(
                "SELECT schemaname, tablename FROM pg_publication_tables WHERE pubname = %s", [publication]
            )
        }
        return [table for table in _wanted(connection, include, exclude) if table[:2] not in published]


def _wanted(
    connection: psycopg.Connection[Any], include: Sequence[str], exclude: Sequence[str]
) -> list[tuple[str, str, bool]]:
    """The selected tables: schema, name, and whether it is partitioned. Refuses tables on which PostgreSQL would refuse
    UPDATE after they are published."""
    rows = connection.execute(
        """SELECT n.nspname, c.relname,
                  c.relreplident IN ('f', 'i') OR (c.relreplident = 'd' AND EXISTS (
                      SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)), c.relkind = 'p'
           FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
           WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND NOT c.relispartition
             AND n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema'
           ORDER BY 1, 2"""
    ).fetchall()
    chosen = [row for row in rows if is_named(f"{row[0]}.{row[1]}", include, exclude)]
    without = [f"{schema}.{table}" for schema, table, identified, _ in chosen if not identified]
    if without:
        raise ConnectorFailed(
            f"{', '.join(without)} has no primary key and no replica identity: once it is published, PostgreSQL refuses"
            " UPDATE and DELETE on it",
            hint="Add a primary key, ALTER TABLE … REPLICA IDENTITY FULL, or name it in table.exclude.list.",
        )
    return [(schema, table, partitioned) for schema, table, _, partitioned in chosen]


def no_table(include: Sequence[str]) -> ConnectorFailed:
    return ConnectorFailed(
        f"no table is named by table.include.list={','.join(include) or '(all)'}",
        hint="Its items are regular expressions for schema.table, such as public.orders.",
    )


def published_tables(connection: psycopg.Connection[Any], publication: str) -> list[str] | None:
    """The published tables as `schema.table`; None if the publication does not exist."""
    with explained(f"the publication {publication}"):
        if not connection.execute("SELECT FROM pg_publication WHERE pubname = %s", [publication]).rowcount:
            return None
        rows = connection.execute(
            "SELECT schemaname, tablename FROM pg_publication_tables WHERE pubname = %s ORDER BY 1, 2", [publication]
        ).fetchall()
    return [f"{schema}.{table}" for schema, table in rows]


def captured_tables(connection: psycopg.Connection[Any], publication: str) -> list[CapturedTable]:
    """The current definitions of the published tables, in the transaction of the connection."""
    with explained("the list of tables"):
        newer = connection.info.server_version >= 150_000
        extra = "attnames, rowfilter" if newer else "NULL, NULL"
        rows = connection.execute(
            f"""SELECT schemaname, tablename, {extra} FROM pg_publication_tables
                WHERE pubname = %s ORDER BY 1, 2""".encode(),
            [publication],
        ).fetchall()
        return [
            captured_table(connection, schema, table, names, row_filter) for schema, table, names, row_filter in rows
        ]


def captured_table(
    connection: psycopg.Connection[Any],
    schema: str,
    table: str,
    names: Sequence[str] | None = None,
    row_filter: str | None = None,
) -> CapturedTable:
    """The current definition of a table. In: `names`: the published columns; None: all."""
    rows = connection.execute(
        """SELECT c.oid, c.relreplident, a.attname, a.atttypid, a.atttypmod,
                  EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND a.attnum = ANY (i.indkey)
                          AND CASE c.relreplident WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END)
           FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid
           WHERE n.nspname = %s AND c.relname = %s AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
           ORDER BY a.attnum""",
        [schema, table],
    ).fetchall()
    kept = [row for row in rows if names is None or row[2] in names]
    columns = tuple(RelationColumn(row[2], row[3], row[4], row[5]) for row in kept)
    oid, identity = (kept[0][0], kept[0][1]) if kept else (0, "d")
    relation = with_base_types(connection, TableRelation(oid, schema, table, identity, columns))
    return CapturedTable(relation, key_columns(connection, relation), row_filter)


def key_columns(connection: psycopg.Connection[Any], relation: TableRelation) -> tuple[str, ...]:
    """The names of the key's columns: those of the primary key, or, if it is not part of the index that is the replica
    identity, those of that index, because a DELETE and an UPDATE have no other old values.

    With the default identity, the stream contains the names as of that time.
    """
    identity = tuple(column.name for column in relation.columns if column.is_key)
    if relation.identity == "d":
        return identity
    primary = _primary_key(connection, relation)
    return identity if relation.identity == "i" and identity and not set(primary or [""]) <= set(identity) else primary


def _primary_key(connection: psycopg.Connection[Any], relation: TableRelation) -> tuple[str, ...]:
    with explained("the primary key"):
        rows = connection.execute(
            """SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid
               WHERE i.indrelid = %s AND i.indisprimary AND a.attnum = ANY (i.indkey)""",
            [relation.oid],
        ).fetchall()
    return tuple(row[0] for row in rows)


def slot_exists(connection: psycopg.Connection[Any], slot: str) -> bool:
    with explained(f"the slot {slot}"):
        return bool(connection.execute("SELECT FROM pg_replication_slots WHERE slot_name = %s", [slot]).rowcount)


def drop_slot(connection: psycopg.Connection[Any], slot: str) -> None:
    """Drops the slot if it exists. Raises `SystemUnavailable` while another connection uses it."""
    if slot_exists(connection, slot):
        with explained(f"the end of slot {slot}"):
            connection.execute("SELECT pg_drop_replication_slot(%s)", [slot])


def end_reader(connection: psycopg.Connection[Any], slot: str) -> None:
    """Ends the connection that uses the slot. The user that opened it is allowed to do so."""
    with explained(f"the end of the reader of slot {slot}"):
        connection.execute(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s AND active", [slot]
        )


def check_slot(connection: psycopg.Connection[Any], slot: str, lsn: int) -> None:
    """Raises `ConnectorFailed` if the slot cannot return all changes from `lsn` on.

    This source never confirms a slot beyond the committed position. So if a slot is beyond it, others have used or
    recreated the slot.
    """
    with explained(f"the slot {slot}"):
        row = connection.execute(
            "SELECT plugin, confirmed_flush_lsn::text, wal_status FROM pg_replication_slots WHERE slot_name = %s",
            [slot],
        ).fetchone()
    if row is None:
        raise slot_lost(slot, "it was dropped")
    plugin, confirmed, wal_status = row
    if wal_status == "lost":
        raise slot_lost(slot, "PostgreSQL has removed WAL that it needs (max_slot_wal_keep_size)")
    if plugin != "pgoutput":
        raise slot_lost(slot, f"it is of the plug-in {plugin}, not pgoutput")
    if confirmed is not None and lsn_of(confirmed) > lsn:
        raise slot_lost(slot, f"it is at {confirmed}, but this connector has read up to {lsn_text(lsn)} only")
