"""The engine: statements in, entities and rows out. Used by the HTTP server, the shell, notebooks and the Sandbox.

text → statements → (variables) → handler → command → catalog, topics, running queries
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Self

import pyarrow as pa

from millstream.errors import InvalidStatement, MillstreamError, StatementError

from ...executor.answers.keyed_rows import TooManyKeys
from ...executor.connect.connectors import Connectors
from ...executor.connect.mirrors import Mirrors
from ...executor.connect.secret_vault import KnownSecrets, SecretVault
from ...executor.executor import Executor
from ...logcore.client import LogClient
from ...planner.catalog import Catalog
from ...planner.expressions.readable import with_names
from ...planner.source_reading import SourceReading
from ...sql.ast import (
    AlterConnector,
    AssertSchema,
    AssertTopic,
    AssertValues,
    ControlConnector,
    ControlMirror,
    CreateConnector,
    CreateFromConnector,
    CreateMirror,
    CreateSecret,
    DropConnector,
    Explain,
    PrintTopic,
    Query,
    Resnapshot,
    ShowGraph,
    ShowLineage,
    Statement,
)
from ...sql.parser import parse
from ...sql.splitting import split_statements, statement_spans
from ..catalog.catalog_store import CatalogStore
from ..catalog.processing_log_stream import wanted_statement
from ..catalog.schema_store import SchemaStore
from ..config.properties import checked_properties
from ..config.server_settings import ServerSettings
from ..connect.connect_client import ConnectClient
from ..foreign_rows import ForeignRows
from ..handlers import handle
from ..handlers.forwarded_connectors import is_about_connectors
from ..handlers.rehearsal import Rehearsal
from ..insight.open_pushes import NoPushes, OpenPushes, find_push
from ..security.rights import on_source
from ..security.statement_rights import Surroundings, check_statement
from ..security.statement_secrets import say_no_secrets
from .appending import Appender, rows_for
from .command_statuses import CommandStatuses
from .constants import ConstantEvaluator
from .entities import Entity
from .materializations import Materializations
from .print_topic import PrintFeed
from .pull_lookups import Lookup
from .queries import AnswerColumns, OpenFeed, QueryResult, columns_of, run_query
from .request import Request
from .session import Session
from .source_readings import plan_reading
from .statement_settings import StatementSettings
from .substituted import Substituted

_LOCKLESS = (
    AlterConnector | AssertTopic | AssertSchema | AssertValues | ControlConnector | ControlMirror | CreateConnector
    | CreateFromConnector | CreateMirror | CreateSecret | DropConnector | Explain | Resnapshot | ShowGraph | ShowLineage
)  # fmt: skip

_Parsed = tuple[Statement, Substituted | None]


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class Engine:
    """One catalog over one log. Any thread may call the methods; changes happen one after the other.

    In: `executor` runs persistent queries, `open_feed` starts push queries; the engine closes the executor, but not the
    log. `properties`: the server's configuration. `paused`: no query runs before a RESUME. `vault`: encrypts secrets;
    without one, secrets are lost when this process ends. Call `close` at the end, or use it as a context manager.
    """

    def __init__(
        self,
        log: LogClient,
        executor: Executor,
        open_feed: OpenFeed,
        properties: Mapping[str, object] | None = None,
        *,
        now_ms: Callable[[], int] = wall_clock_ms,
        paused: bool = False,
        vault: SecretVault | None = None,
    ) -> None:
        self.log = log
        self.executor = executor
        self.properties: dict[str, str] = checked_properties(properties or {})
        self.settings = ServerSettings.of(self.properties)
        self._open_feed = open_feed
        self.open_pushes: OpenPushes = NoPushes()
        """The push queries of clients; the server that has the clients sets it."""
        self._now_ms = now_ms
        self.command_statuses = CommandStatuses()
        self._constants = ConstantEvaluator()
        self._materializations = Materializations(log)
        self._lock = threading.RLock()
        self.schemas = SchemaStore(log)
        self._appender = Appender(log, now_ms)
        known_secrets = KnownSecrets(vault or SecretVault(), lambda: self.catalog.secrets)
        self.connectors = Connectors(
            log, ForeignRows(lambda: self.catalog), self.schemas.schema, known_secrets, lambda: self.catalog
        )
        self.mirrors = Mirrors(log, known_secrets)
        cluster = self.settings.connect_cluster
        self._connect_cluster = None if cluster is None else ConnectClient(cluster)
        self._store = CatalogStore(log, executor, self.connectors, self.mirrors, self._lock)
        try:
            self._appender.recover()
            with self._lock:
                self._store.recover(paused=paused)
            self._create_processing_log_stream()
        except BaseException:
            self._store.close()
            self.mirrors.close()
            self.connectors.close()
            executor.close()
            raise

    @property
    def catalog(self) -> Catalog:
        """The current streams, tables, types and queries."""
        return self._store.catalog

    @property
    def open_feed(self) -> OpenFeed:
        """The function that starts push queries."""
        return self._open_feed

    @property
    def command_number(self) -> int:
        """The number of the last command that was applied; -1 if there is none."""
        return self._store.last_offset

    @property
    def lock(self) -> AbstractContextManager[object]:
        """Held while a statement runs. The schema registry, which writes what statements read, takes it, too."""
        return self._lock

    def _create_processing_log_stream(self) -> None:
        statement = wanted_statement(self.catalog, self.log) if self.settings.processing_log_stream else None
        if statement is not None:
            self.execute(statement, Session())

    def execute(self, text: str, session: Session, answers: list[Entity] | None = None) -> list[Entity]:
        """Runs the statements of `text` in order. Each statement has its whole effect or none. Raises `StatementError`.

        Of several statements none runs if one of them would be refused. What fails all the same, because something else
        changed meanwhile or another system refuses it, leaves those before it carried out; their answers are in
        `answers`, if that is given.
        """
        entities: list[Entity] = [] if answers is None else answers
        parsed = self._rehearse(text, session)
        for statement, substituted in self._statements(text, session, parsed=parsed):
            with self._turn(statement), self._about(text, session, substituted):
                entities += self._handled(statement, session)
        return entities

    def _rehearse(self, text: str, session: Session) -> list[_Parsed] | None:
        """Raises what one of several statements would raise. One alone is not rehearsed: it has no effect then. Returns
        the statements, unless there is one, or the value of a variable decides what they are."""
        if ";" not in text.rstrip().rstrip(";") or len(statement_spans(text)) < 2:
            return None
        rehearsal = Rehearsal(self._request(session))
        tried: list[_Parsed] = []
        for statement, substituted in self._statements(text, rehearsal.session, rehearsal):
            tried.append((statement, substituted))
            with self._about(text, session, substituted):
                if not rehearsal.try_out(statement):
                    return None
        return None if any(substituted for _, substituted in tried) else tried

    def run(self, statement: Statement, session: Session) -> list[Entity]:
        """Runs a statement that a route has built. Raises `StatementError`, `NotPermitted`."""
        self._check(statement, session)
        with self._turn(statement), self._about(statement.text, session):
            return self._handled(statement, session)

    def query(
        self,
        statement: Query | str,
        session: Session,
        open_feed: OpenFeed | None = None,
        push_rows_max: int | None = None,
    ) -> QueryResult:
        """Starts one SELECT. In: `open_feed`: for this push query only; `push_rows_max`: its limit of rows. Raises
        `StatementError` before any row."""
        text = statement if isinstance(statement, str) else statement.text
        parsed, substituted = self._one_query(statement, session) if isinstance(statement, str) else (statement, None)
        catalog = self.catalog
        # no lock: the catalog is an immutable value, so concurrent changes do not matter
        with self._about(text, session, substituted):
            result = run_query(parsed, self._request(session), open_feed or self._open_feed, push_rows_max)
        if result.planned_pull is not None and statement is text and self.catalog is catalog:
            self._materializations.lookups.learn(text, parsed, result.planned_pull, catalog, session)
        return result

    def columns_of(self, text: str, session: Session) -> AnswerColumns:
        """The columns of a SELECT's answer. Raises what planning raises."""
        with self._about(text, session):
            parsed, substituted = self._one_query(text, session)
            with self._about(text, session, substituted):
                return columns_of(parsed, self._request(session))

    def reading(self, text: str, session: Session, *, changes: bool = False) -> SourceReading:
        """How another program, with the user's rights, can itself read the rows of a SELECT from one stream or table.
        In: `changes`: of a table, all changes. Raises what planning raises."""
        with self._about(text, session):
            parsed, substituted = self._one_query(text, session)
            with self._about(text, session, substituted):
                return plan_reading(parsed, self._request(session), changes=changes)

    def lookup(self, text: str, session: Session) -> Lookup | None:
        """The look-up of one key of a table for this text, if `query` planned a similar one before. It plans nothing
        and waits for nothing. If the look-up has not read everything, call `update_lookup` before its answer. Raises
        `NotPermitted`."""
        catalog = self.catalog
        found = self._materializations.lookups.find(text, catalog, session)
        if found is not None:
            self._check(found.statement, session)
        return found

    def update_lookup(self, lookup: Lookup) -> bool:
        """Brings the look-up's table up to date, which may take a while. False if `query` has to run the text."""
        try:
            lookup.catch_up()
        except TooManyKeys:
            self._materializations.lookups.refuse(lookup)
            return False
        return True

    def insert(self, name: str, rows: pa.Table, session: Session) -> int:
        """Appends the rows to a stream or table, all or none, and returns how many. `rows_for` describes how their
        columns are matched with those of the source. Raises `StatementError`."""
        request = self._request(session)
        self.check_insert(name, session)
        with self._about(name, session):
            source = request.catalog.source(name, None)
            self._appender.append(source, *rows_for(source, rows, request.now_ms()))
        return rows.num_rows

    def check_insert(self, name: str, session: Session) -> None:
        """Raises `NotPermitted` if the session's user may not write to this stream or table."""
        session.rights.require(on_source("insert", name, self.catalog))

    def print_topic(self, statement: PrintTopic, session: Session | None = None) -> PrintFeed:
        """PRINT: lines of text. Raises `UnknownTopicPrinted` if the topic does not exist."""
        session = session or Session()
        with self._about(statement.text, session):
            return PrintFeed(statement, self.log, session.rights.visible(self.catalog), self.schemas.schema)

    def parse(self, text: str, session: Session) -> list[Statement]:
        """The statements of `text`, with the session's variables substituted."""
        return [statement for statement, _ in self._statements(text, session)]

    def ask_to_stop(self) -> None:
        """Asks connectors and mirrors to stop, because they may wait for other systems. It returns at once; call
        `close` next."""
        self.mirrors.ask_to_stop()
        self.connectors.ask_to_stop()

    def close(self) -> None:
        """Stops all queries; the next engine on this log continues them."""
        self.ask_to_stop()
        self._store.close()
        self.mirrors.close()
        self.connectors.close()
        self.executor.close()
        self._materializations.close()
        self._constants.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _handled(self, statement: Statement, session: Session) -> list[Entity]:
        entities = handle(statement, self._request(session))
        self.command_statuses.note(entities, session.rights)
        return entities

    def _turn(self, statement: Statement) -> AbstractContextManager[object]:
        """The lock, except for some statements. Assertions wait for effects of others, EXPLAIN for a busy query, and
        both change nothing. Statements that wait for other systems take the lock themselves, before or after that."""
        lockless = isinstance(statement, _LOCKLESS) or (
            self._connect_cluster is not None and is_about_connectors(statement)
        )
        return contextlib.nullcontext() if lockless else self._lock

    def _request(self, session: Session) -> Request:
        return Request(
            session=session,
            store=self._store,
            log=self.log,
            executor=self.executor,
            connectors=self.connectors,
            mirrors=self.mirrors,
            constants=self._constants,
            server_properties=self.properties,
            server=self.settings,
            now_ms=self._now_ms,
            schemas=self.schemas,
            appender=self._appender,
            materializations=self._materializations,
            lock=self._lock,
            pushes=self.open_pushes,
            connect_cluster=None if session.own_connectors else self._connect_cluster,
        )

    def _statements(
        self, text: str, session: Session, rehearsal: Rehearsal | None = None, parsed: list[_Parsed] | None = None
    ) -> Iterator[_Parsed]:
        """Every statement of every user passes here: a statement that its user may not run is refused."""
        try:
            for statement, substituted in self._parsed(text, session) if parsed is None else parsed:
                self._check(statement, session, rehearsal)
                yield statement, substituted
        except StatementError as error:
            say_no_secrets(error, error.text or text, unread=True)
            raise

    def _check(self, statement: Statement, session: Session, rehearsal: Rehearsal | None = None) -> None:
        if not session.rights.everything:
            settings = session.settings(self.properties)
            around = Surroundings(
                self.catalog if rehearsal is None else rehearsal.catalog,
                settings,
                self.log.topics if rehearsal is None else rehearsal.topics,
                lambda: self.schemas.registry,
                lambda written: find_push(written, self.open_pushes, session.rights) is not None,
            )
            check_statement(session.rights, statement, around)

    def _parsed(self, text: str, session: Session) -> Iterator[_Parsed]:
        """What contains no variable is parsed before anything runs: a misspelled statement must not leave those before
        it carried out. A statement with a variable is parsed just before it runs, because a DEFINE before it may set
        the variable."""
        if "${" not in text or not self._substitutes(session):
            yield from ((statement, None) for statement in parse(text))
            return
        spans = statement_spans(text)
        plain = [None if "${" in text[span.start : span.end] else Substituted.of(text, span, {}) for span in spans]
        parsed = [None if written is None else written.parsed() for written in plain]
        for span, written, statements in zip(spans, plain, parsed, strict=True):
            substituted = written or Substituted.of(text, span, session.variables)
            yield from ((each, substituted) for each in (substituted.parsed() if statements is None else statements))

    def _substitutes(self, session: Session) -> bool:
        return StatementSettings.of(session.settings(self.properties)).substitutes_variables

    @contextlib.contextmanager
    def _about(self, text: str, session: Session, substituted: Substituted | None = None) -> Generator[None]:
        """Gives errors the text that their spans refer to, and removes names and secrets that the user may not see."""
        try:
            yield
        except MillstreamError as error:
            if isinstance(error, StatementError):
                if error.text is None and substituted is not None:
                    substituted.place(error)
                elif error.text is None:
                    error.text = text
                error.message = with_names(error.message)
                error.args = (error.message,)
                say_no_secrets(error, text if substituted is None else substituted.text)
            session.rights.discreet(error, text, self.catalog, self.log.topics)
            raise

    def _one_query(self, text: str, session: Session) -> tuple[Query, Substituted | None]:
        statements = list(self._statements(text, session))
        if len(statements) != 1:
            raise InvalidStatement(f"Expected exactly one KSQL statement; found {len(statements)} instead", text=text)
        only, substituted = statements[0]
        if not isinstance(only, Query):
            raise InvalidStatement(
                f"{split_statements(text)[0].split()[0].upper()} is not a query.",
                text=text,
                hint="SELECT is one; send others to /ksql.",
            )
        return only, substituted
