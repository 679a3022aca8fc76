"""When each replica of a node needs its next tick: most rest, and a node may have ten thousand."""

from __future__ import annotations

from heapq import heappop, heappush

from ..replica.replica_core import NEVER_MS
from ..replica.replica_messages import PartitionId


class Alarms:
    """State: `_at` is when a partition needs its next tick. Invariant: each partition in `_at` has a heap entry at that
    time or earlier, whose time is in `_entered`; other heap entries are stale.

    Most times are postponed repeatedly before they come: each fetch of a follower does so. So a later time leaves the
    existing entry in place; the partition is entered again when that entry comes up.
    """

    def __init__(self) -> None:
        self._at: dict[PartitionId, int] = {}
        self._entered: dict[PartitionId, int] = {}
        self._heap: list[tuple[int, PartitionId]] = []

    def set(self, partition: PartitionId, at_ms: int) -> None:
        """Replaces the partition's time. In: `at_ms`: `NEVER_MS` if it needs no tick."""
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
        """Removes and returns the partitions that are due, earliest first. Set them again after their tick."""
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
