"""Divides the memory that DuckDB may use among the DuckDB databases of this process.

Each query has its own, whose limit is fixed when it is opened, and DuckDB's default for each is most of the machine. So
each one takes a quarter of what is left when it is opened, and gives it back when it is closed. The limits never add up
to more than the total, except for the minimal share, which a query needs to work at all.
"""

from __future__ import annotations

import functools
import os
import re
import threading
import weakref

import duckdb

SHARE_MIN = 128 * 1024 * 1024
_TAKEN = 4  # the divisor: each takes this part of what is left
_UNITS = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
    "TIB": 2**40,
}


class MemoryShares:
    """In: `total`: bytes. Invariant: `_given` is the sum of the shares that were not given back."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._given = 0
        self._lock = threading.RLock()  # a garbage collection during `take` may call `give_back`

    def take(self) -> int:
        """A share, in bytes. The caller gives it back with `give_back`, or ties it to a connection with
        `belongs_to`."""
        with self._lock:
            share = max(SHARE_MIN, (self.total - self._given) // _TAKEN)
            self._given += share
            return share

    def give_back(self, share: int) -> None:
        with self._lock:
            self._given -= share

    def belongs_to(self, connection: duckdb.DuckDBPyConnection, share: int) -> None:
        """Gives the share back when the connection is finalized."""
        weakref.finalize(connection, self.give_back, share)


@functools.cache
def shares_of(limit: str | None) -> MemoryShares | None:
    """The shares of a limit in DuckDB's notation (512MB, 4GiB); without a limit, of half of the machine's memory.

    None if the limit cannot be parsed; DuckDB then reports the error.
    """
    if not limit:
        return MemoryShares(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)
    total = _bytes(limit)
    return None if total is None else MemoryShares(total)


_rooms: weakref.WeakKeyDictionary[duckdb.DuckDBPyConnection, int] = weakref.WeakKeyDictionary()


def set_room(connection: duckdb.DuckDBPyConnection, share: int) -> None:
    """Sets how many bytes the query of this connection may use, if others share its DuckDB instance."""
    _rooms[connection] = share


def room_of_a_store(connection: duckdb.DuckDBPyConnection) -> int:
    """Bytes for the rows of one store in memory: a quarter of the maximum of its query."""
    if connection in _rooms:
        return _rooms[connection] // _TAKEN
    ((found,),) = connection.execute("SELECT current_setting('memory_limit')").fetchall()
    return (_bytes(found) or SHARE_MIN) // _TAKEN


def _bytes(text: str) -> int | None:
    """The bytes of a size in DuckDB's notation; None if it is none."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", text, re.IGNORECASE)
    unit = _UNITS.get(found[2].upper()) if found else None
    return None if found is None or unit is None else int(float(found[1]) * unit)
