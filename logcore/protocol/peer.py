"""Who is at the other end of a connection, as far as handlers of requests want to know."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Peer:
    """State: what the connection has told of itself so far.

    `local` is where the client found us. `trusted`: it has shown the log's secret, so it is one of Millstream's own
    processes and may write to the topics that Millstream keeps for itself.
    """

    local: tuple[str, int]
    remote: tuple[str, int]
    client_id: str = ""
    trusted: bool = False
    muted_until_s: float = 0.0  # it took more than it may: nothing is read from it before then, on the loop's clock
    sasl_chosen: bool = False  # the next request carries credentials

    def __str__(self) -> str:
        return f"{self.remote[0]}:{self.remote[1]}"
