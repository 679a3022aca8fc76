"""The socket and the event loop under the HTTP API: hypercorn (HTTP/1.1 and h2c) in its own thread."""

from __future__ import annotations

import asyncio
import sys
from typing import Final

from hypercorn.config import Config
from starlette.types import ASGIApp

from ...logcore.protocol.admission import ConnectionLimits
from ..config.configuration import ListenAddress
from ..security.tls import TlsSettings
from ..socket_listener import SocketListener
from .connections import Connections
from .gate import HEADER_BYTES_MAX

_KEEP_ALIVE_S: Final = 60
_GRACE_S: Final = 3.0


class HttpListener(SocketListener):
    """Answers after `start`."""

    def __init__(
        self, address: ListenAddress, what: str = "http", tls: TlsSettings | None = None,
        limits: ConnectionLimits | None = None,
    ) -> None:  # fmt: skip
        """In: `what`: the name of its flag. Raises `CannotListen`, `CannotUseTls`."""
        if tls is not None:
            tls.apply(Config())
        self._tls = tls
        self._limits = limits or ConnectionLimits()
        super().__init__(what, address)

    def start(self, app: ASGIApp) -> None:
        """Starts answering requests."""

        async def serve(stop: asyncio.Event) -> None:
            self._serves()
            await Connections(app, self._config(), self._limits).serve(self._socket, stop)

        self._begin(serve)

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
