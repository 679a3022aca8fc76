"""Limits how many files a log keeps open at once, however many partitions it has."""

from __future__ import annotations

import contextlib
import resource
import threading
from collections import OrderedDict
from typing import Final, Protocol

_OPEN_MAX: Final = 4096
_OPEN_MIN: Final = 32
_LIMIT_OF_PROCESS: Final = 65_536


def raise_limit_of_process() -> None:
    """Lets the process open more files, as far as it may by itself: shells often begin with 1024, and each connection
    needs one, too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _LIMIT_OF_PROCESS if hard == resource.RLIM_INFINITY else min(hard, _LIMIT_OF_PROCESS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class HoldsFile(Protocol):
    def let_go(self) -> None:
        """Releases the file, which it can open again. A thread that is using the file can continue."""
        ...


class OpenFiles:
    """State: the holders of open files, least recently used first; at most `open_max`."""

    def __init__(self, open_max: int | None = None) -> None:
        self.open_max = open_max or _default_max()
        self._holders: OrderedDict[HoldsFile, None] = OrderedDict()
        self._latest: HoldsFile | None = None
        self._latest_but_one: HoldsFile | None = None
        self._lock = threading.Lock()

    def used(self, holder: HoldsFile) -> None:
        """Records that the holder has an open file and uses it now."""
        if holder is self._latest or holder is self._latest_but_one:
            return  # appends alternate between two files: the segment and its file `durable`
        oldest: HoldsFile | None = None
        with self._lock:
            self._latest, self._latest_but_one = holder, self._latest
            self._holders[holder] = None
            self._holders.move_to_end(holder)
            if len(self._holders) > self.open_max:
                oldest, _ = self._holders.popitem(last=False)
                if oldest is self._latest_but_one:
                    self._latest_but_one = None
        if oldest is not None:
            oldest.let_go()

    def forget(self, holder: HoldsFile) -> None:
        with self._lock:
            self._holders.pop(holder, None)
            self._latest = self._latest_but_one = None

    @property
    def count(self) -> int:
        return len(self._holders)


def _default_max() -> int:
    """Half of the files that the process may open; the rest is left for sockets and databases."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return _OPEN_MAX
    return max(_OPEN_MIN, min(_OPEN_MAX, limit // 2))
