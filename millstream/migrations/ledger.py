"""The metadata of migrations on a server: a stream of events and a table of their latest states, compatible with
ksql-migrations.

In addition to ksql-migrations' keys (CURRENT, and each version), a key per version records the progress in its file,
so that a migration can be resumed in the middle, and a key which process applies it, so that only one does. Reads use
the stream: an event is readable as soon as it is written.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, Literal

import pyarrow as pa

from millstream.errors import StatementError
from millstream.server.client import DataClient, RemoteError
from millstream.sql.identifiers import quote_identifier

from .files import BadMigration, MigrationProject

State = Literal["PENDING", "RUNNING", "MIGRATED", "ERROR"]
CURRENT: Final = "CURRENT"
NONE: Final = "<none>"
_COLUMNS: Final = (
    "VERSION_KEY", "VERSION", "NAME", "STATE", "CHECKSUM", "STARTED_ON", "COMPLETED_ON", "PREVIOUS", "ERROR_REASON",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Event:
    """One row. `previous`: the previous version; in a progress event the number of the statement."""

    version_key: str
    version: str
    name: str
    state: str
    checksum: str = ""
    started_on: str = ""
    completed_on: str = ""
    previous: str = NONE
    error_reason: str = "N/A"


@dataclass(frozen=True, slots=True)
class MigrationProgress:
    """`statement`: the last one that was started, from 1. `failed`: it failed without effect; otherwise its outcome is
    unknown. `digest`: of the statements up to it, without it if it failed."""

    statement: int
    failed: bool
    digest: str


class Ledger:
    """The metadata of one project. In: `client`: used for nothing else, because its session must have no settings."""

    def __init__(self, client: DataClient, project: MigrationProject) -> None:
        names = project.properties
        self._client = client
        self._stream = names["ksql.migrations.stream.name"].upper()
        self._table = names["ksql.migrations.table.name"].upper()
        self._stream_topic = names["ksql.migrations.stream.topic.name"] or f"default_ksql_{self._stream}"
        self._table_topic = names["ksql.migrations.table.topic.name"] or f"default_ksql_{self._table}"
        self._replicas = names["ksql.migrations.topic.replicas"]

    def exists(self) -> bool:
        streams, tables = self._client.execute("SHOW STREAMS; SHOW TABLES;")
        return self._stream in {line["name"] for line in streams["streams"]} and self._table in {
            line["name"] for line in tables["tables"]
        }

    def initialize(self) -> bool:
        """Creates the metadata; False if it exists."""
        if self.exists():
            return False
        columns = ", ".join(f"{name.lower()} STRING{' KEY' if name == 'VERSION_KEY' else ''}" for name in _COLUMNS)
        latest = ", ".join(f"LATEST_BY_OFFSET({name}) AS {name}" for name in _COLUMNS[1:])
        stream, table = quote_identifier(self._stream), quote_identifier(self._table)
        self._client.execute(
            f"CREATE STREAM IF NOT EXISTS {stream} ({columns}) WITH (KAFKA_TOPIC={_text(self._stream_topic)}, "
            f"VALUE_FORMAT='JSON', PARTITIONS=1, REPLICAS={int(self._replicas)});"
        )
        self._client.execute(
            f"SET 'auto.offset.reset'='earliest'; CREATE TABLE IF NOT EXISTS {table} "
            f"WITH (KAFKA_TOPIC={_text(self._table_topic)}) AS SELECT VERSION_KEY, {latest} FROM {stream} "
            "GROUP BY VERSION_KEY EMIT CHANGES; UNSET 'auto.offset.reset';"
        )
        return True

    def destroy(self) -> bool:
        """Drops the metadata; False if there is none."""
        streams, tables, queries = self._client.execute("SHOW STREAMS; SHOW TABLES; SHOW QUERIES;")
        gone = False
        for query in queries["queries"]:
            if query["sinks"] == [self._table]:
                self._client.execute(f"TERMINATE {quote_identifier(query['id'])};")
        for kind, name, lines in (
            ("TABLE", self._table, tables["tables"]),
            ("STREAM", self._stream, streams["streams"]),
        ):
            if name in {line["name"] for line in lines}:
                self._client.execute(f"DROP {kind} {quote_identifier(name)} DELETE TOPIC;")
                gone = True
        return gone

    # -------------------------------------------------------------- reading

    def read(self) -> MigrationEvents:
        """Raises `BadMigration` if there is no metadata."""
        names = ", ".join(_COLUMNS)
        try:
            with self._client.query(f"SELECT {names} FROM {quote_identifier(self._stream)};") as rows:
                events = [Event(*(_string(value) for value in row.values)) for row in rows]
        except (StatementError, RemoteError):
            if self.exists():
                raise
            raise BadMigration(
                "the server has no migration metadata", hint="Run `millstream migrate initialize-metadata` first."
            ) from None
        return MigrationEvents({event.version_key: event for event in events}, _holders(events))

    # -------------------------------------------------------------- writing

    def write(self, *events: Event) -> None:
        """Writes all of the events, or none."""
        columns = {name: [getattr(event, name.lower()) for event in events] for name in _COLUMNS}
        self._client.insert(self._stream, pa.table({name: pa.array(column) for name, column in columns.items()}))

    def state(self, event: Event) -> None:
        """Writes an event of a version, also as the current one."""
        self.write(event, replace(event, version_key=CURRENT))

    def claim(self, event: Event, *, resume: bool) -> str:
        """Makes this process the only one that applies the event's version; returns what `release` takes. In: `resume`:
        a process that has claimed it before has ended. Raises `BadMigration` if another process applies it."""
        holder = self.read().holders.get(event.version)
        if holder is not None and not resume:
            raise is_running(event.version)
        if holder is not None:
            self.release(event, holder)
        own = uuid.uuid4().hex
        self.write(replace(event, version_key=claim_key(event.version), state="CLAIMED", checksum=own))
        if self.read().holders.get(event.version) != own:
            raise is_running(event.version)
        return own

    def release(self, event: Event, claim: str) -> None:
        self.write(replace(event, version_key=claim_key(event.version), state="RELEASED", checksum=claim))

    def progress(self, event: Event, statement: int, digest: str, failed: str = "") -> None:
        """Records that a statement starts or failed. In: `failed`: its error."""
        self.write(
            replace(
                event,
                version_key=progress_key(event.version),
                state="FAILED" if failed else "STARTED",
                checksum=digest,
                previous=str(statement),
                completed_on="",
                error_reason=failed or "N/A",
            )
        )


@dataclass(frozen=True, slots=True)
class MigrationEvents:
    """The last event of each key. `holders`: the claim that holds, by version."""

    by_key: Mapping[str, Event]
    holders: Mapping[str, str]

    def current(self) -> int:
        """The last completed version; 0 before the first."""
        event = self.by_key.get(CURRENT)
        if event is None:
            return 0
        done = event.version if event.state == "MIGRATED" else event.previous
        return int(done) if done.isdecimal() else 0

    def of(self, version: int) -> Event | None:
        return self.by_key.get(str(version))

    def state_of(self, version: int) -> State:
        event = self.of(version)
        state: Any = "PENDING" if event is None else event.state
        return state

    def progress_of(self, version: int) -> MigrationProgress | None:
        """None if no statement of the file has started."""
        event = self.by_key.get(progress_key(str(version)))
        if event is None or not event.previous.isdecimal():
            return None
        return MigrationProgress(int(event.previous), event.state == "FAILED", event.checksum)


def progress_key(version: str) -> str:
    return f"{version}.statement"


def claim_key(version: str) -> str:
    return f"{version}.claim"


def is_running(version: str) -> BadMigration:
    return BadMigration(
        f"version {version} is recorded as running",
        hint="If it is no longer running, add --resume: it continues after the last statement that has run.",
    )


def _holders(events: Iterable[Event]) -> dict[str, str]:
    """The first claim of each version that is not released. All processes read the events in the same order."""
    found: dict[str, str] = {}
    for event in events:
        if event.version_key != claim_key(event.version):
            continue
        if event.state == "CLAIMED":
            found.setdefault(event.version, event.checksum)
        elif found.get(event.version) == event.checksum:
            del found[event.version]
    return found


def now_text() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"


def _string(value: object) -> str:
    return "" if value is None else str(value)


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
