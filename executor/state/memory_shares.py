"""How the memory that DuckDB may use is divided among the DuckDBs of this process.

Each query has one of its own, whose limit is fixed when it is opened, and DuckDB's default for each is most of the
machine. So whoever comes takes a quarter of what is left, and gives it back when it is closed: the limits never add up
to more than there is, but for the smallest share, below which a query cannot work.
"""

from __future__ import annotations

import functools
import os
import re
import threading
import weakref

import duckdb

SHARE_MIN = 128 * 1024 * 1024
_TAKEN = 4  # this part of what is left
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
    """In: `total`: bytes. Invariant: `_given` is the sum of what is not given back."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._given = 0
        self._lock = threading.RLock()  # giving back may happen inside taking, when garbage is collected

    def take(self) -> int:
        """A share, in bytes; `give_back` it, or `belongs_to` does."""
        with self._lock:
            share = max(SHARE_MIN, (self.total - self._given) // _TAKEN)
            self._given += share
            return share

    def give_back(self, share: int) -> None:
        with self._lock:
            self._given -= share

    def belongs_to(self, connection: duckdb.DuckDBPyConnection, share: int) -> None:
        """The share comes back with the end of the connection."""
        weakref.finalize(connection, self.give_back, share)


@functools.cache
def shares_of(limit: str | None) -> MemoryShares | None:
    """What a limit in DuckDB's notation (512MB, 4GiB) divides into; without one, half of the machine's memory.

    None where it cannot be read; DuckDB says then what it thinks of it.
    """
    if not limit:
        return MemoryShares(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)
    total = _bytes(limit)
    return None if total is None else MemoryShares(total)


_rooms: weakref.WeakKeyDictionary[duckdb.DuckDBPyConnection, int] = weakref.WeakKeyDictionary()


def set_room(connection: duckdb.DuckDBPyConnection, share: int) -> None:
    """In: bytes that the query of this connection may use, where others share its DuckDB."""
    _rooms[connection] = share


def room_of_a_store(connection: duckdb.DuckDBPyConnection) -> int:
    """Bytes for the rows of one store in memory: a quarter of what its query may use at most."""
    if connection in _rooms:
        return _rooms[connection] // _TAKEN
    ((found,),) = connection.execute("SELECT current_setting('memory_limit')").fetchall()
    return (_bytes(found) or SHARE_MIN) // _TAKEN


def _bytes(text: str) -> int | None:
    """Of DuckDB's notation; None where it is none."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", text, re.IGNORECASE)
    unit = _UNITS.get(found[2].upper()) if found else None
    return None if found is None or unit is None else int(float(found[1]) * unit)
