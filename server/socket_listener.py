"""A TCP socket and the event loop that serves it, in a thread of its own: what the HTTP and PostgreSQL ports share."""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final

from millstream.errors import ServerError

from .config.configuration import ListenAddress

_BACKLOG: Final = 128


class CannotListen(ServerError):
    """The server cannot listen on an address."""

    code = "CANNOT_LISTEN"


def cannot_listen(what: str, address: ListenAddress, error: BaseException | None) -> CannotListen:
    """In: `what`: `http`, `kafka`, `pg` or `schema-registry`, the name of the flag."""
    number = error.errno if isinstance(error, OSError) else None
    hint = f"Choose another address with --{what} HOST:PORT; port 0 takes a free one."
    if number == errno.EADDRINUSE:
        return CannotListen(f"port {address.port} of {address.host} is in use by another process", hint=hint)
    if number in (errno.EACCES, errno.EPERM):
        return CannotListen(f"this user may not listen on port {address.port}", hint=hint)
    reason = (error.strerror if isinstance(error, OSError) and error.strerror else str(error)).lower()
    return CannotListen(f"cannot listen on {address}: {reason}", hint=hint)


class SocketListener:
    """Binds the port at once, so that a server that cannot get the port does nothing else; answers once a subclass
    calls `_begin`.

    `address`: where it listens, with the port that it got.
    """

    def __init__(self, what: str, address: ListenAddress) -> None:
        """In: `what`: the name of its flag. Raises `CannotListen`."""
        try:
            found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            family, kind, protocol, _, at = found[0]
            self._socket = socket.socket(family, kind, protocol)
        except (OSError, UnicodeError) as error:  # UnicodeError: no host can have this name
            raise cannot_listen(what, address, error) from error
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind(at)
            # Two sockets can bind the same port, but only one can listen on it: this call detects the conflict.
            self._socket.listen(_BACKLOG)
        except OSError as error:
            self._socket.close()
            raise cannot_listen(what, address, error) from error
        self.address = ListenAddress(address.host, self._socket.getsockname()[1])
        self._thread_name = f"millstream-{what}-loop"
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._serving = threading.Event()  # also set if it failed before
        self._failure: BaseException | None = None  # that came before it served

    def stop(self) -> None:
        """Ends all connections, after a short while for those that are busy. May be called twice."""
        if self._thread is not None and self._loop is not None and self._stop is not None:
            if self._thread.is_alive():
                self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()
        self._socket.close()

    def _begin(self, serve: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
        """Runs `serve`, which calls `_serves` and ends after the event is set. Returns once it serves; raises its error
        if it fails before."""
        self._thread = threading.Thread(target=self._run, args=(serve,), name=self._thread_name, daemon=True)
        self._thread.start()
        self._serving.wait()
        if self._failure is not None:
            raise self._failure

    def _serves(self) -> None:
        self._serving.set()

    def _run(self, serve: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
        async def until_stopped() -> None:
            self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
            await serve(self._stop)

        try:
            asyncio.run(until_stopped())
        except BaseException as error:
            if self._serving.is_set():
                raise
            self._failure = error
        finally:
            self._serving.set()
