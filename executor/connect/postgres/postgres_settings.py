"""The settings of the source `postgres`, by Debezium's names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from ..connector_settings import setting

_SSL_MODES: Final = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")


@dataclass(frozen=True)
class PostgresSettings:
    database_hostname: str = setting("Host of PostgreSQL, or the folder of its socket.")
    database_user: str = setting("User, with the attribute REPLICATION.")
    database_dbname: str = setting("Database.")
    topic_prefix: str = setting("Topics are called prefix.schema.table.", earlier="database.server.name")
    database_password: str | None = setting("Password of the user.", default=None, secret=True)
    database_port: int = setting("Port of PostgreSQL.", default=5432)
    database_sslmode: str = setting("As libpq's sslmode.", default="prefer", choices=_SSL_MODES)
    database_sslrootcert: str | None = setting("File with the certificates that are trusted.", default=None)
    table_include_list: tuple[str, ...] = setting(
        "Patterns for schema.table; all tables without it.", default=(), earlier="table.whitelist"
    )
    table_exclude_list: tuple[str, ...] = setting("Patterns for schema.table.", default=(), earlier="table.blacklist")
    slot_name: str | None = setting("Replication slot; by default millstream_ and the connector's name.", default=None)
    publication_name: str | None = setting("Publication; by default as the slot.", default=None)
    publication_autocreate_mode: str = setting(
        "Whether the publication is created.", default="filtered", choices=("filtered", "disabled")
    )
    snapshot_mode: str = setting(
        "Whether the existing rows come first.", default="initial", choices=("initial", "never", "no_data")
    )
    decimal_handling_mode: str = setting(
        "NUMERIC as an exact JSON number, a string, a double, or Debezium's base64.",
        default="number",
        choices=("number", "string", "double", "precise"),
    )
    time_precision_mode: str = setting(
        "Times in microseconds (adaptive), milliseconds (connect), or ISO 8601.",
        default="adaptive",
        choices=("adaptive", "connect", "isostring"),
    )
    tombstones_on_delete: bool = setting("A tombstone follows each delete.", default=True)
    unavailable_value_placeholder: str = setting(
        "What stands for a TOAST value that was left alone.", default="__debezium_unavailable_value"
    )
    truncate_handling_mode: str = setting(
        "TRUNCATE deletes all keys of the topic, or is left out, as Debezium does by default.",
        default="delete",
        choices=("delete", "skip"),
    )
    incremental_snapshot_chunk_size: int = setting(
        "Rows of a chunk of a table that is read while the stream goes on.", default=4096
    )
    heartbeat_interval_ms: int = setting(
        "How often the position moves while nothing comes; 0 emits no messages.", default=10_000
    )
    max_batch_size: int = setting("Rows of a chunk.", default=2048)

    def __post_init__(self) -> None:
        for pattern in (*self.table_include_list, *self.table_exclude_list):
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f'"{pattern}" is no regular expression: {error}') from None
        if min(self.max_batch_size, self.incremental_snapshot_chunk_size) < 1 or self.heartbeat_interval_ms < 0:
            raise ValueError(
                "max.batch.size and incremental.snapshot.chunk.size must be positive,"
                " heartbeat.interval.ms not negative"
            )

    @property
    def parameters(self) -> dict[str, str]:
        """The connection parameters for libpq."""
        given = {
            "host": self.database_hostname, "port": str(self.database_port), "user": self.database_user,
            "password": self.database_password, "dbname": self.database_dbname, "sslmode": self.database_sslmode,
            "sslrootcert": self.database_sslrootcert,
        }  # fmt: skip
        return {name: value for name, value in given.items() if value is not None}

    def slot(self, connector: str) -> str:
        return self.slot_name or "millstream_" + re.sub(r"[^a-z0-9_]", "_", connector.lower())[:50]

    def publication(self, connector: str) -> str:
        return self.publication_name or self.slot(connector)
