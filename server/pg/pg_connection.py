"""One client's socket: the protocol's state machine on a stream."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import structlog

from ...logcore.protocol.security.users import Principal, Users
from ..http.connections import certificate_names
from ..security.access import User
from ..security.rights import Rights
from . import backend
from .frontend import (
    CancelRequest,
    FrontendMessage,
    GssRequest,
    PasswordMessage,
    PgProtocolViolation,
    SslRequest,
    StartupMessage,
    TerminateMessage,
)
from .login import PgLogin, PgLoginRefused
from .pg_conversation import PgConversation
from .pg_session import PgContext, PgSession
from .protocol import PgProtocol, PgState
from .sqlstates import ADMIN_SHUTDOWN, INVALID_AUTHORIZATION, TOO_MANY_CONNECTIONS, PgRefused, error_fields

LOGIN_S: Final = 30.0
STALL_S: Final = 60.0
"""A client that accepts nothing for this long is considered gone."""
REFUSED_PAUSE_S: Final = 0.5
"""After a wrong password."""
_READ_BYTES: Final = 64 * 1024
_AHEAD_BYTES_MAX: Final = 256 * 1024
_MINOR: Final = 0

_log = structlog.get_logger("millstream.pg")


@dataclass(frozen=True, slots=True)
class PgDoor:
    """Shared by all connections of a listener. `users`: None if everybody may do everything; `tls`: with it, nobody
    logs in without TLS; `secret`: see `PgLogin`."""

    context: PgContext
    users: Users | None
    tls: ssl.SSLContext | None
    secret: bytes
    message_bytes_max: int
    checks: asyncio.Semaphore
    running: dict[int, PgConnection]


class PgConnection:
    """Call `serve`. State: the protocol, and the session after the login."""

    def __init__(self, door: PgDoor, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._door = door
        self._reader, self._writer = reader, writer
        self._protocol = PgProtocol(door.message_bytes_max)
        self._session: PgSession | None = None
        self._ahead = _ReadAhead(reader, self._client_left)
        self._process_id = 0
        self.key = secrets.randbits(32)
        self._stopping = False

    async def serve(self, *, admitted: bool) -> None:
        """In: `admitted`: False if too many connections are open; then the client gets that error."""
        try:
            async with asyncio.timeout(LOGIN_S):
                session = await self._enter(admitted=admitted)
            if session is not None:
                await self._talk(session)
        except PgProtocolViolation as error:
            await self._last_words(error)
        except (OSError, asyncio.IncompleteReadError):
            pass  # a client that is silent, accepts nothing or has disconnected gets no answer
        finally:
            self._ahead.stop()
            self._door.running.pop(self._process_id, None)

    def cancel(self) -> None:
        """Cancels the running statement."""
        if self._session is not None:
            self._session.cancel()

    def stop(self) -> None:
        """Ends the connection because the server stops."""
        self._stopping = True
        if self._session is not None:
            self._session.cancel("terminating connection due to administrator command")
        self._ahead.interrupt()

    # Before the login

    async def _enter(self, *, admitted: bool) -> PgSession | None:
        while (message := await self._next(self._reader.read)) is not None:
            match message:
                case SslRequest():
                    await self._encrypt()
                case GssRequest():
                    await self._send(self._protocol.refuse_encryption())
                case CancelRequest(process_id, secret):
                    found = self._door.running.get(process_id)
                    if found is not None and secrets.compare_digest(
                        found.key.to_bytes(4, "big"), secret.to_bytes(4, "big")
                    ):
                        found.cancel()
                    return None
                case StartupMessage():
                    if not admitted:
                        raise_ = PgRefused(TOO_MANY_CONNECTIONS, "sorry, too many clients already")
                        await self._last_words(raise_)
                        return None
                    return await self._log_in(message)
                case _:
                    raise AssertionError(f"no {type(message).__name__} comes here")
        return None

    async def _encrypt(self) -> None:
        if self._door.tls is None:
            await self._send(self._protocol.refuse_encryption())
            return
        await self._send(self._protocol.accept_tls())
        await self._writer.start_tls(self._door.tls)

    async def _log_in(self, startup: StartupMessage) -> PgSession | None:
        try:
            rights, name = await self._user(startup)
            unknown = [key for key in startup.parameters if key.startswith("_pq_.")]
            session = PgSession(self._door.context, rights, name, startup.parameters.get("database") or name)
            await session.begin(startup.parameters)
        except PgLoginRefused as error:
            _log.warning("postgresql login refused", user=startup.parameters.get("user"))
            await asyncio.sleep(REFUSED_PAUSE_S)
            await self._last_words(error)
            return None
        except (PgProtocolViolation, ConnectionError):
            raise
        except Exception as error:
            await self._last_words(error)
            return None
        welcome = self._protocol.let_in()
        if startup.minor > _MINOR or unknown:
            welcome = backend.negotiate_version(_MINOR, unknown) + welcome
        for setting, value in session.settings.reported().items():
            welcome += backend.parameter_status(setting, value)
        self._process_id = self._free_number()
        self._door.running[self._process_id] = self
        welcome += backend.backend_key(self._process_id, self.key) + self._protocol.ready("I")
        await self._send(welcome)
        return session

    async def _user(self, startup: StartupMessage) -> tuple[Rights, str]:
        """Raises `PgLoginRefused`, `PgRefused`."""
        name = startup.parameters.get("user", "")
        if not name:
            raise PgRefused(INVALID_AUTHORIZATION, "no PostgreSQL user name specified in startup packet")
        if self._door.tls is not None and not self._protocol.encrypted:
            raise PgRefused(INVALID_AUTHORIZATION, "this server requires TLS", hint="Connect with sslmode=require.")
        if self._door.users is None:
            return Rights(), name
        found = self._certified(name) or await self._ask_password(name, self._door.users)
        assert isinstance(found, User)
        if not found.roles:
            raise PgRefused(INVALID_AUTHORIZATION, f"{found.name} has no role")
        return Rights(found), found.name

    def _certified(self, name: str) -> Principal | None:
        """The user that the client's certificate names, if that is the user who logs in."""
        tls = self._writer.get_extra_info("ssl_object")
        names = () if tls is None else certificate_names(tls.getpeercert() or {})
        found = self._door.users.of_certificate(names) if names and self._door.users is not None else None
        return found if found is not None and found.name == name else None

    async def _ask_password(self, name: str, users: Users) -> Principal:
        login = PgLogin(name, users, secrets.token_urlsafe(18), self._door.secret)
        await self._send(login.begin())
        while True:
            message = await self._next(self._reader.read)
            if not isinstance(message, PasswordMessage):
                raise ConnectionResetError("the client left")
            async with self._door.checks:
                step = await asyncio.get_running_loop().run_in_executor(None, login.step, message.content)
            if step.answer:
                await self._send(step.answer)
            if step.user is not None:
                return step.user

    def _free_number(self) -> int:
        while (number := secrets.randbits(31)) in self._door.running or not number:
            pass
        return number

    # After the login

    async def _talk(self, session: PgSession) -> None:
        self._session = session
        conversation = PgConversation(self._protocol, session, self._send, lambda: self._next(self._ahead.read))
        self._ahead.start()
        try:
            while not self._stopping:
                message = await self._next(self._ahead.read)
                if message is None or isinstance(message, TerminateMessage):
                    break
                await conversation.answer(message)
            if self._stopping:
                await self._last_words(PgRefused(ADMIN_SHUTDOWN, "terminating connection due to administrator command"))
        finally:
            self._ahead.stop()
            conversation.close()

    async def _next(self, read: Callable[[int], Awaitable[bytes]]) -> FrontendMessage | None:
        """None if the client has disconnected."""
        while (message := self._protocol.next_message()) is None:
            if self._protocol.state is PgState.ENDED:
                return None
            data = await read(_READ_BYTES)
            if not data:
                return None
            self._protocol.receive(data)
        return message

    async def _send(self, data: bytes) -> None:
        if data:
            self._writer.write(data)
            async with asyncio.timeout(STALL_S):
                await self._writer.drain()

    async def _last_words(self, error: BaseException) -> None:
        with contextlib.suppress(ConnectionError, TimeoutError, ssl.SSLError):
            await self._send(backend.error_response(error_fields(error, fatal=True)))

    def _client_left(self) -> None:
        if self._session is not None:
            self._session.cancel("the client has disconnected")


