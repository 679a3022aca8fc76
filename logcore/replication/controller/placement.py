"""Chooses the brokers for the replicas of a new partition: on different racks if possible, with an even load."""

from __future__ import annotations

from collections import Counter

from ..machine import NodeId
from .metadata_image import BrokerImage, MetadataImage
from .metadata_records import PartitionState


class Placement:
    """Chooses replicas for several partitions, one after the other. The same image gives the same choices."""

    def __init__(self, image: MetadataImage) -> None:
        brokers = [broker for _, broker in sorted(image.brokers.items())]
        self._live = [broker for broker in brokers if not broker.fenced]
        self._down = [broker for broker in brokers if broker.fenced]
        self._replicas: Counter[NodeId] = Counter()
        self._leaders: Counter[NodeId] = Counter()
        self._successors: Counter[tuple[NodeId, NodeId]] = Counter()  # (first replica, next leader if it fails)
        for row in image.rows():
            self._count(row.first.replicas, row.of)

    @property
    def broker_count(self) -> int:
        """The number of brokers that may hold replicas. If too few are up, brokers that are down get replicas too, and
        fetch them later."""
        return len(self._live) + len(self._down) if self._live else 0

    def choose(self, replication_factor: int) -> tuple[NodeId, ...]:
        """The replicas of one more partition. The first is the preferred leader, and is up. In: at most
        `broker_count`."""
        first = min(self._live, key=lambda broker: (self._leaders[broker.id], self._replicas[broker.id], broker.id))
        chosen = [first]
        while len(chosen) < replication_factor:
            racks = Counter(broker.rack for broker in chosen)
            chosen.append(min(self._others(chosen), key=lambda broker: self._cost(first, broker, racks)))
        replicas = tuple(broker.id for broker in chosen)
        self._count(replicas)
        return replicas

    def _cost(self, first: BrokerImage, broker: BrokerImage, racks: Counter[str | None]) -> tuple[int, int, int, int]:
        """A rack without a replica counts more than a broker with fewer replicas. Second replicas are spread, so that
        all other brokers share the partitions of a leader that fails."""
        shared = racks[broker.rack] if broker.rack is not None else 0
        return shared, self._replicas[broker.id], self._successors[first.id, broker.id], broker.id

    def _others(self, chosen: list[BrokerImage]) -> list[BrokerImage]:
        return [broker for broker in self._live if broker not in chosen] or [
            broker for broker in self._down if broker not in chosen
        ]

    def _count(self, replicas: tuple[NodeId, ...], partitions: int = 1) -> None:
        for node in replicas:
            self._replicas[node] += partitions
        self._leaders[replicas[0]] += partitions
        for node in replicas[1:2]:
            self._successors[replicas[0], node] += partitions


def new_partition(
    topic_id: str, number: int, replicas: tuple[NodeId, ...], in_sync: tuple[NodeId, ...], min_isr: int
) -> PartitionState:
    """An empty partition: all live replicas are in sync, and the first of them leads. If they are fewer than `min_isr`,
    nothing can be committed before others join, so replicas that are down lack nothing: they are eligible."""
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
