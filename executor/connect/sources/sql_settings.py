"""The settings of the source `sql`: the properties of Kafka Connect's JDBC source that apply here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ..connector_errors import InvalidConnector
from ..connector_settings import setting
from ..sql_databases import database_url
from .sql_values import TIMES

_INCREMENTING: Final = ("incrementing", "timestamp+incrementing")
_TIMED: Final = ("timestamp", "timestamp+incrementing")


@dataclass(frozen=True)
class SqlSourceSettings:
    connection_url: str = setting("Database, as SQLAlchemy writes it: postgresql+psycopg://user@host/database.")
    mode: str = setting(
        "How new rows are found: by a number that grows, by the time of a change, by both, or all rows at each look.",
        choices=("incrementing", "timestamp", "timestamp+incrementing", "bulk"),
    )
    topic_prefix: str = setting("Topics are called by it and the table; with a query it is the whole name.")
    connection_user: str | None = setting("User, in place of one in the URL.", default=None)
    connection_password: str | None = setting("Password, in place of one in the URL.", default=None, secret=True)
    table_whitelist: tuple[str, ...] = setting("Tables, with a schema or not; none: all tables.", default=())
    table_blacklist: tuple[str, ...] = setting("Tables that are not read.", default=())
    query: str | None = setting("A SELECT that is read in place of tables.", default=None)
    incrementing_column_name: str | None = setting("Column with a number that only grows.", default=None)
    timestamp_column_name: tuple[str, ...] = setting(
        "Column with the time of the last change; of several the first that is not NULL.", default=()
    )
    timestamp_delay_interval_ms: int = setting(
        "Rows that are younger are not read yet: transactions that began before may still add some.", default=0
    )
    timestamp_granularity: str = setting(
        "How times are written: as milliseconds, as microseconds, or as ISO 8601 with microseconds.",
        default="connect_logical",
        choices=TIMES,
    )
    validate_non_null: bool = setting("A row with NULL in these columns stops the task.", default=True)
    poll_interval_ms: int = setting("Pause between two looks.", default=5000)
    batch_max_rows: int = setting("Rows that are read at once.", default=1000)
    key_field: str | None = setting("Column that becomes the key.", default=None)

    def __post_init__(self) -> None:
        database_url(self.connection_url)
        wrong = next(self._wrong(), None)
        if wrong is not None:
            name, why = wrong
            raise InvalidConnector(f"{name} {why}", setting=name)

    def _wrong(self) -> Iterator[tuple[str, str]]:
        if self.mode in _INCREMENTING and not self.incrementing_column_name:
            yield "incrementing.column.name", f"is missing: mode={self.mode} needs it"
        if self.mode in _TIMED and not self.timestamp_column_name:
            yield "timestamp.column.name", f"is missing: mode={self.mode} needs it"
        if self.query is not None and (self.table_whitelist or self.table_blacklist):
            yield "query", "cannot be set beside table.whitelist or table.blacklist"
        if self.query is not None and not self.query.strip():
            yield "query", "is empty"
        if self.batch_max_rows < 1:
            yield "batch.max.rows", "must be 1 or more"
        for name, value in (
            ("poll.interval.ms", self.poll_interval_ms),
            ("timestamp.delay.interval.ms", self.timestamp_delay_interval_ms),
        ):
            if value < 0:
                yield name, "must not be negative"

    @property
    def number_column(self) -> str | None:
        return self.incrementing_column_name if self.mode in _INCREMENTING else None

    @property
    def time_columns(self) -> tuple[str, ...]:
        return self.timestamp_column_name if self.mode in _TIMED else ()
