"""The host names that a server accepts. A web page can make its own name resolve to this machine (DNS rebinding), and
the browser then treats our responses as that page's. Such requests have the page's name in the `host` header.

An IP address instead of a name is always accepted: it cannot be rebound.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Final
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from ..config.configuration import Configuration
from ..config.server_settings import ServerSettings
from ..http.errors import MISDIRECTED, RequestRefused
from ..http.statements import error_response

ANY: Final = "*"
_LOCAL: Final = frozenset({"localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback"})
_POLICY_VIOLATION: Final = 1008
_LOOK_UP_S: Final = 10.0  # no request waits longer for DNS


def names_of(configuration: Configuration) -> OwnNames:
    """The names of this machine, those that the configuration gives the server and its cluster, and `http_hosts`."""
    listening = [configuration.http, configuration.schema_registry, configuration.kafka_advertised]
    advertised = urlsplit(ServerSettings.of(configuration.properties).advertised_listener).hostname
    nodes = [part.rpartition("@")[2] for part in (configuration.cluster or "").split(",") if part]
    found = [
        *_LOCAL, socket.gethostname(), advertised or "", *configuration.http_hosts,
        *(address.host for address in listening if address is not None), *map(_host_of, nodes),
    ]  # fmt: skip
    return OwnNames(found)


class OwnNames:
    """The names that the server accepts.

    State: the names known at the start, and this machine's full name, for which DNS may take long. Until DNS answers, a
    request for a name that is not otherwise known waits, but nothing else does.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(map(_normal, filter(None, names)))
        self._full_name: Future[str] = Future()
        self._patient_until_s = time.monotonic() + _LOOK_UP_S
        threading.Thread(target=self._look_up, name="millstream-own-name", daemon=True).start()

    def has_now(self, host: str) -> bool:
        """In: `host`: from the header, with or without a port."""
        return is_known(host, self._names)

    async def has(self, host: str) -> bool:
        """As `has_now`, but waits for DNS to return the full name."""
        return self.has_now(host) or is_known(host, await self._learned())

    async def _learned(self) -> frozenset[str]:
        left_s = 0 if self._full_name.done() else max(0.0, self._patient_until_s - time.monotonic())
        if left_s:
            await asyncio.wait([asyncio.wrap_future(self._full_name)], timeout=left_s)
        return frozenset([_normal(self._full_name.result())]) if self._full_name.done() else frozenset()

    def _look_up(self) -> None:
        self._full_name.set_result(socket.getfqdn())


class HostCheck:
    """An ASGI application around another one. In: `trusted`: whether a node of the cluster forwards the request; that
    node has already checked the name."""

    def __init__(self, app: ASGIApp, names: OwnNames, trusted: Callable[[Scope], bool] = lambda scope: False) -> None:
        self._app = app
        self._names = names
        self._trusted = trusted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            for host in _hosts(scope):
                if not (self._names.has_now(host) or self._trusted(scope) or await self._names.has(host)):
                    await _refuse(host, scope, receive, send)
                    return
        await self._app(scope, receive, send)


def is_known(host: str, names: frozenset[str]) -> bool:
    """In: `host`: from the header, with or without a port.

    >>> [is_known(host, frozenset({"log.example"})) for host in ("log.example:80", "10.1.2.3", "[::1]:80", "a.example")]
    [True, True, True, False]
    """
    name = _normal(_host_of(host))
    if ANY in names or name in names or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True


def _normal(name: str) -> str:
    return name.lower().rstrip(".")


def _hosts(scope: Scope) -> list[str]:
    """The values of the `host` header. A request without one passes, because browsers always send one."""
    return [value.decode("latin-1").strip() for name, value in scope["headers"] if name.lower() == b"host"]


def _host_of(text: str) -> str:
    """
    >>> _host_of("[::1]:80"), _host_of("a.example:80"), _host_of("a.example")
    ('::1', 'a.example', 'a.example')
    """
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.rpartition(":")[0] if ":" in text else text


async def _refuse(host: str, scope: Scope, receive: Receive, send: Send) -> None:
    error = RequestRefused(
        MISDIRECTED,
        f'this server does not accept the host name "{host[:255]}"',
        hint="If it belongs to the server or its proxy, add it to http_hosts in the configuration.",
    )
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": _POLICY_VIOLATION, "reason": error.message[:100]})
        return
    await error_response(error)(scope, receive, send)
