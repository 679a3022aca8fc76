"""The metadata of migrations on a server: a stream of events and a table of their latest states, compatible with
ksql-migrations.

In addition to ksql-migrations' keys (CURRENT, and each version), a key per version records the progress in its file,
so that a migration can be resumed in the middle, and a key which process applies it, so that only one does. That
process writes an event every few seconds, by which others know that it is alive. Reads use the stream: an event is
readable as soon as it is written.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, Literal

import pyarrow as pa

from millstream.errors import MillstreamError, StatementError
from millstream.server.client import DataClient, RemoteError
from millstream.sql.identifiers import quote_identifier

from .files import BadMigration, MigrationProject

State = Literal["PENDING", "RUNNING", "MIGRATED", "ERROR"]
CURRENT: Final = "CURRENT"
NONE: Final = "<none>"
_COLUMNS: Final = (
    "VERSION_KEY", "VERSION", "NAME", "STATE", "CHECKSUM", "STARTED_ON", "COMPLETED_ON", "PREVIOUS", "ERROR_REASON",
)  # fmt: skip
BEAT_S = 2.0
SILENT_MS = 8_000
"""A process that has written nothing for so long no longer applies its migration."""
_LOOK_S: Final = 0.2


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


@dataclass(frozen=True, slots=True)
class Claim:
    """`written_ms`: when its process wrote its last event for it; `now_ms`: when it was read, by the same clock."""

    id: str
    written_ms: int
    now_ms: int


class Ledger:
    """The metadata of one project. In: `client`: used for nothing else, because its session must have no settings."""

    def __init__(self, client: DataClient, project: MigrationProject) -> None:
        names = project.properties
        self._project = project
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
        names = ", ".join((*_COLUMNS, "ROWTIME", "UNIX_TIMESTAMP()"))
        try:
            with self._client.query(f"SELECT {names} FROM {quote_identifier(self._stream)};") as rows:
                found = [row.values for row in rows]
        except (StatementError, RemoteError):
            if self.exists():
                raise
            raise BadMigration(
                "the server has no migration metadata", hint="Run `millstream migrate initialize-metadata` first."
            ) from None
        events = [(Event(*map(_string, values[:-2])), int(values[-2]), int(values[-1])) for values in found]
        return MigrationEvents({event.version_key: event for event, _, _ in events}, _holders(events))

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
            self._check_ended(event.version, holder)
            self.release(event, holder.id)
        own = uuid.uuid4().hex
        self._write_claim(event, "CLAIMED", own)
        if not self.holds(event, own):
            raise is_running(event.version)
        return own

    def _check_ended(self, version: str, holder: Claim) -> None:
        """Raises `BadMigration` if the process that has this claim writes another event, as one that is alive does."""
        found: Claim | None = holder
        while found is not None and found.id == holder.id and found.now_ms - found.written_ms < SILENT_MS:
            if found.written_ms > holder.written_ms:
                raise BadMigration(
                    f"another process is applying version {version}", hint="Wait until it has ended, or end it first."
                )
            time.sleep(_LOOK_S)
            found = self.read().holders.get(version)

    def holds(self, event: Event, claim: str) -> bool:
        """Whether the claim is still the one that holds. Another process takes over if this one was silent for long."""
        holder = self.read().holders.get(event.version)
        return holder is not None and holder.id == claim

    @contextlib.contextmanager
    def beating(self, event: Event, claim: str, open_client: Callable[[], DataClient]) -> Generator[None]:
        """While it is entered, other processes read every few seconds that the one with the claim is alive."""
        ended = threading.Event()

        def beat() -> None:
            while not ended.wait(BEAT_S):
                with contextlib.suppress(MillstreamError), contextlib.closing(open_client()) as client:
                    Ledger(client, self._project)._write_claim(event, "BEATING", claim)

        thread = threading.Thread(target=beat, name="migration beats", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _write_claim(self, event: Event, state: str, claim: str) -> None:
        self.write(replace(event, version_key=claim_key(event.version), state=state, checksum=claim))

    def release(self, event: Event, claim: str) -> None:
        self._write_claim(event, "RELEASED", claim)

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
    holders: Mapping[str, Claim]

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


def _holders(events: Iterable[tuple[Event, int, int]]) -> dict[str, Claim]:
    """The first claim of each version that is not released. All processes read the events in the same order."""
    found: dict[str, Claim] = {}
    for event, written_ms, now_ms in events:
        if event.version_key != claim_key(event.version):
            continue
        holder = found.get(event.version)
        if event.state == "CLAIMED" and holder is None:
            found[event.version] = Claim(event.checksum, written_ms, now_ms)
        elif holder is None or holder.id != event.checksum:
            continue
        elif event.state == "BEATING":
            found[event.version] = replace(holder, written_ms=written_ms)
        elif event.state == "RELEASED":
            del found[event.version]
    return found


def now_text() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"


def _string(value: object) -> str:
    return "" if value is None else str(value)


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
