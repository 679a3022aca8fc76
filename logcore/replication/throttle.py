"""How fast replicas catch up: bytes per second of a node, as a leader and as a follower (the idea is KIP-73's).

Only replicas that are not in sync are slowed down. Those in sync hold up what is acknowledged, and are never in here.
"""

from __future__ import annotations

from typing import Final

from ..log_settings import ALL_BROKERS
from .metadata_image import MetadataImage
from .replica_messages import PartitionId

THROTTLED_RATE: Final = "replication.throttled.rate"  # bytes per second

_FORGOTTEN_MS: Final = 1_000  # who has waited and does not ask any more: its partition went, or it is in sync


def throttled_rate(image: MetadataImage) -> int | None:
    """Bytes per second; None: as fast as it goes."""
    rate = image.configs.get(ALL_BROKERS, {}).get(THROTTLED_RATE)
    return int(rate) if rate is not None else None


class Allowance:
    """What may still be copied now. What was taken beyond it is waited for: a batch is never cut in two.

    Whoever asked first, and was told to wait, goes first: no partition keeps another one from catching up.
    State: thousandths of a byte that are left, at most one second's.
    """

    def __init__(self) -> None:
        self.rate: int | None = None
        self._left = 0
        self._now_ms = 0
        self._waiting: dict[PartitionId, int] = {}  # when it asked last, in the order in which they began to wait

    def set_rate(self, rate: int | None) -> None:
        if rate != self.rate:
            self.rate, self._left = rate, 0
            self._waiting.clear()

    def allows(self, partition: PartitionId, now_ms: int) -> bool:
        """Whether something may be copied now. Who is refused asks again, as it does with each tick."""
        if self.rate is None:
            return True
        self._refill(self.rate, now_ms)
        if self._left > 0 and self._is_next(partition):
            self._waiting.pop(partition, None)
            return True
        self._waiting[partition] = now_ms
        return False

    def take(self, bytes: int, now_ms: int) -> None:
        if self.rate is not None:
            self._refill(self.rate, now_ms)  # what was saved up before does not pay for what comes after
            self._left -= bytes * 1000

    def _refill(self, rate: int, now_ms: int) -> None:
        if now_ms > self._now_ms:
            self._left = min(rate * 1000, self._left + rate * (now_ms - self._now_ms))
            self._now_ms = now_ms

    def _is_next(self, partition: PartitionId) -> bool:
        while self._waiting:
            first, asked_ms = next(iter(self._waiting.items()))
            if first == partition or asked_ms >= self._now_ms - _FORGOTTEN_MS:
                return first == partition
            del self._waiting[first]
        return True


class Throttle:
    """Of one node: what its followers' replicas fetch, and what it fetches itself."""

    def __init__(self) -> None:
        self.leading = Allowance()
        self.following = Allowance()

    def set_rate(self, rate: int | None) -> None:
        self.leading.set_rate(rate)
        self.following.set_rate(rate)
