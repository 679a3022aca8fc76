"""The socket and the event loop of PostgreSQL's protocol, in a separate thread."""

from __future__ import annotations

import asyncio
import os
import socket
from functools import partial
from typing import Final

import structlog

from ...logcore.accepting import AT_A_TIME, let_wait
from ...logcore.protocol.admission import ConnectionLimits, Places, counted_as
from ...logcore.protocol.security.users import Users
from ..config.configuration import ListenAddress
from ..engine.engine import Engine
from ..engine.query_limits import PullGate
from ..http.context import HttpContext, OpenQueries, StatementWorkers, Workers
from ..http.lookups import LookedUp
from ..security.tls import TlsSettings
from ..socket_listener import SocketListener
from .pg_connection import PgConnection, PgDoor
from .system_catalogs import SystemCatalogs

_GRACE_S: Final = 3.0
_CHECKS_MAX: Final = 4  # passwords checked at a time: a hash takes 16 MB
_STREAM_BYTES: Final = 64 * 1024

_log = structlog.get_logger("millstream.pg")


class PgShared:
    """The `PgContext` of a server: it shares the engine and the limits of the HTTP API, but has its own threads."""

    def __init__(self, http: HttpContext) -> None:
        self.engine: Engine = http.engine
        self.open_queries: OpenQueries = http.open_queries
        self.pulls: PullGate = http.pulls
        self.workers = Workers()
        self.statements = StatementWorkers(self.workers)
        self.looked_up = LookedUp(self)
        self.catalogs = SystemCatalogs()

    def close(self) -> None:
        self.statements.close()
        self.workers.close()
        self.catalogs.close()


class PgListener(SocketListener):
    """Answers after `start`."""

    def __init__(self, address: ListenAddress, tls: TlsSettings | None, limits: ConnectionLimits) -> None:
        """Raises `CannotListen`, `CannotUseTls`."""
        self._tls = None if tls is None else tls.context()
        self._places = Places(limits)
        super().__init__("pg", address)

    def start(self, http: HttpContext, users: Users | None, message_bytes_max: int) -> None:
        """In: `http`: of the same engine. `users`: None if everybody may do everything."""
        self._begin(partial(self._serve, http, users, message_bytes_max))

    async def _serve(self, http: HttpContext, users: Users | None, message_bytes_max: int, stop: asyncio.Event) -> None:
        shared = PgShared(http)
        door = PgDoor(shared, users, self._tls, os.urandom(32), message_bytes_max, asyncio.Semaphore(_CHECKS_MAX), {})
        held: dict[asyncio.Task[None], PgConnection] = {}

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            connection = PgConnection(door, reader, writer)
            held[task] = connection
            try:
                await self._admit(connection, writer)
            finally:
                del held[task]

        server = await asyncio.start_server(accept, sock=self._socket, limit=_STREAM_BYTES, backlog=AT_A_TIME)
        let_wait(server, "pg")
        self._serves()
        await stop.wait()
        server.close()
        for connection in held.values():
            connection.stop()
        if held:
            await asyncio.wait(held, timeout=_GRACE_S)
        for task in held:
            task.cancel()
        await asyncio.to_thread(shared.close)

    async def _admit(self, connection: PgConnection, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername") or ("",)
        address = counted_as(str(peer[0]))
        admitted = self._places.has_room(address)
        _keep_alive(writer)
        self._places.enter(address)
        try:
            await connection.serve(admitted=admitted)
        except asyncio.CancelledError:
            writer.transport.abort()
        except Exception as error:
            _log.error("postgresql connection failed", exc_info=error)
        finally:
            self._places.leave(address)
            writer.close()


def _keep_alive(writer: asyncio.StreamWriter) -> None:
    """Enables keep-alive, which detects clients whose machine is gone."""
    found = writer.get_extra_info("socket")
    if found is not None and found.family in (socket.AF_INET, socket.AF_INET6):
        found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
