"""A session of PostgreSQL's protocol: what each statement does and answers. It contains no bytes of the protocol.

All our statements go through the engine, which checks the user's rights. Queries on catalogs see only the part of the
catalog that the user sees. There are no transactions: BEGIN and COMMIT are accepted, but the statements between them
take effect at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

from millstream.errors import StatementError

from ...executor.answers.pull_limits import PullClient, serving
from ...planner.catalog import Catalog
from ...sql.printing import literal
from ...sql.settings.property_table import PULL_FULL_SQL
from ...sql.types import BOOLEAN, STRING, SqlType
from ..engine.appending import check_writable
from ..engine.engine import Engine
from ..engine.entities import Entity
from ..engine.pull_lookups import Lookup
from ..engine.queries import TOMBSTONE, PushLimitExceeded, QueryResult
from ..engine.session import Session
from ..http.context import OpenQueries, StatementWorkers, Workers
from ..http.lookups import LookedUp
from ..security.rights import Rights
from .backend import TransactionStatus
from .dialect.pg_dialect import RewrittenText, our_text
from .parameter_types import cast_types, inserts_json, parameter_types
from .pg_copy import CopyInAsked, copy_asked
from .pg_copy_in import BATCH_ROWS as BATCH_ROWS_IN
from .pg_copy_in import CopyIn, copy_into
from .pg_entities import (
    ALL_PREPARED,
    DescribedStatement,
    PgAnswer,
    PgCursor,
    PlacedError,
    command_tag,
    entity_rows,
    notices,
)
from .pg_names import shown_columns
from .pg_parameters import sample_literal
from .pg_rows import BATCH_ROWS, ComingRows, CursorRows, FixedRows, ListedRows, PgColumn, RowPiece, RowSource, fixed
from .pg_savepoints import Savepoints, savepoint_named
from .pg_settings import PgSettings
from .pg_statements import (
    PgKind,
    PgStatement,
    asks_catalogs,
    changes_something,
    deallocated,
    declared_cursor,
    fetch_asked,
    is_local,
    refused_clause,
    setting_of,
    shown_setting,
    transaction_modes,
)
from .pg_tokens import PgToken, words
from .sqlstates import (
    CANCELED,
    DUPLICATE_CURSOR,
    IN_FAILED_TRANSACTION,
    NO_TRANSACTION,
    NOT_SUPPORTED,
    READ_ONLY,
    UNDEFINED_CURSOR,
    PgRefused,
)
from .system_catalogs import SystemCatalogs
from .texts.typed_literals import is_json
from .texts.untyped_texts import untyped_texts

T = TypeVar("T")
_CURSORS_MAX: Final = 100
_MAY_BE_IN_FAILED: Final = (PgKind.ROLLBACK, PgKind.ROLLBACK_TO, PgKind.COMMIT, PgKind.EMPTY)


class PgContext(Protocol):
    """Shared by the sessions of a server."""

    @property
    def engine(self) -> Engine: ...

    @property
    def workers(self) -> Workers: ...

    @property
    def statements(self) -> StatementWorkers: ...

    @property
    def looked_up(self) -> LookedUp: ...

    @property
    def open_queries(self) -> OpenQueries: ...

    @property
    def catalogs(self) -> SystemCatalogs: ...

    @property
    def pulls(self) -> Any: ...


class PgSession:
    """One client's session. Only for the event loop, except `cancel`."""

    def __init__(self, context: PgContext, rights: Rights, user: str, database: str) -> None:
        self._context = context
        self.session = Session(
            properties={PULL_FULL_SQL.name: "true"}, rights=rights, rows_from="this port as a query of its own"
        )
        self.settings = PgSettings(self.session.properties)
        self.user = user
        self.database = database
        self.status: TransactionStatus = "I"
        self._cursors: dict[str, PgCursor] = {}
        self._savepoints: Savepoints[PgCursor] = Savepoints()
        self._client = PullClient()
        self._waited_for: RowSource | None = None
        self._receiving: asyncio.Timeout | None = None
        self._catalog_call: Callable[[], None] | None = None
        self._cancelled: str | None = None

    async def start(self, statement: PgStatement, literals: Mapping[int, str] | None = None) -> PgAnswer:
        """Runs a statement up to its first row. Raises `PlacedError`, `PgRefused`, `MillstreamError`."""
        if self.status == "E" and statement.kind not in _MAY_BE_IN_FAILED:
            raise PgRefused(
                IN_FAILED_TRANSACTION, "current transaction is aborted, commands ignored until end of transaction block"
            )
        self._check_read_only(statement)
        match statement.kind:
            case PgKind.ROWS:
                return await self._query(statement, literals or {})
            case PgKind.OURS | PgKind.OUR_ROWS:
                return await self._execute(statement, literals or {})
            case PgKind.COPY:
                return await self._copy(statement)
            case PgKind.DECLARE:
                return await self._declare(statement, literals or {})
            case PgKind.FETCH | PgKind.MOVE:
                return await self._fetch(statement)
            case _:
                return await self._command(statement)

    async def describe(self, statement: PgStatement, types: Mapping[int, SqlType]) -> DescribedStatement:
        """Describes a statement without running anything that makes changes. In: `types`: the parameter types that the
        client declared."""
        parameters = await self.parameters(statement, types)
        samples = {number: sample_literal(type_) for number, type_ in enumerate(parameters, 1)}
        match statement.kind:
            case PgKind.ROWS:
                return DescribedStatement(parameters, await self._columns(statement, samples))
            case PgKind.OUR_ROWS | PgKind.SHOW:
                return DescribedStatement(parameters, (await self.start(statement, samples)).columns)
            case PgKind.FETCH:
                cursor = self._cursor(fetch_asked(statement.tokens).cursor)
                return DescribedStatement(parameters, cursor.answer.columns)
            case _:
                return DescribedStatement(parameters, None)

    async def parameters(self, statement: PgStatement, types: Mapping[int, SqlType]) -> list[SqlType | None]:
        """The types of its parameters, as far as they are declared or can be inferred."""
        found = dict(types)
        if statement.parameter_count and statement.kind in (PgKind.ROWS, PgKind.OURS):
            inferred = await self._types(statement)
            json = {number: type_ for number, type_ in inferred.items() if is_json(type_)}
            found = {**inferred, **found, **{n: type_ for n, type_ in json.items() if found.get(n) in (None, STRING)}}
        return [found.get(number) for number in range(1, statement.parameter_count + 1)]

    def inserts_json(self, statement: PgStatement) -> bool:
        """Whether its texts may be JSON for a MAP or a STRUCT."""
        return statement.kind is PgKind.OURS and inserts_json(statement, self._visible())

    async def take(self, rows: RowSource, most: int) -> RowPiece | None:
        """The next rows. Raises the error that ended them."""
        self._waited_for = rows
        try:
            if self._cancelled is not None:
                rows.close()  # they started after `cancel` had searched for rows to close
            self._check_cancelled()
            piece = await rows.take(most)
            self._check_cancelled()
        finally:
            self._waited_for = None
        return piece

    async def received(self, receive: Callable[[], Awaitable[T]]) -> T:
        """A message from the client while a statement waits for it. Raises `PgRefused` when the statement is
        cancelled."""
        self._check_cancelled()
        try:
            async with asyncio.timeout(None) as self._receiving:
                return await receive()
        except TimeoutError:
            self._check_cancelled()
            raise
        finally:
            self._receiving = None

    @contextlib.contextmanager
    def working(self) -> Generator[None]:
        """Surrounds all work for one message; `cancel` ends this work."""
        self._client, self._cancelled = PullClient(), None
        timeout_s = self.settings.timeout_s
        loop = asyncio.get_running_loop()
        timer = None
        if timeout_s is not None:
            timer = loop.call_later(timeout_s, self.cancel, "canceling statement due to statement timeout")
        try:
            yield
        except PgRefused:
            raise
        except Exception:
            self._check_cancelled()
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def cancel(self, reason: str = "canceling statement due to user request") -> None:
        """Ends the running statement."""
        self._cancelled = reason
        self._client.leave()
        waited_for, call, receiving = self._waited_for, self._catalog_call, self._receiving
        if receiving is not None:
            self._receiving = None  # it expires once
            receiving.reschedule(asyncio.get_running_loop().time())
        if waited_for is not None:
            waited_for.close()
        if call is not None:
            call()

    def cursor_named(self, name: str) -> PgAnswer | None:
        """The answer of a cursor that DECLARE has created."""
        found = self._cursors.get(name)
        return None if found is None else found.answer

    def failed(self) -> None:
        """Marks the transaction as failed: a statement had an error as its answer."""
        if self.status == "T":
            self.status = "E"

    def close(self) -> None:
        for cursor in self._cursors.values():
            cursor.answer.close()
        self._cursors.clear()

    # Queries

    async def _query(self, statement: PgStatement, literals: Mapping[int, str]) -> PgAnswer:
        if asks_catalogs(statement.tokens, self._visible()):
            return await self._ask_catalogs(statement, literals, self.settings)
        ours = await self._ours(statement, literals)
        with self._placed(ours):
            return await self._run_query(ours.text, statement.tokens)

    async def _run_query(self, text: str, tokens: Sequence[PgToken]) -> PgAnswer:
        lookup = self._context.engine.lookup(text, self.session)
        if lookup is not None and await self._context.looked_up.is_current(lookup):
            return self._looked_up(lookup, tokens)
        client = self._client

        def run() -> tuple[QueryResult, list[Any]]:
            with serving(client):
                rows_max = self._context.engine.settings.push_rows_max
                result = self._context.engine.query(text, self.session, push_rows_max=rows_max)
                return result, list(result.batches()) if result.kind == "PULL" else []

        with self._context.pulls.admitted():
            result, batches = await self._context.workers.run(run)
        columns = shown_columns(list(result.schema), tokens)
        if result.kind == "PUSH":
            return self._push(result, columns)
        count = sum(map(len, batches))
        rows = FixedRows(batches[0].columns if batches else [], count)
        shown = self._registered(rows, result.query_id, count)
        return PgAnswer("SELECT", columns, shown, counts=True, sent=self._context.pulls.sent)

    def _looked_up(self, lookup: Lookup, tokens: Sequence[PgToken]) -> PgAnswer:
        with self._context.pulls.admitted():
            values = lookup.values()
        columns = shown_columns(list(lookup.schema), tokens)
        rows = ListedRows([] if values is None else [values], len(columns))
        return PgAnswer("SELECT", columns, rows, counts=True, sent=self._context.pulls.sent)

    def _registered(self, rows: FixedRows, query_id: str, count: int) -> RowSource:
        """Registers a large answer, which stays in memory until it is taken; the number of such answers is limited."""
        if count <= BATCH_ROWS:
            return rows
        self._context.open_queries.add(query_id, "PULL", rows, self.session.rights.name)
        rows.closed = lambda: self._context.open_queries.remove(query_id)
        return rows

    def _push(self, result: QueryResult, columns: list[PgColumn]) -> PgAnswer:
        if result.keyed:
            columns.append(PgColumn(TOMBSTONE, BOOLEAN))
        context, ending = self._context, None

        def ended() -> None:
            context.open_queries.remove(result.query_id)
            if ending is not None:
                ending.cancel()

        rows = ComingRows(result.query_id, result.tables(), result.close, ended)
        try:
            about = None if result.push is None else result.push.about
            context.open_queries.add(result.query_id, "PUSH", rows, self.session.rights.name, about)
        except BaseException:
            result.close()
            raise
        if (seconds := context.engine.settings.push_seconds_max) is not None:
            reason = PushLimitExceeded(f"the push query has run for {seconds:g} seconds, its limit")
            ending = asyncio.get_running_loop().call_later(seconds, rows.fail, reason)
        rows.start()
        return PgAnswer("SELECT", columns, rows, counts=True)

    async def _columns(self, statement: PgStatement, samples: Mapping[int, str]) -> list[PgColumn]:
        if asks_catalogs(statement.tokens, self._visible()):
            answer = await self._ask_catalogs(statement, samples, self.settings.copy())  # it is only described
            return answer.columns or []
        ours = await self._ours(statement, samples)
        with self._placed(ours):
            found = await self._context.workers.run(lambda: self._context.engine.columns_of(ours.text, self.session))
        columns = shown_columns(list(found.schema), statement.tokens)
        return [*columns, PgColumn(TOMBSTONE, BOOLEAN)] if found.keyed else columns

    async def _types(self, statement: PgStatement) -> dict[int, SqlType]:
        visible = self._visible()
        if statement.kind is PgKind.ROWS and asks_catalogs(statement.tokens, visible):
            return cast_types(statement)
        return await self._context.workers.run(lambda: parameter_types(statement, visible, [self.database]))

    async def _ask_catalogs(
        self, statement: PgStatement, literals: Mapping[int, str], settings: PgSettings
    ) -> PgAnswer:
        asking = self._context.catalogs.asking(statement, literals, self._visible(), settings, self.user, self.database)
        self._catalog_call = asking.interrupt
        told = self.settings.reported()
        try:
            table = await self._context.workers.run(asking.run)
        finally:
            self._catalog_call = None
        columns, rows = fixed(table)
        self._outside_transaction()  # for set_config
        return PgAnswer("SELECT", columns, rows, counts=True, statuses=self.settings.changed_since(told))

    # Statements of ksqlDB's dialect

    async def _execute(self, statement: PgStatement, literals: Mapping[int, str]) -> PgAnswer:
        if (refused := refused_clause(statement)) is not None:
            raise refused
        ours = await self._ours(statement, literals)
        with self._placed(ours):
            entities = await self._run_ours(ours.text + ";")
        first, second, third = words(statement.tokens, 3)
        second = third if second in ("OR", "SOURCE") else second
        second = words(statement.tokens, 4)[3] if (first, words(statement.tokens, 2)[1]) == ("CREATE", "OR") else second
        told = notices(entities)
        if statement.kind is PgKind.OUR_ROWS:
            columns, rows = entity_rows(entities)
            return PgAnswer(first, columns, ListedRows(rows, len(columns)), told)
        return PgAnswer(command_tag((first, second), entities, _row_count(statement)), notices=told)

    # Statements that only PostgreSQL has

    async def _command(self, statement: PgStatement) -> PgAnswer:
        match statement.kind:
            case PgKind.EMPTY:
                return PgAnswer("")
            case PgKind.BEGIN:
                warned = ["there is already a transaction in progress"] if self.status == "T" else []
                self.status = "T"
                self.settings.set_modes(transaction_modes(statement.tokens))
                return PgAnswer(statement.tokens[0].upper + " TRANSACTION" * (statement.tokens[0].upper == "START"),
                                notices=warned)  # fmt: skip
            case PgKind.COMMIT | PgKind.ROLLBACK:
                rolls_back = statement.kind is PgKind.ROLLBACK or self.status == "E"
                self.status = "I"
                statuses = self.settings.end_transaction()
                self._savepoints.clear()
                self._end_cursors([name for name, cursor in self._cursors.items() if not cursor.hold])
                return PgAnswer("ROLLBACK" if rolls_back else "COMMIT", statuses=statuses)
            case PgKind.SAVEPOINT | PgKind.RELEASE | PgKind.ROLLBACK_TO:
                return self._savepoint(statement)
            case PgKind.SET:
                return await self._set_setting(statement)
            case PgKind.RESET:
                statuses = await self._reset(shown_setting(statement.tokens))
                return PgAnswer("RESET", statuses=statuses | self._outside_transaction())
            case PgKind.SHOW:
                return self._show(statement)
            case PgKind.DISCARD:
                return self._discard(statement)
            case PgKind.DEALLOCATE:
                name = deallocated(statement.tokens)
                tag = "DEALLOCATE ALL" if name is None else "DEALLOCATE"
                return PgAnswer(tag, deallocates=ALL_PREPARED if name is None else name)
            case PgKind.CLOSE:
                return self._close_cursor(statement)
            case _:
                return PgAnswer(statement.tokens[0].upper)

    async def begin(self, parameters: Mapping[str, str]) -> None:
        """In: the parameters of the startup message. Raises what SET raises."""
        for name, value in self.settings.start_with(self.user, parameters):
            await self._set(name, value)
        self.settings.end_transaction()  # the first one has the defaults that the client asked for
        self.settings.began()

    async def _set_setting(self, statement: PgStatement) -> PgAnswer:
        local, notices = is_local(statement.tokens), list[str]()
        if local and self.status == "I":
            notices.append("SET LOCAL can only be used in transaction blocks")
        statuses = self.settings.set_modes(transaction_modes(statement.tokens))
        setting = setting_of(statement.tokens)
        if setting is not None:
            name, value = setting
            statuses |= await (self._reset(name, local=local) if value is None else self._set(name, value, local=local))
        return PgAnswer("SET", notices=notices, statuses=statuses | self._outside_transaction())

    def _outside_transaction(self) -> dict[str, str]:
        """Each statement there is a transaction of its own. Returns the settings to report."""
        return self.settings.end_transaction() if self.status == "I" else {}

    def _discard(self, statement: PgStatement) -> PgAnswer:
        """DISCARD ALL; nothing is kept of what the others name: plans, sequences and temporary tables."""
        _, what = words(statement.tokens, 2)
        if what != "ALL":
            return PgAnswer(f"DISCARD {what}")
        self.close()
        statuses = self.settings.reset(None) | self._outside_transaction()
        return PgAnswer("DISCARD ALL", statuses=statuses, deallocates=ALL_PREPARED)

    async def _set(self, name: str, value: str, *, local: bool = False) -> dict[str, str]:
        """A property of ours is set by a SET statement of the engine, which refuses properties of the server. It stays
        after the transaction, too."""
        own = self.settings.own_property(name)
        if own is None:
            return self.settings.set(name, value, local=local)
        await self._run_ours(f"SET {literal(own)} = {literal(value)};")
        return {}

    async def _reset(self, name: str, *, local: bool = False) -> dict[str, str]:
        own = self.settings.own_property(name)
        if own is None:
            return self.settings.reset(None if name == "all" else name, local=local)
        await self._run_ours(f"UNSET {literal(own)};")
        return {}

    async def _run_ours(self, text: str) -> list[Entity]:
        engine, client = self._context.engine, self._client
        return await self._context.statements.run(text, lambda: engine.execute(text, self.session), client)

    def _show(self, statement: PgStatement) -> PgAnswer:
        name = shown_setting(statement.tokens)
        if name == "all":
            columns = [PgColumn(each, STRING) for each in ("name", "setting", "description")]
            return PgAnswer("SHOW", columns, ListedRows([(*pair, "") for pair in self.settings.all()], 3))
        value = self.settings.get(name)
        return PgAnswer("SHOW", [PgColumn(name.replace(" ", "_"), STRING)], ListedRows([(value,)], 1))

    async def _copy(self, statement: PgStatement) -> PgAnswer:
        asked = copy_asked(statement)
        if isinstance(asked, CopyInAsked):
            copy = copy_into(asked, self._visible().sources)
            self._context.engine.check_insert(copy.source.name, self.session)
            check_writable(copy.source)
            return PgAnswer("COPY", copy_in=copy)
        answer = await self._query(asked.query, {})
        answer.copy, answer.tag = asked.format, "COPY"
        return answer

    async def append(self, copy: CopyIn, data: bytes, *, last: bool) -> None:
        """Parses more rows of COPY, and appends the complete ones when there are many. In: `last`: no more data
        follows. Raises what INSERT raises. Rows that were appended earlier stay, because there are no transactions."""
        self._check_cancelled()

        def take() -> None:
            copy.feed(data)
            if last:
                copy.end()
            table = copy.taken(least=0 if last else BATCH_ROWS_IN)
            if table is not None:
                self._context.engine.insert(copy.source.name, table, self.session)

        await self._context.workers.run(take)

    async def _declare(self, statement: PgStatement, literals: Mapping[int, str]) -> PgAnswer:
        asked = declared_cursor(statement)
        if asked.name in self._cursors:
            raise PgRefused(DUPLICATE_CURSOR, f'cursor "{asked.name}" already exists')
        if len(self._cursors) >= _CURSORS_MAX:
            raise PgRefused(NOT_SUPPORTED, f"{_CURSORS_MAX} cursors are open already", hint="CLOSE some of them.")
        self._cursors[asked.name] = PgCursor(await self._query(asked.query, literals), asked.hold)
        return PgAnswer("DECLARE CURSOR")

    async def _fetch(self, statement: PgStatement) -> PgAnswer:
        asked = fetch_asked(statement.tokens)
        cursor = self._cursor(asked.cursor)
        assert cursor.answer.rows is not None
        rows = CursorRows(cursor.answer.rows, asked.count, asked.timeout_s)
        if statement.kind is PgKind.FETCH:
            return PgAnswer("FETCH", cursor.answer.columns, rows, counts=True, sent=cursor.answer.sent)
        count = 0
        while (piece := await self.take(rows, BATCH_ROWS)) is not None:
            count += piece.count
        return PgAnswer(f"MOVE {count}")

    def _close_cursor(self, statement: PgStatement) -> PgAnswer:
        name = statement.tokens[1].named if len(statement.tokens) > 1 else None
        if name == "all":
            self.close()
            return PgAnswer("CLOSE CURSOR ALL")
        self._cursor(name or "").answer.close()
        del self._cursors[name or ""]
        return PgAnswer("CLOSE CURSOR")

    def _cursor(self, name: str) -> PgCursor:
        found = self._cursors.get(name)
        if found is None:
            raise PgRefused(UNDEFINED_CURSOR, f'cursor "{name}" does not exist', hint="DECLARE creates one.")
        return found

    def _end_cursors(self, names: Iterable[str]) -> None:
        for name in names:
            self._cursors.pop(name).answer.close()

    def _savepoint(self, statement: PgStatement) -> PgAnswer:
        name = savepoint_named(statement)
        if self.status == "I":
            asked = statement.kind.name.replace("_", " ")
            raise PgRefused(NO_TRANSACTION, f"{asked} can only be used in transaction blocks")
        match statement.kind:
            case PgKind.SAVEPOINT:
                self._savepoints.add(name, self._cursors)
            case PgKind.RELEASE:
                self._savepoints.release(name)
            case _:
                older = self._savepoints.return_to(name)
                self._end_cursors([name for name, cursor in self._cursors.items() if cursor not in older])
                self.status = "T"
        return PgAnswer(statement.tokens[0].upper)

    # Names and positions

    def _visible(self) -> Catalog:
        return self.session.rights.visible(self._context.engine.catalog)

    async def _ours(self, statement: PgStatement, literals: Mapping[int, str]) -> RewrittenText:
        untyped = untyped_texts(statement)
        if untyped is not None:
            literals = {**literals, **untyped.literals(await self._types(untyped.statement))}
            statement = untyped.statement
        return our_text(statement.text, statement.tokens, self._visible(), literals, [self.database])

    @contextlib.contextmanager
    def _placed(self, ours: RewrittenText) -> Generator[None]:
        try:
            yield
        except StatementError as error:
            raise PlacedError(error, ours.place) from error

    def _check_read_only(self, statement: PgStatement) -> None:
        if self.settings.is_read_only and changes_something(statement):
            first = statement.tokens[0].upper
            raise PgRefused(READ_ONLY, f"cannot execute {first} in a read-only transaction")

    def _check_cancelled(self) -> None:
        if self._cancelled is not None:
            raise PgRefused(CANCELED, self._cancelled)


def _row_count(statement: PgStatement) -> int | None:
    """The number of rows in INSERT … VALUES."""
    depth = count = 0
    in_values = False
    for token in statement.tokens:
        in_values = in_values or (depth == 0 and token.upper == "VALUES")
        if token.kind == "sign":
            count += in_values and depth == 0 and token.text == "("
            depth += (token.text in "([") - (token.text in ")]") if len(token.text) == 1 else 0
    return count if in_values else None
