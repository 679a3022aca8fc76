"""The client for which a connection of the HTTP API is counted. Only for the event loop.

A connection of another node that forwards a request counts as a connection of the request's client; otherwise all
clients of that node would share the limit of one address.
"""

from __future__ import annotations

from typing import Final

from ...logcore.protocol.admission import Places, counted_as
from .errors import TOO_MANY_REQUESTS, RequestRefused

PLACE: Final = "millstream.place"
"""In the state of a request's scope: the `ConnectionPlace` of its connection; absent for connections beyond the
limits."""


class ConnectionPlace:
    """State: the address that one connection counts for, until `leave`."""

    def __init__(self, places: Places, address: str) -> None:
        self._places = places
        self._address = counted_as(address)
        places.enter(self._address)

    def count_as(self, address: str) -> None:
        """Counts the connection for this address. Raises `RequestRefused` if the address has too many connections
        already."""
        counted = counted_as(address)
        if counted == self._address:
            return
        if not self._places.has_room_for(counted):
            raise RequestRefused(
                TOO_MANY_REQUESTS, f"{address} has too many open connections, including those of other nodes"
            )
        self.leave()
        self._address = counted
        self._places.enter(counted)

    def leave(self) -> None:
        self._places.leave(self._address)
