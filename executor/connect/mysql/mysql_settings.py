"""The settings of the sources `mysql` and `mariadb`, by Debezium's names."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from typing import Final

from ..connector_errors import InvalidConnector
from ..connector_settings import setting

_SSL_MODES: Final = ("disabled", "preferred", "required", "verify_ca", "verify_identity")
_SERVER_IDS: Final = 1 << 32
_OWN_IDS: Final = 1 << 30


@dataclass(frozen=True)
class MySqlSettings:
    database_hostname: str = setting("Host of the server, or the path of its socket.")
    database_user: str = setting("User, with the rights SELECT, REPLICATION SLAVE and REPLICATION CLIENT.")
    topic_prefix: str = setting("Topics are called prefix.database.table.", earlier="database.server.name")
    database_password: str | None = setting("Password of the user.", default=None, secret=True)
    database_port: int = setting("Port of the server.", default=3306)
    database_server_id: int | None = setting(
        "Number of this connector among the replicas of the server; by default one made of its name.", default=None
    )
    database_ssl_mode: str = setting("Whether the connection uses TLS.", default="preferred", choices=_SSL_MODES)
    database_ssl_ca: str | None = setting("File with the certificates that are trusted.", default=None)
    database_include_list: tuple[str, ...] = setting(
        "Patterns for databases; all without it.", default=(), earlier="database.whitelist"
    )
    database_exclude_list: tuple[str, ...] = setting(
        "Patterns for databases.", default=(), earlier="database.blacklist"
    )
    table_include_list: tuple[str, ...] = setting(
        "Patterns for database.table; all tables without it.", default=(), earlier="table.whitelist"
    )
    table_exclude_list: tuple[str, ...] = setting("Patterns for database.table.", default=(), earlier="table.blacklist")
    column_exclude_list: tuple[str, ...] = setting(
        "Patterns for database.table.column; a column of the key stays in the key.",
        default=(),
        earlier="column.blacklist",
    )
    snapshot_mode: str = setting(
        "Whether the existing rows come first.", default="initial", choices=("initial", "never", "no_data")
    )
    snapshot_locking_mode: str = setting(
        "MySQL: whether writes wait for a moment while a snapshot begins, if the user has the right RELOAD."
        " MariaDB needs no lock.",
        default="minimal",
        choices=("minimal", "none"),
    )
    decimal_handling_mode: str = setting(
        "DECIMAL as an exact JSON number, a string, a double, or Debezium's base64.",
        default="number",
        choices=("number", "string", "double", "precise"),
    )
    bigint_unsigned_handling_mode: str = setting(
        "BIGINT UNSIGNED as a JSON number with all its digits, or Debezium's base64.",
        default="long",
        choices=("long", "precise"),
    )
    time_precision_mode: str = setting(
        "Times in microseconds and milliseconds as their precision asks for, milliseconds, or ISO 8601.",
        default="adaptive_time_microseconds",
        choices=("adaptive_time_microseconds", "connect", "isostring"),
    )
    tombstones_on_delete: bool = setting("A tombstone follows each delete.", default=True)
    truncate_handling_mode: str = setting(
        "TRUNCATE, and DDL that takes rows away, deletes the keys of the topic, or is left out, as Debezium does by"
        " default.",
        default="delete",
        choices=("delete", "skip"),
    )
    incremental_snapshot_chunk_size: int = setting(
        "Rows of a chunk of a table that is read while the stream goes on.", default=4096
    )
    heartbeat_interval_ms: int = setting("How often the position moves while nothing comes.", default=10_000)
    max_batch_size: int = setting("Rows of a chunk.", default=2048)

    def __post_init__(self) -> None:
        for name in ("database_include_list", "database_exclude_list", "table_include_list", "table_exclude_list",
                     "column_exclude_list"):  # fmt: skip
            for pattern in getattr(self, name):
                try:
                    re.compile(pattern)
                except re.error as error:
                    raise _wrong(name, f'has "{pattern}", which is no regular expression: {error}') from None
        for name in ("max_batch_size", "incremental_snapshot_chunk_size"):
            if getattr(self, name) < 1:
                raise _wrong(name, f"is {getattr(self, name)}, but must be positive")
        if self.heartbeat_interval_ms < 0:
            raise _wrong("heartbeat_interval_ms", f"is {self.heartbeat_interval_ms}, but must not be negative")
        if self.database_server_id is not None and not 1 <= self.database_server_id < _SERVER_IDS:
            raise _wrong("database_server_id", f"is {self.database_server_id}, but must be from 1 to {_SERVER_IDS - 1}")
        if self.database_ssl_mode.startswith("verify") and self.database_ssl_ca is None:
            raise _wrong("database_ssl_ca", f"is missing: database.ssl.mode is {self.database_ssl_mode}")

    def server_id(self, connector: str) -> int:
        """The server id of this connector. By default it is far from the small numbers that people use for servers."""
        return self.database_server_id or _OWN_IDS + zlib.crc32(f"{self.topic_prefix}/{connector}".encode()) % _OWN_IDS


def _wrong(field: str, what: str) -> InvalidConnector:
    name = field.replace("_", ".")
    return InvalidConnector(f"{name} {what}", setting=name)
