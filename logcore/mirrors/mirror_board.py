"""The status of a mirror: the state of each partition, the lag and the throughput."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from ..client import TopicPartition

_WINDOW_S: Final = 10.0

PartitionPhase = Literal["COPYING", "WAITING", "STOPPED"]


@dataclass(frozen=True, slots=True)
class MirroredPartition:
    """`phase`: WAITING after a temporary error, STOPPED after a permanent one. `lag`: the number of the source's
    offsets that are not copied yet; None if unknown."""

    end_offset: int = 0
    lag: int | None = None
    phase: PartitionPhase = "COPYING"
    error: str | None = None


@dataclass(slots=True)
class MirrorBoard:
    """Any thread may call any method. State: the partitions, the topics that are not copied and why, and what was
    copied in the last seconds."""

    _partitions: dict[TopicPartition, MirroredPartition] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    bytes: int = 0
    records: int = 0
    offsets_of_groups: int = 0
    _moments: deque[tuple[float, int]] = field(default_factory=deque)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def note(self, where: TopicPartition, **changes: Any) -> None:
        with self._guard:
            known = self._partitions.get(where, MirroredPartition())
            self._partitions[where] = replace(known, **changes)

    def begin(self) -> None:
        """Forgets the partitions, for a mirror that is opened again."""
        with self._guard:
            self._partitions, self.refused = {}, {}

    @property
    def partitions(self) -> dict[TopicPartition, MirroredPartition]:
        with self._guard:
            return dict(self._partitions)

    def refuse(self, topic: str, why: str | None) -> None:
        with self._guard:
            kept = {name: reason for name, reason in self.refused.items() if name != topic}
            self.refused = kept if why is None else {**kept, topic: why}

    def copied(self, size: int, records: int) -> None:
        now = time.monotonic()
        with self._guard:
            self.bytes, self.records = self.bytes + size, self.records + records
            while self._moments and self._moments[0][0] <= now - _WINDOW_S:
                self._moments.popleft()
            self._moments.append((now, size))

    @property
    def bytes_per_s(self) -> float:
        """The throughput of the last ten seconds."""
        now = time.monotonic()
        with self._guard:
            recent = [moment for moment in self._moments if moment[0] > now - _WINDOW_S]
        if not recent:
            return 0.0
        return sum(size for _, size in recent) / max(1.0, now - recent[0][0])

    @property
    def lag(self) -> int | None:
        known = [each.lag for each in self.partitions.values() if each.lag is not None]
        return sum(known) if known else None

    @property
    def error(self) -> str | None:
        """The most important error; None if there is none."""
        stopped = [each.error for each in self.partitions.values() if each.phase == "STOPPED" and each.error]
        waiting = [each.error for each in self.partitions.values() if each.phase == "WAITING" and each.error]
        return next(iter((*self.refused.values(), *stopped, *waiting)), None)
