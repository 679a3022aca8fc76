"""The log of a cluster for a client in the process of one of its nodes: `NodeLog`, a `LogClient`."""

from __future__ import annotations

import ssl
from typing import Final

from ..clients.routed_log import RoutedLog
from ..protocol.routing import Router
from ..protocol.security.sasl import secret_credentials
from .serving import ServedNode

_PATIENCE_S: Final = 30.0


class NodeLog(RoutedLog):
    """What this node leads or coordinates is asked of it in process, everything else of the other nodes, over the
    network. Errors, retries and fail-overs are those of `RemoteLog`; it is trusted as whoever shows the log's secret.
    """

    def __init__(
        self,
        served: ServedNode,
        *,
        bootstrap: str = "",
        patience_s: float = _PATIENCE_S,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """In: `bootstrap`: empty where no other process finds the cluster. `tls`: how other nodes are asked."""
        login = secret_credentials(served.serving.log.secret)
        super().__init__(Router((), login, tls, patience_s, own=served.door()), bootstrap)
