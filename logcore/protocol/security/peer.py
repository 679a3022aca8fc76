"""Who is at the other end of a connection, as far as handlers of requests want to know."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, field
from typing import Final, Literal

from .scram import ScramServer
from .users import Principal, Right

_ids: Final = itertools.count()


@dataclass(slots=True)
class Peer:
    """State: what the connection has told of itself so far.

    `local` is where the client found us. `trusted`: it has shown the log's secret, so it is one of Millstream's own
    processes and may write to the topics that Millstream keeps for itself. `user`: who it is otherwise; None where it
    has not said, or where there are no users.
    """

    local: tuple[str, int]
    remote: tuple[str, int]
    certified: tuple[str, ...] = ()  # the names in its certificate, which was signed by whom we trust
    client_id: str = ""
    trusted: bool = False
    user: Principal | None = None
    refused: bool = False  # it did not know its password: nothing more is answered
    since_s: float = field(default_factory=time.monotonic)
    muted_until_s: float = 0.0  # it took more than it may: nothing is read from it before then, on the loop's clock
    sasl: ScramServer | Literal["PLAIN"] | None = None  # the mechanism by which it is about to show who it is

    gone: bool = False  # the connection is closed
    id: int = field(default_factory=lambda: next(_ids))  # of the connection

    @property
    def is_known(self) -> bool:
        return self.trusted or self.user is not None

    def may(self, verb: Right, name: str) -> bool:
        """Where there are no users everybody may; where there are, nobody gets here who is not one."""
        return self.trusted or self.user is None or self.user.may(verb, name)

    def __str__(self) -> str:
        return f"{self.remote[0]}:{self.remote[1]}"
