"""How many connections each address has. Only for the event loop.

A connection that another node of the cluster passes a request on through counts as the client's whose request it is:
else all clients of that node would share what one address may have.
"""

from __future__ import annotations

import collections
from dataclasses import dataclass
from typing import Final

from .http_errors import TOO_MANY_REQUESTS, RequestRefused

PLACE: Final = "millstream.place"
"""In the state of a request's scope: the `Place` of its connection."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """How many connections may be open at a time."""

    total: int = 1000
    per_address: int = 500


class Places:
    """State: how many connections are counted for each address."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self._by_address: collections.Counter[str] = collections.Counter()

    def __len__(self) -> int:
        return self._by_address.total()

    def has_room(self, address: str) -> bool:
        return len(self) < self._limits.total and self.has_room_for(address)

    def has_room_for(self, address: str) -> bool:
        """Whether one of the connections that there are may be counted as this address's."""
        return self._by_address[address] < self._limits.per_address

    def enter(self, address: str) -> None:
        self._by_address[address] += 1

    def leave(self, address: str) -> None:
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]


class Place:
    """State: the address for which one connection is counted, until `leave`."""

    def __init__(self, places: Places, address: str) -> None:
        self._places = places
        self._address = address
        places.enter(address)

    def count_as(self, address: str) -> None:
        """Raises `RequestRefused` where that address has too many connections already."""
        if address == self._address:
            return
        if not self._places.has_room_for(address):
            raise RequestRefused(TOO_MANY_REQUESTS, f"{address} has too many connections open, some by other nodes")
        self.leave()
        self._address = address
        self._places.enter(address)

    def leave(self) -> None:
        self._places.leave(self._address)
