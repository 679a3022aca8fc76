"""Whose request it is that another node of the cluster passes on: that node says so, and shows that it is one of them.

The proof is an HMAC with what only nodes know. Whoever can read what nodes send each other could use it again, to have
a connection of his own counted as that client's: it opens nothing else. Where that matters, nodes speak TLS.
"""

from __future__ import annotations

import hmac
from typing import Final

from starlette.types import Scope

from .forwarding import CLIENT, FORWARDED, Headers

_PURPOSE: Final = b"client of a forwarded http request"


class ForwardedClients:
    """In: `secret`: the same at all nodes of the cluster, and known to nobody else; `node`: the one that this is."""

    def __init__(self, secret: str, node: int) -> None:
        self._key = hmac.digest(secret.encode(), _PURPOSE, "sha256")
        self._node = str(node).encode()

    def said_of(self, scope: Scope) -> Headers:
        """The headers that go along with a client's request."""
        client = str((scope.get("client") or ("",))[0]).encode("latin-1", "replace")
        return [(FORWARDED, self._node), (CLIENT, client + b" " + self._proof(self._node, client))]

    def address_of(self, scope: Scope) -> str | None:
        """Of the client whose request a node passes on; None where it came by itself, or that is not shown."""
        headers = {name.lower(): value for name, value in scope["headers"]}
        client, _, proof = headers.get(CLIENT, b"").rpartition(b" ")
        if not client or not hmac.compare_digest(proof, self._proof(headers.get(FORWARDED, b""), client)):
            return None
        return client.decode("latin-1")

    def _proof(self, node: bytes, client: bytes) -> bytes:
        return hmac.new(self._key, node + b" " + client, "sha256").hexdigest().encode()
