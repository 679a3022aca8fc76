"""When which replica of a node wants to hear the time: most rest, and a node may have ten thousand."""

from __future__ import annotations

from heapq import heappop, heappush

from ..replica.replica_core import NEVER_MS
from ..replica.replica_messages import PartitionId


class Alarms:
    """State: `_at` is when a partition wants to hear the time. Invariant: what is in `_at` has an entry in the heap, at
    that time or at an earlier one, which `_entered` says; other entries say nothing any more.

    Most times are put off before they come, again and again: each fetch of a follower does so. So a later time leaves
    the entry where it is, and is entered when that comes up.
    """

    def __init__(self) -> None:
        self._at: dict[PartitionId, int] = {}
        self._entered: dict[PartitionId, int] = {}
        self._heap: list[tuple[int, PartitionId]] = []

    def set(self, partition: PartitionId, at_ms: int) -> None:
        """Instead of what was set before. In: `at_ms`: `NEVER_MS` where nothing follows from the passing of time."""
        if at_ms == NEVER_MS:
            self._at.pop(partition, None)
            return
        self._at[partition] = at_ms
        if at_ms < self._entered.get(partition, NEVER_MS):
            self._enter(partition, at_ms)

    def _enter(self, partition: PartitionId, at_ms: int) -> None:
        self._entered[partition] = at_ms
        heappush(self._heap, (at_ms, partition))

    def take(self, now_ms: int) -> list[PartitionId]:
        """Those whose time has come, earliest first; they are set again when they have heard it."""
        due: list[PartitionId] = []
        while self._heap and self._heap[0][0] <= now_ms:
            entered_ms, partition = heappop(self._heap)
            if self._entered.get(partition) != entered_ms:
                continue
            del self._entered[partition]
            at_ms = self._at.get(partition, NEVER_MS)
            if at_ms <= now_ms:
                del self._at[partition]
                due.append(partition)
            elif at_ms != NEVER_MS:
                self._enter(partition, at_ms)
        return due
