"""How many files a log keeps open at once, however many partitions it has."""

from __future__ import annotations

import resource
import threading
from collections import OrderedDict
from typing import Final, Protocol

_OPEN_MAX: Final = 4096
_OPEN_MIN: Final = 32


class HoldsFile(Protocol):
    def let_go(self) -> None:
        """Drops what it can open again. Whoever uses the file at this moment may go on."""
        ...


class OpenFiles:
    """State: those that hold a file, the one used longest ago first. At most `open_max` of them."""

    def __init__(self, open_max: int | None = None) -> None:
        self.open_max = open_max or _default_max()
        self._holders: OrderedDict[HoldsFile, None] = OrderedDict()
        self._latest: HoldsFile | None = None
        self._latest_but_one: HoldsFile | None = None
        self._lock = threading.Lock()

    def used(self, holder: HoldsFile) -> None:
        """Notes that the holder has a file and uses it now."""
        if holder is self._latest or holder is self._latest_but_one:
            return  # an append takes turns with two: the segment, and what says how far that is durable
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
    """Half of what the process may open, so that sockets and databases have room."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return _OPEN_MAX
    return max(_OPEN_MIN, min(_OPEN_MAX, limit // 2))
