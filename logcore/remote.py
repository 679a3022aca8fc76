"""The log over the network: `RemoteLog` is a `LogClient` that speaks the Kafka protocol, to one node or a cluster."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Final

from .capabilities import LogCapabilities
from .clients.features import capabilities_of
from .clients.routed_log import RoutedLog
from .errors import LogUnavailable
from .external.external_log import ExternalLog, ExternalLogSettings
from .protocol.channel import Address
from .protocol.routing import Router
from .protocol.security.sasl import Credentials, secret_credentials
from .protocol.served_log import ServedLog

_PATIENCE_S: Final = 30.0
TLS: Final = "tls://"
"""The prefix of an address whose listener speaks TLS."""


class RemoteLog(RoutedLog):
    """The log at `bootstrap`: HOST:PORT; USER:PASSWORD@HOST:PORT if the server has users; SECRET@HOST:PORT for clients
    that may write to Millstream's own topics (`trusted_address`). The prefix `tls://` selects TLS. Several nodes of a
    cluster are HOST:PORT,HOST:PORT; one of them is enough to find the others.
    Any thread may call any method. Connections are opened as needed.

    A method raises `LogUnavailable` if the server cannot be reached or a connection breaks twice. With a cluster it
    retries for `patience_s` first, to wait for a fail-over. Appends have sequence numbers, so a retried append whose
    answer was lost is stored once. Pickling keeps only the address and `patience_s`.
    """

    def __init__(self, bootstrap: str, *, patience_s: float = _PATIENCE_S, tls: ssl.SSLContext | None = None) -> None:
        """In: `tls`: uses TLS with this context in place of the system's default; it is not pickled."""
        self._patience_s = patience_s
        super().__init__(_router(bootstrap, patience_s, tls), bootstrap)
        self._capabilities: LogCapabilities | None = None

    @property
    def capabilities(self) -> LogCapabilities:
        if self._capabilities is None:
            self._capabilities = capabilities_of(self._router)
        return self._capabilities

    def __reduce__(self) -> tuple[Callable[[str, float], RemoteLog], tuple[str, float]]:
        return _remote_log, (self.bootstrap, self._patience_s)


def log_at(bootstrap: str) -> RemoteLog | ExternalLog:
    """The log that another Millstream process uses. In: `bootstrap`: of its `RemoteLog` or `ExternalLog`."""
    external = ExternalLogSettings.at(bootstrap)
    return RemoteLog(bootstrap) if external is None else ExternalLog(external)


def trusted_address(log: ServedLog, address: str) -> str:
    """The bootstrap for another Millstream process, which reaches `log` at `address`, HOST:PORT. Raises `LogError`."""
    return f"{log.secret}@{address}"


def _remote_log(bootstrap: str, patience_s: float) -> RemoteLog:
    return RemoteLog(bootstrap, patience_s=patience_s)


def _router(bootstrap: str, patience_s: float, tls: ssl.SSLContext | None) -> Router:
    plain = bootstrap.removeprefix(TLS)
    login, _, addresses = plain.rpartition("@")
    name, separator, password = login.partition(":")
    credentials = Credentials(name, password) if separator else secret_credentials(login)
    if tls is None and plain != bootstrap:
        tls = ssl.create_default_context()
    nodes = [_address(address.strip()) for address in addresses.split(",")]
    return Router(nodes, credentials if login else None, tls, patience_s)


def _address(bootstrap: str) -> Address:
    host, separator, port = bootstrap.rpartition(":")
    if not separator or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise LogUnavailable(
            f'"{bootstrap}" is not the address of a log', hint="Give host and port, as in 127.0.0.1:9092."
        )
    return Address(host.strip("[]"), int(port))
