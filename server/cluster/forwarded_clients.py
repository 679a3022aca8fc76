"""The client of a forwarded request: the forwarding node names it, and proves that it is a node of the cluster.

The proof is an HMAC with the secret of the nodes. Somebody who can read the traffic between nodes could replay it, and
have his own connection counted as that client's. The client's certificate is accepted only over TLS, where nobody can
read the proof.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from starlette.types import Scope

from ..security.access import CERTIFICATE
from .forwarding import CLIENT, FORWARDED, Headers

_PURPOSE: Final = b"client of a forwarded http request"


class ForwardedClient(NamedTuple):
    """`certificate`: the names in the certificate that the client presented to the node, for
    `Authenticator.certified`."""

    address: str
    certificate: tuple[str, ...]


class ForwardedClients:
    """In: `secret`: shared by all nodes of the cluster and known to nobody else; `node`: this node."""

    def __init__(self, secret: str, node: int) -> None:
        self._key = hmac.digest(secret.encode(), _PURPOSE, "sha256")
        self._node = str(node).encode()

    def said_of(self, scope: Scope) -> Headers:
        """The headers that describe the client, for forwarding its request."""
        address = str((scope.get("client") or ("",))[0]).encode("latin-1", "replace")
        said = address + b" " + _names_said(scope.get("state", {}).get(CERTIFICATE, ()))
        return [(FORWARDED, self._node), (CLIENT, said + b" " + self._proof(self._node, said))]

    def client_of(self, scope: Scope) -> ForwardedClient | None:
        """The client whose request a node forwards; None if the request is not forwarded, or its proof is wrong."""
        headers = {name.lower(): value for name, value in scope["headers"]}
        said, _, proof = headers.get(CLIENT, b"").rpartition(b" ")
        if not said or not hmac.compare_digest(proof, self._proof(headers.get(FORWARDED, b""), said)):
            return None
        address, _, names = said.decode("latin-1").partition(" ")
        secret = scope.get("scheme") in ("https", "wss")
        return ForwardedClient(address, tuple(map(unquote, names.split(","))) if names and secret else ())

    def _proof(self, node: bytes, said: bytes) -> bytes:
        return hmac.new(self._key, node + b" " + said, "sha256").hexdigest().encode()


def _names_said(names: Sequence[str]) -> bytes:
    return ",".join(quote(name, safe="=") for name in names).encode()