def _nobody() -> None:
    """Replaces the callback for a client's disconnect after the connection has ended."""


class _ReadAhead:
    """Reads while a statement runs, to notice when the client disconnects. State: unprocessed data, at most
    `_AHEAD_BYTES_MAX` and one chunk; more data stays in the socket."""

    def __init__(self, reader: asyncio.StreamReader, left: Callable[[], None]) -> None:
        self._reader = reader
        self._left = left
        self._data = bytearray()
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._over = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._read_all())

    def stop(self) -> None:
        """May be called twice. Drops the references to the connection: in a reference cycle, it would stay in memory
        until the garbage collector runs, which is rare."""
        if self._task is not None:
            self._task.cancel()
        self._task, self._left = None, _nobody

    def interrupt(self) -> None:
        """Ends `read`."""
        self._over = True
        self._changed.set()

    async def read(self, most: int) -> bytes:
        """Up to `most` bytes; empty at the end."""
        while not self._data and not self._over:
            self._changed.clear()
            await self._changed.wait()
        taken = bytes(self._data[:most])
        del self._data[:most]
        self._room.set()
        return taken

    async def _read_all(self) -> None:
        with contextlib.suppress(OSError):  # also of keep-alive: the client's machine is gone
            while data := await self._reader.read(_READ_BYTES):
                self._data += data
                self._changed.set()
                while len(self._data) >= _AHEAD_BYTES_MAX:
                    self._room.clear()
                    await self._room.wait()
        self._over = True
        self._changed.set()
        self._left()
