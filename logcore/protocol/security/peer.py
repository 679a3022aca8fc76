"""The other end of a connection, as handlers of requests see it."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, field
from typing import Final, Literal

from .accesses import Access
from .scram import ScramServer
from .users import Principal

_ids: Final = itertools.count()


@dataclass(slots=True)
class Peer:
    """State: what is known about the connection so far.

    `local`: the address of this node that the client has connected to. `trusted`: it has proved the log's secret, so it
    is one of Millstream's own processes, and may write to topics that are reserved for Millstream. `user`: otherwise
    the authenticated user; None if it has not authenticated, or there are no users.
    """

    local: tuple[str, int]
    remote: tuple[str, int]
    certified: tuple[str, ...] = ()  # the names in its certificate, which a trusted authority has signed
    client_id: str = ""
    trusted: bool = False
    user: Principal | None = None
    refused: bool = False  # its login failed: nothing more is answered
    since_s: float = field(default_factory=time.monotonic)
    muted_until_s: float = 0.0  # it exceeded its quota: nothing is read from it before then, on the loop's clock
    sasl: ScramServer | Literal["PLAIN"] | None = None  # the mechanism of the login that is under way

    gone: bool = False  # the connection is closed
    id: int = field(default_factory=lambda: next(_ids))  # identifies the connection

    @property
    def is_known(self) -> bool:
        return self.trusted or self.user is not None

    def may(self, access: Access, name: str) -> bool:
        """Whether it may do this with the resource of this name. Without users, every client may; with users, only an
        authenticated one gets here."""
        return self.trusted or self.user is None or self.user.has(access, name, self.remote[0])

    def __str__(self) -> str:
        return f"{self.remote[0]}:{self.remote[1]}"
