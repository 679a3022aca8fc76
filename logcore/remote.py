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
"""Before an address whose listener speaks TLS."""


class RemoteLog(RoutedLog):
    """The log at `bootstrap`, which is HOST:PORT, or USER:PASSWORD@HOST:PORT where there are users, or SECRET@HOST:PORT
    for who may write to Millstream's own topics (`trusted_address`). `tls://` before it speaks TLS. Several nodes of a
    cluster are HOST:PORT,HOST:PORT; one of them is enough to find the others.
    Any thread may call any method; connections are made as needed.

    Where the server cannot be reached, or a connection breaks twice, a method raises `LogUnavailable`; with a cluster
    it does so after `patience_s`: a fail-over is waited out. Appends carry sequence numbers, so that one whose answer
    was lost is stored once. Pickled, only the address travels.
    """

    def __init__(self, bootstrap: str, *, patience_s: float = _PATIENCE_S, tls: ssl.SSLContext | None = None) -> None:
        """In: `tls`: speaks TLS by these rules, in the place of the system's; it does not travel."""
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
    """In: `bootstrap` of a log in another process of ours: of a `RemoteLog`, or of an `ExternalLog`."""
    external = ExternalLogSettings.at(bootstrap)
    return RemoteLog(bootstrap) if external is None else ExternalLog(external)


def trusted_address(log: ServedLog, address: str) -> str:
    """For another process of ours that reaches `log` at `address`, HOST:PORT. Raises `LogError`."""
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
