"""Answers the messages of a logged-in client: the simple protocol, and the extended one with its prepared statements
and portals."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ...sql.types import Array, SqlType
from . import backend
from .frontend import (
    BindMessage,
    CloseMessage,
    CopyDataMessage,
    CopyDoneMessage,
    CopyFailMessage,
    DescribeMessage,
    ExecuteMessage,
    FlushMessage,
    FrontendMessage,
    FunctionCallMessage,
    ParseMessage,
    PgProtocolViolation,
    QueryMessage,
    SyncMessage,
)
from .pg_copy_in import CopyIn
from .pg_entities import ALL_PREPARED, PgAnswer, PlacedError
from .pg_parameters import parameter_literal, parameter_oid, sql_type_of
from .pg_rows import BATCH_ROWS, PgColumn, data_rows
from .pg_session import PgSession
from .pg_statements import PgKind, PgStatement, pg_statements
from .protocol import PgProtocol
from .sqlstates import (
    CANCELED,
    DUPLICATE_CURSOR,
    DUPLICATE_STATEMENT,
    NOT_SUPPORTED,
    SYNTAX,
    UNDEFINED_CURSOR,
    UNDEFINED_STATEMENT,
    PgRefused,
    error_fields,
    notice_fields,
)
from .texts.typed_literals import is_json, json_literal, typed_literal, typed_null

Send = Callable[[bytes], Awaitable[None]]
"""Returns when the client has accepted enough to send more; raises if it accepts nothing."""

Receive = Callable[[], Awaitable[FrontendMessage | None]]
"""The next message of the client; None if it has disconnected. Only COPY … FROM STDIN reads messages by itself."""

_COPIED_BYTES: Final = 1 << 18  # how much is read before its rows are parsed
_STATEMENTS_MAX: Final = 1000
_PORTALS_MAX: Final = 100
_PARAMETERS_MAX: Final = 65_535
_UNKNOWN: Final = (0, 705)


@dataclass(slots=True)
class Prepared:
    """`types`: of the parameters, as the client declared them; `inferred`: the types of the others, inferred on
    demand."""

    statement: PgStatement
    types: tuple[int, ...]
    inferred: list[SqlType | None] | None = None

    @property
    def parameter_count(self) -> int:
        return max(self.statement.parameter_count, len(self.types))

    def told(self) -> dict[int, SqlType]:
        found = {number: sql_type_of(oid) for number, oid in enumerate(self.types, 1)}
        return {number: type_ for number, type_ in found.items() if type_ is not None}

    @property
    def declared(self) -> dict[int, int]:
        return {number: oid for number, oid in enumerate(self.types, 1) if oid not in _UNKNOWN}

    def oids(self) -> list[int]:
        """The types that the client gets: its own where it declared them."""
        given, known = self.declared, self._known()
        return [given.get(n) or parameter_oid(known.get(n)) for n in range(1, self.parameter_count + 1)]

    def literals(self, message: BindMessage) -> dict[int, str]:
        """The values as SQL. Raises `WrongParameter`."""
        formats, oids = message.parameter_formats, self.oids()
        found: dict[int, str] = {}
        for number, value in enumerate(message.values, 1):
            format = 0 if not formats else formats[0] if len(formats) == 1 else formats[number - 1]
            found[number] = self._literal(number, value, format, oids[number - 1])
        return found

    def _literal(self, number: int, value: bytes | None, format: int, oid: int) -> str:
        type_ = self._known().get(number) or sql_type_of(oid)
        if value is None and type_ is not None and self.statement.kind is PgKind.ROWS and not isinstance(type_, Array):
            return typed_null(type_)  # a comparison with NULL itself is refused
        if type_ is not None and is_json(type_):
            return json_literal(value, format, oid, type_)
        written = parameter_literal(value, format, oid)
        is_empty = written == "ARRAY[]" and self.statement.kind is not PgKind.ROWS
        return typed_literal([], type_) if is_empty and type_ is not None else written

    def _known(self) -> dict[int, SqlType | None]:
        return dict(enumerate(self.inferred or [], 1))


@dataclass(slots=True)
class Portal:
    """A statement with its values. `answer`: set when it has started; `ended`: all its rows were sent."""

    statement: PgStatement
    literals: Mapping[int, str]
    formats: tuple[int, ...]
    answer: PgAnswer | None = None
    ended: bool = False

    def result_formats(self, columns: Sequence[PgColumn]) -> list[int]:
        """Raises `PgRefused`."""
        if len(self.formats) in (0, 1):
            return list(self.formats or (0,)) * len(columns)
        if len(self.formats) != len(columns):
            raise PgRefused("08P01", f"{len(self.formats)} result formats for {len(columns)} columns")
        return list(self.formats)


class PgConversation:
    """State: prepared statements and portals by name; the unnamed ones have the name ''."""

    def __init__(self, protocol: PgProtocol, session: PgSession, send: Send, receive: Receive) -> None:
        self._protocol = protocol
        self._session = session
        self._send = send
        self._receive = receive
        self._prepared: dict[str, Prepared] = {}
        self._portals: dict[str, Portal] = {}

    async def answer(self, message: FrontendMessage) -> None:
        """Sends the whole answer to a message; errors are answers, too. Raises errors that end the connection: between
        copied rows, invalid messages may arrive."""
        match message:
            case QueryMessage(text):
                await self._simple(text)
            case SyncMessage():
                if self._session.status == "I":  # as in PostgreSQL, portals end with their transaction
                    self._close_portals()
                await self._send(self._protocol.ready(self._session.status))
            case FunctionCallMessage():
                await self._tell(PgRefused(NOT_SUPPORTED, "functions are called in a SELECT only"))
                await self._send(self._protocol.ready(self._session.status))
            case _:
                try:
                    with self._session.working():
                        await self._extended(message)
                except asyncio.CancelledError:
                    raise
                except (ConnectionError, TimeoutError, PgProtocolViolation):
                    raise
                except Exception as error:
                    await self._tell(error)
                    self._protocol.failed()

    def close(self) -> None:
        self._close_portals()
        self._session.close()

    # The simple protocol

    async def _simple(self, text: str) -> None:
        self._drop_portal("")
        try:
            statements = pg_statements(text)
            if not statements:
                await self._send(backend.EMPTY_QUERY)
            for statement in statements:
                with self._session.working():
                    if statement.parameter_count:
                        raise PgRefused("42P02", "a statement of the simple protocol has no parameters")
                    portal = Portal(statement, {}, ())
                    try:
                        await self._describe_portal(portal, quiet=True)
                        await self._send_rows(portal, 0)
                    except BaseException:
                        _give_up(portal)
                        raise
        except (ConnectionError, TimeoutError, PgProtocolViolation):
            raise
        except Exception as error:
            await self._tell(error)
            self._protocol.failed()
        await self._send(self._protocol.ready(self._session.status))

    # The extended protocol

    async def _extended(self, message: FrontendMessage) -> None:
        match message:
            case ParseMessage():
                await self._parse(message)
            case BindMessage():
                await self._bind(message)
            case DescribeMessage("S", name):
                await self._describe_statement(self._statement(name))
            case DescribeMessage(_, name):
                await self._describe_portal(self._portal(name))
            case ExecuteMessage(name, rows_max):
                await self._send_rows(self._portal(name), rows_max)
            case CloseMessage(kind, name):
                if kind == "S":
                    self._prepared.pop(name, None)
                else:
                    self._drop_portal(name)
                await self._send(backend.CLOSE_COMPLETE)
            case FlushMessage():
                pass
            case _:
                raise AssertionError(f"no {type(message).__name__} comes here")

    async def _parse(self, message: ParseMessage) -> None:
        if message.name and message.name in self._prepared:
            raise PgRefused(DUPLICATE_STATEMENT, f'prepared statement "{message.name}" already exists')
        if len(self._prepared) >= _STATEMENTS_MAX:
            raise PgRefused("54000", f"{_STATEMENTS_MAX} statements are prepared already", hint="Close some of them.")
        statements = pg_statements(message.text)
        if len(statements) > 1:
            raise PgRefused(SYNTAX, "cannot insert multiple commands into a prepared statement")
        statement = statements[0] if statements else PgStatement(message.text, (), PgKind.EMPTY)
        if statement.parameter_count > _PARAMETERS_MAX:
            raise PgRefused("54000", f"there are at most {_PARAMETERS_MAX} parameters")
        self._prepared[message.name] = Prepared(statement, message.types)
        await self._send(backend.PARSE_COMPLETE)

    async def _bind(self, message: BindMessage) -> None:
        prepared = self._statement(message.statement)
        if message.portal and message.portal in self._portals:
            raise PgRefused(DUPLICATE_CURSOR, f'portal "{message.portal}" already exists')
        if len(self._portals) >= _PORTALS_MAX:
            raise PgRefused("54000", f"{_PORTALS_MAX} portals are open already", hint="Close some of them.")
        if len(message.values) != prepared.parameter_count:
            raise PgRefused("08P01", f"{len(message.values)} values came for {prepared.parameter_count} parameters")
        literals = await self._literals(prepared, message)
        self._drop_portal(message.portal)
        self._portals[message.portal] = Portal(prepared.statement, literals, message.result_formats)
        await self._send(backend.BIND_COMPLETE)

    async def _literals(self, prepared: Prepared, message: BindMessage) -> dict[int, str]:
        if not message.values:
            return {}
        declares_all = len(prepared.declared) >= len(message.values)
        if prepared.inferred is None and (not declares_all or self._session.inserts_json(prepared.statement)):
            prepared.inferred = await self._session.parameters(prepared.statement, prepared.told())
        return prepared.literals(message)

    async def _describe_statement(self, prepared: Prepared) -> None:
        described = await self._session.describe(prepared.statement, prepared.told())
        prepared.inferred = described.parameters
        answer = backend.parameter_description(prepared.oids())
        await self._send(answer + _described(described.columns, ()))

    async def _describe_portal(self, portal: Portal, *, quiet: bool = False) -> None:
        """In: `quiet`: for the simple protocol, which describes columns only if rows follow."""
        if portal.answer is None and not quiet and not _gives_rows(portal.statement):
            await self._send(backend.NO_DATA)
            return
        answer = await self._begun(portal)
        if answer.copy is not None:
            await self._send(b"" if quiet else backend.NO_DATA)
        elif answer.columns is not None or not quiet:
            formats = () if answer.columns is None else portal.result_formats(answer.columns)
            await self._send(_described(answer.columns, formats))

    async def _begun(self, portal: Portal) -> PgAnswer:
        if portal.answer is None:
            answer = await self._session.start(portal.statement, portal.literals)
            if answer.deallocates is not None:
                self._deallocate(answer.deallocates)
            portal.answer = answer
        return portal.answer

    def _deallocate(self, name: str) -> None:
        """Raises `PgRefused` for an unknown name."""
        if name == ALL_PREPARED:
            self._prepared = {each: kept for each, kept in self._prepared.items() if not each}
            return
        self._statement(name)
        del self._prepared[name]

    # Rows

    async def _send_rows(self, portal: Portal, rows_max: int) -> None:
        """In: `rows_max`: 0: all."""
        answer = await self._begun(portal)
        await self._tell_besides(answer)
        if portal.statement.kind is PgKind.EMPTY:
            await self._send(backend.EMPTY_QUERY)
            return
        if answer.copy_in is not None:
            await self._take_copy(answer.copy_in)
            return
        if answer.columns is None or answer.rows is None:
            await self._send(backend.command_complete(answer.tag))
            return
        if answer.copy is not None:
            await self._copy_out(answer, answer.columns)
            return
        sent = 0
        formats = portal.result_formats(answer.columns)
        while not portal.ended and (not rows_max or sent < rows_max):
            piece = await self._session.take(answer.rows, rows_max - sent if rows_max else BATCH_ROWS)
            if piece is None:
                portal.ended = True
                break
            sent += piece.count
            await self._send_counted(answer, data_rows(piece, answer.columns, formats))
        if not portal.ended:
            await self._send(backend.PORTAL_SUSPENDED)
            return
        await self._send(backend.command_complete(f"{answer.tag} {sent}" if answer.counts else answer.tag))

    async def _copy_out(self, answer: PgAnswer, columns: Sequence[PgColumn]) -> None:
        assert answer.copy is not None and answer.rows is not None
        await self._send(backend.copy_out(len(columns), answer.copy.code) + answer.copy.begin(columns))
        count = 0
        while (piece := await self._session.take(answer.rows, BATCH_ROWS)) is not None:
            await self._send_counted(answer, answer.copy.rows(piece, columns, first=count == 0))
            count += piece.count
        await self._send(answer.copy.end(count) + backend.COPY_DONE + backend.command_complete(f"COPY {count}"))

    async def _take_copy(self, copy: CopyIn) -> None:
        await self._send(self._protocol.copy_in(len(copy.columns), copy.format.code))
        pending = bytearray()
        while True:
            message = await self._session.received(self._receive)
            match message:
                case CopyDataMessage(content):
                    pending += content
                case CopyDoneMessage():
                    break
                case CopyFailMessage(reason):
                    raise PgRefused(CANCELED, f"COPY from stdin failed: {reason}")
                case _:
                    raise ConnectionResetError("the client left")
            if len(pending) >= _COPIED_BYTES:
                await self._session.append(copy, bytes(pending), last=False)
                pending.clear()
        await self._session.append(copy, bytes(pending), last=True)
        await self._send(backend.command_complete(f"COPY {copy.count}"))

    async def _send_counted(self, answer: PgAnswer, data: bytes) -> None:
        if answer.sent is not None:
            answer.sent(len(data))
        await self._send(data)

    async def _tell_besides(self, answer: PgAnswer) -> None:
        told = [backend.notice_response(notice_fields(text, "WARNING")) for text in answer.notices]
        told += [backend.parameter_status(name, value) for name, value in answer.statuses.items()]
        answer.notices, answer.statuses = [], {}
        if told:
            await self._send(b"".join(told))

    async def _tell(self, error: BaseException) -> None:
        self._session.failed()
        fields = error_fields(error.error, error.place) if isinstance(error, PlacedError) else error_fields(error)
        await self._send(backend.error_response(fields))

    def _statement(self, name: str) -> Prepared:
        found = self._prepared.get(name)
        if found is None:
            raise PgRefused(UNDEFINED_STATEMENT, f'prepared statement "{name}" does not exist')
        return found

    def _portal(self, name: str) -> Portal:
        found = self._portals.get(name)
        declared = self._session.cursor_named(name) if found is None else None
        if declared is not None:  # cursors are portals, too; each access continues with the remaining rows
            return Portal(PgStatement("", (), PgKind.FETCH), {}, (), declared)
        if found is None:
            raise PgRefused(UNDEFINED_CURSOR, f'portal "{name}" does not exist')
        return found

    def _drop_portal(self, name: str) -> None:
        portal = self._portals.pop(name, None)
        if portal is not None:
            _give_up(portal)

    def _close_portals(self) -> None:
        for name in list(self._portals):
            self._drop_portal(name)


def _gives_rows(statement: PgStatement) -> bool:
    """Whether a statement may be started just to find its columns, because it changes nothing."""
    return statement.kind in (PgKind.ROWS, PgKind.OUR_ROWS, PgKind.SHOW, PgKind.FETCH)


def _give_up(portal: Portal) -> None:
    """Closes the answer of an unused portal. The rows of a cursor stay open, because they belong to the cursor."""
    if portal.answer is not None and portal.statement.kind not in (PgKind.FETCH, PgKind.MOVE):
        portal.answer.close()


def _described(columns: Sequence[PgColumn] | None, formats: Sequence[int]) -> bytes:
    if columns is None:
        return backend.NO_DATA
    each = formats or [0] * len(columns)
    return backend.row_description([column.described(format) for column, format in zip(columns, each, strict=True)])
