"""The socket and the event loop under the HTTP API: hypercorn (HTTP/1.1 and h2c) in its own thread."""

from __future__ import annotations

import asyncio
import errno
import socket
import sys
import threading
from typing import Final

from hypercorn.config import Config
from starlette.types import ASGIApp

from millstream.errors import ServerError

from ...logcore.protocol.admission import ConnectionLimits
from ..config.configuration import ListenAddress
from ..security.tls import TlsSettings
from .connections import Connections
from .gate import HEADER_BYTES_MAX

_KEEP_ALIVE_S: Final = 60
_GRACE_S: Final = 3.0
_BACKLOG: Final = 128


class CannotListen(ServerError):
    """The server cannot listen on an address."""

    code = "CANNOT_LISTEN"


def cannot_listen(what: str, address: ListenAddress, error: BaseException | None) -> CannotListen:
    """In: `what`: `http`, `kafka` or `schema-registry`, the name of the flag."""
    number = error.errno if isinstance(error, OSError) else None
    hint = f"Choose another address with --{what} HOST:PORT; port 0 takes a free one."
    if number == errno.EADDRINUSE:
        return CannotListen(f"port {address.port} of {address.host} is in use by another process", hint=hint)
    if number in (errno.EACCES, errno.EPERM):
        return CannotListen(f"this user may not listen on port {address.port}", hint=hint)
    reason = (error.strerror if isinstance(error, OSError) and error.strerror else str(error)).lower()
    return CannotListen(f"cannot listen on {address}: {reason}", hint=hint)


class HttpListener:
    """Binds the port at once, so that a server that cannot get the port does nothing else; answers after `start`."""

    def __init__(
        self, address: ListenAddress, what: str = "http", tls: TlsSettings | None = None,
        limits: ConnectionLimits | None = None,
    ) -> None:  # fmt: skip
        """In: `what`: the name of its flag. Raises `CannotListen`, `CannotUseTls`."""
        if tls is not None:
            tls.apply(Config())
        self._tls = tls
        self._limits = limits or ConnectionLimits()
        try:
            found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            family, kind, protocol, _, at = found[0]
            self._socket = socket.socket(family, kind, protocol)
        except OSError as error:
            raise cannot_listen(what, address, error) from error
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind(at)
            # Two sockets can bind the same port, but only one can listen on it: this call detects the conflict.
            self._socket.listen(_BACKLOG)
        except OSError as error:
            self._socket.close()
            raise cannot_listen(what, address, error) from error
        self._what = what
        self.address = ListenAddress(address.host, self._socket.getsockname()[1])
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._failure: BaseException | None = None
        self._looping = threading.Event()

    def start(self, app: ASGIApp) -> None:
        """Starts answering requests."""
        self._thread = threading.Thread(
            target=self._run, args=(app,), name=f"millstream-{self._what}-loop", daemon=True
        )
        self._thread.start()
        self._looping.wait()

    def stop(self) -> None:
        """Ends keep-alive connections and waits briefly for running requests. May be called twice."""
        if self._thread is not None and self._loop is not None and self._stop is not None:
            if self._thread.is_alive():
                self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()
        self._socket.close()

    def _run(self, app: ASGIApp) -> None:
        asyncio.run(self._serve(app))

    async def _serve(self, app: ASGIApp) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._looping.set()
        await Connections(app, self._config(), self._limits).serve(self._socket, self._stop)

    def _config(self) -> Config:
        config = Config()
        config.accesslog = None
        config.errorlog = None
        config.include_server_header = False
        config.h11_max_incomplete_size = HEADER_BYTES_MAX
        config.h2_max_header_list_size = HEADER_BYTES_MAX
        config.keep_alive_timeout = _KEEP_ALIVE_S
        config.keep_alive_max_requests = sys.maxsize  # a limit would cut off a push query on the same connection
        config.graceful_timeout = _GRACE_S
        if self._tls is not None:
            self._tls.apply(config)
        return config
