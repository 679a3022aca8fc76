"""Limits the connections of a listener, in total and per address. Only the listener's event loop may use it."""

from __future__ import annotations

import collections
import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from ..replication.complaints import Complaints
from .security.peer import Peer

_STRANGERS_MAX: Final = 32
"""Connections beyond the limits that may still prove that they are our own. The oldest is closed for the next one."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """How many connections may be open at a time."""

    total: int = 1000
    per_address: int = 500


def counted_as(address: str) -> str:
    """What counts as one client: one IPv4 address, or an IPv6 network of 64 bits, which one client usually has.

    >>> counted_as("10.0.0.1"), counted_as("2001:db8::1:2"), counted_as("::ffff:10.0.0.1"), counted_as("")
    ('10.0.0.1', '2001:db8::', '10.0.0.1', '')
    """
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((found, 64), strict=False).network_address)


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
        """Whether one of the existing connections may be counted as this address's."""
        return self._by_address[address] < self._limits.per_address

    def enter(self, address: str) -> None:
        self._by_address[address] += 1

    def leave(self, address: str) -> None:
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]


class AdmittedConnection(Protocol):
    """What admission needs of a connection."""

    @property
    def peer(self) -> Peer: ...

    def turn_away(self) -> None: ...

    def close(self) -> None: ...


C = TypeVar("C", bound=AdmittedConnection)


class HeldConnections(Generic[C]):
    """The connections of the Kafka listener. Without this reserve one client could lock out Millstream's own processes.

    State: all connections; how many each address has; whether the listener is closed, and with it all current and later
    connections; and the strangers: connections beyond the limits, the oldest first. A stranger may only authenticate.
    It stays if it is one of Millstream's own processes, or if the limits allow it by then. `complaints`: what was
    logged of connections that were closed.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self._places = Places(limits)
        self._counted: dict[C, str] = {}
        self._own: set[C] = set()
        self._strangers: dict[C, None] = {}
        self._closed = False
        self.complaints = Complaints()

    def __iter__(self) -> Iterator[C]:
        return iter((*self._counted, *self._own, *self._strangers))

    def close(self) -> None:
        """Closes all connections. Others that the system has accepted already are closed as they enter."""
        self._closed = True
        for connection in self:
            connection.close()

    def enter(self, connection: C) -> None:
        if self._closed:
            connection.close()
            return
        if self._count(connection):
            return
        self._strangers[connection] = None
        if len(self._strangers) > _STRANGERS_MAX:
            next(iter(self._strangers)).turn_away()

    def admits(self, connection: C) -> bool:
        """Whether this connection may send requests, now that it has authenticated."""
        if connection not in self._strangers:
            return True
        if not self._count(connection):
            if not connection.peer.trusted:
                return False
            self._own.add(connection)
        del self._strangers[connection]
        return True

    def leave(self, connection: C) -> None:
        """It may be called twice."""
        address = self._counted.pop(connection, None)
        if address is not None:
            self._places.leave(address)
        self._own.discard(connection)
        self._strangers.pop(connection, None)

    def _count(self, connection: C) -> bool:
        address = counted_as(connection.peer.remote[0])
        if not self._places.has_room(address):
            return False
        self._places.enter(address)
        self._counted[connection] = address
        return True
