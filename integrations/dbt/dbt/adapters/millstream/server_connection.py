"""A connection to a server as dbt wants it, with cursors. It knows nothing of dbt."""

from __future__ import annotations

import itertools
import ssl
import urllib.parse
from collections.abc import Mapping
from typing import Any

from millstream.errors import InvalidStatement, MillstreamError
from millstream.server.client import HttpClient, Rows, gives_rows
from millstream.sql.settings.property_table import PULL_FULL_SQL


def connect_to(
    url: str,
    user: str | None,
    password: str | None,
    token: str | None,
    tls_ca: str | None,
    properties: Mapping[str, Any],
) -> ServerConnection:
    """Raises `MillstreamError` if no server answers, or does not accept the user; `OSError` for a bad `tls_ca`."""
    tls = ssl.create_default_context(cafile=tls_ca) if tls_ca else None
    client = HttpClient(url_of(url, user, password), token, tls=tls)
    client.info()
    client.get(f"/is_valid_property/{PULL_FULL_SQL.name}")  # everybody may ask for the information
    return ServerConnection(client, properties)


def url_of(url: str, user: str | None, password: str | None) -> str:
    """The URL with the user, whom a profile names on a line of its own.

    >>> url_of("https://here:8088", "ana", "a/b@c")
    'https://ana:a%2Fb%40c@here:8088'
    """
    if not user:
        return url
    scheme, _, rest = url.rpartition("://")
    quoted = (urllib.parse.quote(part, safe="") for part in (user, password or ""))
    return f"{scheme or 'http'}://{':'.join(quoted)}@{rest.rpartition('@')[2]}"


def text_of(error: MillstreamError) -> str:
    """The message with the hint, once: a server's message contains its own."""
    return f"{error.message}\nhint: {error.hint}" if error.hint else error.message


class ServerConnection:
    """`properties`: what holds for each statement, unless `use` says otherwise."""

    def __init__(self, client: HttpClient, properties: Mapping[str, Any]) -> None:
        self.client = client
        self._properties = {PULL_FULL_SQL.name: "true", **_as_text(properties)}
        self._running: Rows | None = None
        self.use({})

    def use(self, properties: Mapping[str, Any]) -> None:
        """The properties for later statements, in addition to the connection's own."""
        self.client.properties = {**self._properties, **_as_text(properties)}

    def cursor(self) -> ServerCursor:
        return ServerCursor(self)

    def run(self, sql: str) -> tuple[list[dict[str, Any]], Rows | None]:
        """The entities of statements, or the rows of a query."""
        if not gives_rows(sql):
            return self.client.execute(sql), None
        self._running = self.client.query(sql)
        return [], self._running

    def cancel(self) -> None:
        """Ends the running query; may be called from another thread. Other statements are short."""
        if self._running is not None:
            self._running.close()

    def commit(self) -> None:
        """Does nothing: statements have already taken effect."""

    rollback = commit

    def close(self) -> None:
        self.cancel()
        self.client.close()


class ServerCursor:
    """The interface that dbt reads: `description` and rows, after `execute`. `message`: what the server said."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection
        self._rows: Rows | None = None
        self.description: list[tuple[str, str]] | None = None
        self.message = "OK"
        self.query_id: str | None = None

    def execute(self, sql: str, bindings: object = None) -> None:
        if bindings:
            raise InvalidStatement("a statement has bindings", hint="Write the values into the statement.")
        entities, self._rows = self._connection.run(sql)
        if self._rows is not None:
            self.description = list(zip(self._rows.column_names, self._rows.column_types, strict=True))
            self.query_id = self._rows.query_id
        for status in (entity["commandStatus"] for entity in entities if "commandStatus" in entity):
            self.message, self.query_id = str(status["message"]), status.get("queryId")

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        if self._rows is None:
            return []
        with self._rows as rows:
            return [row.values for row in itertools.islice(rows, size)]

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self.fetchmany()


def _as_text(properties: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in properties.items()}
