"""Limits how fast replicas catch up: bytes per second of a node, as a leader and as a follower (the idea is KIP-73's).

Only replicas that are not in sync are throttled. Acknowledgements wait for those in sync, so they are never throttled.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ...log_settings import ALL_BROKERS, of_broker
from ..controller.metadata_image import MetadataImage
from ..machine import NodeId
from .replica_messages import PartitionId

THROTTLED_RATE: Final = "replication.throttled.rate"  # bytes per second
LEADER_RATE: Final = "leader.replication.throttled.rate"  # the same, under Kafka's names
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"

_FORGOTTEN_MS: Final = 1_000  # a waiting partition that no longer asks is dropped: it was deleted, or is in sync


def throttled_rate(image: MetadataImage) -> int | None:
    """Bytes per second; None: no limit."""
    rate = image.configs.get(ALL_BROKERS, {}).get(THROTTLED_RATE)
    return int(rate) if rate is not None else None


class Rates(NamedTuple):
    """Bytes per second of a node, as a leader and as a follower; None: no limit."""

    leading: int | None
    following: int | None


def throttled_rates(image: MetadataImage, node: NodeId) -> Rates:
    """The smaller of the rate for every node and the rate that Kafka's tools have set for this node."""

    def rate(name: str) -> int | None:
        set_here = (image.configs.get(resource, {}).get(name) for resource in (of_broker(node), ALL_BROKERS))
        given = next((int(value) for value in set_here if value is not None), None)
        return min((found for found in (given, throttled_rate(image)) if found is not None), default=None)

    return Rates(rate(LEADER_RATE), rate(FOLLOWER_RATE))


class Allowance:
    """How many bytes may be copied now. A batch is never split: it may exceed the rest, and later batches wait longer.

    The partition that was first told to wait goes first, so no partition keeps another one from catching up.
    State: the rest, in thousandths of a byte; at most that of one second.
    """

    def __init__(self) -> None:
        self.rate: int | None = None
        self._left = 0
        self._now_ms = 0
        self._waiting: dict[PartitionId, int] = {}  # when each asked last, in the order in which they began to wait

    def set_rate(self, rate: int | None) -> None:
        if rate != self.rate:
            self.rate, self._left = rate, 0
            self._waiting.clear()

    def allows(self, partition: PartitionId, now_ms: int) -> bool:
        """Whether the partition may copy something now. If not, it asks again with each tick."""
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
            self._refill(self.rate, now_ms)  # first, so that unused time beyond a second does not pay for these bytes
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
    """The limits of one node: for what followers fetch from it, and for what it fetches itself."""

    def __init__(self) -> None:
        self.leading = Allowance()
        self.following = Allowance()

    def set_rates(self, rates: Rates) -> None:
        self.leading.set_rate(rates.leading)
        self.following.set_rate(rates.following)
