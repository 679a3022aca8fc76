"""Which brokers hold the replicas of a new partition: few racks in common, and everybody about as much as others."""

from __future__ import annotations

from collections import Counter

from ..machine import NodeId
from .metadata_image import BrokerImage, MetadataImage
from .metadata_records import PartitionState


class Placement:
    """Chooses replicas for several partitions, one after the other. The same image gives the same choice."""

    def __init__(self, image: MetadataImage) -> None:
        brokers = [broker for _, broker in sorted(image.brokers.items())]
        self._live = [broker for broker in brokers if not broker.fenced]
        self._down = [broker for broker in brokers if broker.fenced]
        self._replicas: Counter[NodeId] = Counter()
        self._leaders: Counter[NodeId] = Counter()
        self._successors: Counter[tuple[NodeId, NodeId]] = Counter()  # the first replica, and who leads when it is gone
        for state in image.partitions():
            self._count(state.replicas)

    @property
    def broker_count(self) -> int:
        """Those that may hold replicas: where too few are up, those that are down get some, and fetch them later."""
        return len(self._live) + len(self._down) if self._live else 0

    def choose(self, replication_factor: int) -> tuple[NodeId, ...]:
        """The replicas of one more partition, the preferred leader first, which is up. Needs as many brokers."""
        first = min(self._live, key=lambda broker: (self._leaders[broker.id], self._replicas[broker.id], broker.id))
        chosen = [first]
        while len(chosen) < replication_factor:
            racks = Counter(broker.rack for broker in chosen)
            chosen.append(min(self._others(chosen), key=lambda broker: self._cost(first, broker, racks)))
        replicas = tuple(broker.id for broker in chosen)
        self._count(replicas)
        return replicas

    def _cost(self, first: BrokerImage, broker: BrokerImage, racks: Counter[str | None]) -> tuple[int, int, int, int]:
        """A rack that has no replica yet is better than a broker with less on it. What the first one leads goes to all
        others when it is gone, not to one of them."""
        shared = racks[broker.rack] if broker.rack is not None else 0
        return shared, self._replicas[broker.id], self._successors[first.id, broker.id], broker.id

    def _others(self, chosen: list[BrokerImage]) -> list[BrokerImage]:
        return [broker for broker in self._live if broker not in chosen] or [
            broker for broker in self._down if broker not in chosen
        ]

    def _count(self, replicas: tuple[NodeId, ...]) -> None:
        self._replicas.update(replicas)
        self._leaders[replicas[0]] += 1
        self._successors.update((replicas[0], node) for node in replicas[1:2])


def new_partition(
    topic_id: str, number: int, replicas: tuple[NodeId, ...], in_sync: tuple[NodeId, ...], min_isr: int
) -> PartitionState:
    """An empty partition: all live replicas are in sync, the first of them leads. With too few of them nothing can be
    committed before others join, so whoever is not up has all that is acknowledged: it is eligible."""
    min_isr = min(min_isr, len(replicas))
    absent = tuple(node for node in replicas if node not in in_sync)
    return PartitionState(
        topic_id=topic_id,
        partition=number,
        leader=in_sync[0],
        leader_epoch=0,
        partition_epoch=0,
        replicas=replicas,
        isr=in_sync,
        elr=absent if len(in_sync) < min_isr else (),
        min_isr=min_isr,
    )
