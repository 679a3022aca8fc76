"""Sets of global transaction ids of MariaDB and MySQL: the transactions that were read."""

from __future__ import annotations

import struct
import uuid
from abc import ABC, abstractmethod
from bisect import bisect_right
from typing import Literal

Flavor = Literal["mysql", "mariadb"]


class Gtids(ABC):
    """A set of transaction ids, to which each transaction that was read is added. Raises ValueError for invalid
    texts."""

    @abstractmethod
    def add(self, gtid: str) -> None: ...

    @abstractmethod
    def holds(self, gtid: str) -> bool: ...

    @abstractmethod
    def covers(self, other: Gtids) -> bool:
        """Whether this set contains all ids of the other set, which is of the same class."""

    @abstractmethod
    def __str__(self) -> str: ...


class MariaDbGtids(Gtids):
    """The last transaction of each domain: `0-1-5,3-1-7`. State: domain → server and number."""

    def __init__(self, text: str = "") -> None:
        self._last: dict[int, tuple[int, int]] = {}
        for gtid in filter(None, (part.strip() for part in text.split(","))):
            self.add(gtid)

    def add(self, gtid: str) -> None:
        domain, server, number = map(int, gtid.split("-"))
        self._last[domain] = (server, number)

    def holds(self, gtid: str) -> bool:
        domain, _, number = map(int, gtid.split("-"))
        return domain in self._last and self._last[domain][1] >= number

    def covers(self, other: Gtids) -> bool:
        assert isinstance(other, MariaDbGtids)
        return all(
            domain in self._last and self._last[domain][1] >= number for domain, (_, number) in other._last.items()
        )

    def __str__(self) -> str:
        return ",".join(f"{domain}-{server}-{number}" for domain, (server, number) in sorted(self._last.items()))


class MySqlGtids(Gtids):
    """Intervals of the transactions of each server: `uuid:1-5:8,uuid:1-3`. State: server → (first, last) numbers, in
    order; adjacent intervals are merged."""

    def __init__(self, text: str = "") -> None:
        self._intervals: dict[str, list[tuple[int, int]]] = {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            server, *intervals = part.split(":")
            for interval in intervals:
                first, _, last = interval.partition("-")
                self._add(str(uuid.UUID(server)), int(first), int(last or first))

    def add(self, gtid: str) -> None:
        server, _, number = gtid.partition(":")
        self._add(server.lower(), int(number), int(number))

    def _add(self, server: str, first: int, last: int) -> None:
        intervals = self._intervals.setdefault(server, [])
        if intervals and intervals[-1][1] + 1 == first:  # nearly always: it is the next number
            intervals[-1] = (intervals[-1][0], last)
            return
        intervals.append((first, last))
        intervals.sort()
        merged = [intervals[0]]
        for begin, end in intervals[1:]:
            if begin <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((begin, end))
        self._intervals[server] = merged

    def holds(self, gtid: str) -> bool:
        server, _, number = gtid.partition(":")
        return self._holds(server.lower(), int(number), int(number))

    def _holds(self, server: str, first: int, last: int) -> bool:
        intervals = self._intervals.get(server, [])
        at = bisect_right(intervals, (first, 1 << 64)) - 1
        return at >= 0 and intervals[at][1] >= last

    def covers(self, other: Gtids) -> bool:
        assert isinstance(other, MySqlGtids)
        return all(
            self._holds(server, first, last)
            for server, intervals in other._intervals.items()
            for first, last in intervals
        )

    def encoded(self) -> bytes:
        """The encoding for COM_BINLOG_DUMP_GTID, with exclusive ends."""
        data = struct.pack("<Q", len(self._intervals))
        for server, intervals in sorted(self._intervals.items()):
            data += uuid.UUID(server).bytes + struct.pack("<Q", len(intervals))
            for first, last in intervals:
                data += struct.pack("<QQ", first, last + 1)
        return data

    def __str__(self) -> str:
        def shown(first: int, last: int) -> str:
            return str(first) if first == last else f"{first}-{last}"

        return ",".join(
            ":".join([server, *(shown(*interval) for interval in intervals)])
            for server, intervals in sorted(self._intervals.items())
        )


def gtids_of(flavor: Flavor, text: str) -> Gtids:
    return MariaDbGtids(text) if flavor == "mariadb" else MySqlGtids(text)
