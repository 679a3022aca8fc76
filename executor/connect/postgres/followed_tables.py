"""Notices tables that are created, dropped or renamed while a connector runs.

The stream says nothing of these. So the catalog is asked from time to time. A new table is published and then read in
chunks. A table that is gone, also if another one has its name by now, is forgotten once the stream has passed the
moment at which that was seen: its topic is emptied, and only then may the new table of that name be published.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import psycopg
import structlog

from ..cdc.cdc_records import is_named, topic_of
from ..connector import Chunk, Position
from ..connector_errors import ConnectorFailed
from .pg_connections import explained, lsn_of
from .pg_tables import ensure_publication, no_table, published_tables, unpublished_tables
from .postgres_settings import PostgresSettings

_log = structlog.get_logger("millstream.connect")


class FollowedTables:
    """State: when the catalog is asked next; where the stream was when a table was seen to be gone."""

    def __init__(self, connection: psycopg.Connection[Any], publication: str, settings: PostgresSettings) -> None:
        self._connection = connection
        self._publication = publication
        self._settings = settings
        self._pause_s = (settings.heartbeat_interval_ms or 10_000) / 1000
        self._next_look = time.monotonic() + self._pause_s
        self._gone_at: int | None = None

    @property
    def _publishes(self) -> bool:
        return self._settings.publication_autocreate_mode == "filtered"

    def is_named(self, table: str) -> bool:
        return is_named(table, self._settings.table_include_list, self._settings.table_exclude_list)

    def published(self) -> list[str] | None:
        """The published tables that the settings name; None without a publication."""
        tables = published_tables(self._connection, self._publication)
        return None if tables is None else [table for table in tables if self.is_named(table)]

    def publish(self) -> None:
        ensure_publication(
            self._connection, self._publication, self._settings.table_include_list, self._settings.table_exclude_list,
            create=self._publishes,
        )  # fmt: skip

    def look(self, known: Sequence[str]) -> bool:
        """Whether the connector has to begin anew from its position, because there are tables to publish."""
        if time.monotonic() < self._next_look or self._gone_at is not None:
            return False
        self._next_look = time.monotonic() + self._pause_s
        if self.notice(known):
            return False
        if not set(self.published() or ()) <= set(known):
            return True
        try:
            return self._publishes and bool(self._unpublished())
        except ConnectorFailed as error:
            _log.warning("a new table cannot be published", error=error.message)
            return False

    def check_names(self, known: Sequence[str]) -> None:
        """Raises `ConnectorFailed` if the settings name none of the known tables, and no others."""
        if known and not any(map(self.is_named, known)) and not self.published() and not self._unpublished():
            raise no_table(self._settings.table_include_list)

    def _unpublished(self) -> list[tuple[str, str, bool]]:
        settings = self._settings
        return unpublished_tables(
            self._connection, self._publication, settings.table_include_list, settings.table_exclude_list
        )

    def notice(self, known: Sequence[str]) -> bool:
        """Whether a known table is not read any more: it is gone, or the settings do not name it."""
        published = self.published()
        if published is None or set(known) <= set(published):
            return False
        with explained("the end of the WAL"):
            row = self._connection.execute("SELECT pg_current_wal_lsn()::text").fetchone()
        assert row is not None
        self._gone_at = lsn_of(row[0])
        return True

    def forgotten(self, position: Position, seen_lsn: int) -> Chunk | None:
        """A chunk that empties the topics of tables that are gone, once the stream has returned all their changes."""
        if self._gone_at is None or seen_lsn < self._gone_at:
            return None
        known, published = position["tables"], self.published() or []
        stay = [table for table in known if table in published]
        gone = [table for table in known if table not in published and self.is_named(table)]
        _log.info("tables are not read any more", tables=[table for table in known if table not in stay], gone=gone)
        skips = self._settings.truncate_handling_mode == "skip"
        empties = () if skips else tuple(topic_of(self._settings.topic_prefix, *table.split(".", 1)) for table in gone)
        pending = [entry for entry in position.get("backfill", ()) if entry["table"] in stay]
        rest = {name: value for name, value in position.items() if name != "backfill"}
        rest["keys"] = {name: key for name, key in position.get("keys", {}).items() if name in stay}
        return Chunk([], {**rest, "tables": stay, **({"backfill": pending} if pending else {})}, empties=empties)
