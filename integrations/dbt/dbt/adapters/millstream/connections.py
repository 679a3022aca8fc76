"""The profile, and the connection of each of dbt's threads."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from dbt.adapters.contracts.connection import AdapterResponse, Connection, ConnectionState, Credentials
from dbt.adapters.events.logging import AdapterLogger
from dbt.adapters.exceptions import FailedToConnectError
from dbt.adapters.sql import SQLConnectionManager
from dbt_common.exceptions import DbtConfigError, DbtDatabaseError

from millstream.errors import MillstreamError

from .relation import DATABASE, SCHEMA
from .server_connection import ServerConnection, connect_to, text_of

logger = AdapterLogger("Millstream")

_REFUSED = "Cannot replace"
_REBUILD = (
    "hint: the running query goes on as before. To rebuild it, with what reads it: "
    "dbt run --full-refresh --select NAME+ (docs/replacing-queries.md says what can be replaced)"
)


@dataclass
class MillstreamCredentials(Credentials):
    """`properties`: as for SET, for each statement. `wait_seconds`: how long a test waits until the queries that write
    what it reads have processed their input; 0 does not wait."""

    database: str = DATABASE
    schema: str = SCHEMA
    url: str = "http://127.0.0.1:8088"
    user: str | None = None
    password: str | None = None
    token: str | None = None
    tls_ca: str | None = None
    properties: dict[str, Any] = field(default_factory=dict)
    wait_seconds: float = 30.0

    _ALIASES = {"pass": "password", "host": "url"}  # noqa: RUF012 (a class variable of dbt's)

    def __post_init__(self) -> None:
        if (self.database, self.schema) != (DATABASE, SCHEMA):
            raise DbtConfigError(
                f"the profile names database '{self.database}' and schema '{self.schema}', and Millstream has one "
                "namespace: leave both lines out"
            )
        if "@" in self.url:
            raise DbtConfigError(
                "the url of the profile names a user, and dbt prints it: write user and password lines"
            )
        if self.tls_ca and not self.url.startswith("https://"):
            raise DbtConfigError(f"the profile has tls_ca, but its url is '{self.url}': write https://")
        if self.password and not self.user:
            raise DbtConfigError("the profile has a password and no user: add the line user")
        self.properties = {"auto.offset.reset": "earliest", **self.properties}

    @property
    def type(self) -> str:
        return "millstream"

    @property
    def unique_field(self) -> str:
        return self.url

    def _connection_keys(self) -> tuple[str, ...]:
        return ("url", "user", "database", "schema", "tls_ca", "properties", "wait_seconds")


class MillstreamConnectionManager(SQLConnectionManager):
    TYPE = "millstream"

    @contextmanager
    def exception_handler(self, sql: str) -> Generator[None]:
        try:
            yield
        except MillstreamError as error:
            text = text_of(error)
            raise DbtDatabaseError(f"{text}\n{_REBUILD}" if text.startswith(_REFUSED) else text) from error

    @classmethod
    def open(cls, connection: Connection) -> Connection:
        if connection.state == ConnectionState.OPEN:
            return connection
        profile: Any = connection.credentials
        try:
            connection.handle = connect_to(
                profile.url, profile.user, profile.password, profile.token, profile.tls_ca, profile.properties
            )
        except (MillstreamError, OSError) as error:
            connection.state, connection.handle = ConnectionState.FAIL, None
            about = text_of(error) if isinstance(error, MillstreamError) else f"tls_ca {profile.tls_ca}: {error}"
            raise FailedToConnectError(about) from error
        connection.state = ConnectionState.OPEN
        return connection

    @property
    def server(self) -> ServerConnection:
        """The connection of this thread."""
        return self.get_thread_connection().handle

    def cancel(self, connection: Connection) -> None:
        connection.handle.cancel()

    def begin(self) -> None:
        """Does nothing: there are no transactions."""

    def commit(self) -> None:
        """Does nothing."""

    def clear_transaction(self) -> None:
        """Does nothing."""

    def add_query(self, sql: str, auto_begin: bool = True, *args: Any, **kwargs: Any) -> tuple[Connection, Any]:
        return super().add_query(sql, False, *args, **kwargs)

    @classmethod
    def get_response(cls, cursor: Any) -> AdapterResponse:
        return AdapterResponse(_message=cursor.message, code=cursor.message, query_id=cursor.query_id)

    @classmethod
    def data_type_code_to_name(cls, type_code: int | str) -> str:
        return str(type_code)
