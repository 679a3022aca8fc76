"""The source `sql`: polls rows of tables, or of a query, of any database that SQLAlchemy supports.

For each table, a position contains the number and the time of the last row that was read. The next rows are those after
it in this order, so each row is in the log exactly once, whenever the task dies. The rows with the same time are one
transaction of the log; in mode bulk all rows of a table are one transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from ..connector import Chunk, ConnectRecord, Position, SourceConnector, TaskInfo
from ..connector_errors import ConnectorFailed, SystemUnavailable
from ..sql_databases import database_engine, database_errors, database_url
from .far_times import read_exactly
from .sql_scan import RowScan, SqlPlace, next_rows, without_a_place
from .sql_settings import SqlSourceSettings
from .sql_values import json_row


class SqlSource(SourceConnector):
    """Rows of a SQL database, by polling.

    State: a connection pool, the current scan, and the time of the next look at each table.
    """

    settings = SqlSourceSettings

    def __init__(self, settings: SqlSourceSettings, task: TaskInfo) -> None:
        self._settings = settings
        self._clock = task.clock
        self._scan: RowScan | None = None
        self._next_look: dict[str, float] = {}
        url = database_url(settings.connection_url, settings.connection_password, settings.connection_user)
        if url.drivername.startswith("sqlite") and not _there(url.database):
            raise SystemUnavailable(f"there is no file {url.database}")  # SQLite would create it
        self._engine = database_engine(url, pool_size=1)
        read_exactly(self._engine)

    def read(self, position: Position | None, timeout_s: float) -> Chunk | None:
        known: Mapping[str, Any] = {} if position is None else position["tables"]
        with database_errors():
            if self._scan is None:
                self._scan = self._begun(known)
            if self._scan is not None:
                return self._chunk(self._scan, known)
        waits_s = min(self._next_look.values(), default=self._clock.monotonic()) - self._clock.monotonic()
        self._clock.sleep(max(0.0, min(timeout_s, waits_s)))
        return None

    def close(self) -> None:
        if self._scan is not None:
            self._scan.close()
        self._engine.dispose()

    def _begun(self, known: Mapping[str, Any]) -> RowScan | None:
        """Begins a scan of a table that is due and has new rows; the table that has waited longest comes first."""
        now = self._clock.monotonic()
        if self._next_look and min(self._next_look.values()) > now:
            return None
        tables = self._tables()
        self._next_look = {
            name: self._next_look[name] if name in self._next_look else self._first_look(known.get(name), now)
            for name in tables
        }
        for table in sorted(tables, key=self._next_look.__getitem__):
            if self._next_look[table] > now:
                break
            self._check(table)
            scan = next_rows(self._engine, self._settings, table, SqlPlace.of(known.get(table)))
            if scan is not None:
                return scan
            self._next_look[table] = now + self._settings.poll_interval_ms / 1000
        if not tables:
            self._next_look = {"": now + self._settings.poll_interval_ms / 1000}
        return None

    def _first_look(self, known: Mapping[str, Any] | None, now: float) -> float:
        """When to look first. In mode bulk the pause continues after a restart."""
        if known is None or self._settings.mode != "bulk":
            return now
        since_ms = max(0, self._clock.now_ms() - known["read_ms"])
        return now + max(0, self._settings.poll_interval_ms - since_ms) / 1000

    def _tables(self) -> Sequence[str]:
        """The names of the tables, as in the settings; an empty name stands for the query."""
        if self._settings.query is not None:
            return ("",)
        named = self._settings.table_whitelist or sorted(sa.inspect(self._engine).get_table_names())
        return [name for name in named if name not in self._settings.table_blacklist]

    def _check(self, table: str) -> None:
        if self._settings.validate_non_null and without_a_place(self._engine, self._settings, table):
            columns = [*self._settings.time_columns, self._settings.number_column]
            raise ConnectorFailed(
                f"{table or 'the query'} has a row with NULL in {' and '.join(filter(None, columns))}, which would "
                "never be read",
                hint="Give it a value, or ALTER CONNECTOR … WITH ('validate.non.null'='false') to leave such rows out.",
            )

    def _chunk(self, scan: RowScan, known: Mapping[str, Any]) -> Chunk:
        settings = self._settings
        rows, place, complete = scan.next()
        topic = settings.topic_prefix + scan.table.rpartition(".")[2]
        records = [self._record(topic, row) for row in rows]
        if scan.ended:
            self._scan = None
            pause_ms = settings.poll_interval_ms if scan.whole else 0
            self._next_look[scan.table] = self._clock.monotonic() + pause_ms / 1000
        at = {"read_ms": self._clock.now_ms()} if place is None else place.as_json()
        return Chunk(records, {"tables": {**known, scan.table: at}}, complete=complete)

    def _record(self, topic: str, row: Mapping[str, Any]) -> ConnectRecord:
        value = json_row(row, self._settings.timestamp_granularity)
        field = self._settings.key_field
        if field is None:
            return ConnectRecord(topic, None, value)
        found = field if field in value else next((name for name in value if name.lower() == field.lower()), None)
        if found is None:
            raise ConnectorFailed(
                f"key.field is {field}, but the rows of {topic} have no such column",
                hint=f"They have {', '.join(value)}.",
            )
        return ConnectRecord(topic, value[found], value)


def _there(database: str | None) -> bool:
    return not database or database.startswith((":", "file:")) or Path(database).exists()
