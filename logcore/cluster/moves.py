"""Plans moves of replicas: to empty a node, to change the number of replicas, or to balance the nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ..replication.controller.metadata_image import MetadataImage
from ..replication.controller.metadata_records import PartitionState
from ..replication.machine import NodeId
from ..replication.replica.replica_messages import PartitionId

NOBODY: Final = NodeId(0)


@dataclass(frozen=True, slots=True)
class Move:
    """`after`: the future replicas, the preferred leader first. `bytes`: the amount to copy for all new replicas; None
    if the size of the partition is unknown."""

    topic: str
    partition: int
    before: tuple[NodeId, ...]
    after: tuple[NodeId, ...]
    bytes: int | None


class CannotPlan(ValueError):
    """There are no nodes to move to; the text says what is missing."""


class _Planner:
    """State: for each live node the number of its replicas, and of those it is preferred to lead, after the planned
    moves."""

    def __init__(self, image: MetadataImage, sizes: Mapping[PartitionId, int], *, without: NodeId | None) -> None:
        self._image = image
        self._sizes = sizes
        self._targets = [node for node in sorted(image.brokers) if image.is_live(node) and node != without]
        self.states = {PartitionId(state.topic_id, state.partition): state for state in image.partitions()}
        self._before = {partition: _settled(state) for partition, state in self.states.items()}
        self.after = dict(self._before)
        self.replicas = Counter(dict.fromkeys(self._targets, 0))
        self.leads = Counter(dict.fromkeys(self._targets, 0))
        for replicas in self.after.values():
            self.replicas.update(replicas)
            self.leads[replicas[0]] += 1

    @property
    def targets(self) -> list[NodeId]:
        return self._targets

    def replace(self, partition: PartitionId, gone: NodeId, new: NodeId) -> None:
        """The new replica takes the place of the old one, also as the preferred leader."""
        replicas = self.after[partition]
        self._set(partition, tuple(new if node == gone else node for node in replicas))

    def resize(self, partition: PartitionId, factor: int) -> bool:
        """Changes the number of replicas. It removes those that are not in sync first, and the leader last. False if
        too few nodes are live."""
        state, replicas = self.states[partition], list(self.after[partition])
        while len(replicas) > factor:
            replicas.remove(max(replicas, key=lambda node: (*_worth(state, node), self.replicas[node], node)))
            self._set(partition, tuple(replicas))
        while len(replicas) < factor:
            candidates = self.candidates(partition, NOBODY)
            if not candidates:
                return False
            replicas.append(candidates[0])
            self._set(partition, tuple(replicas))
        return True

    def is_last(self, partition: PartitionId, node: NodeId) -> bool:
        """Whether no other live node may lead the partition."""
        state = self.states[partition]
        return not any(other in self._targets for other in (*state.isr, *state.elr) if other != node)

    def prefer(self, partition: PartitionId, leader: NodeId) -> None:
        replicas = self.after[partition]
        self._set(partition, (leader, *(node for node in replicas if node != leader)))

    def candidates(self, partition: PartitionId, gone: NodeId) -> list[NodeId]:
        """The nodes that can replace `gone`: those on an unused rack first, then those with the fewest replicas."""
        stay = [node for node in self.after[partition] if node != gone]
        racks = Counter(self._rack(node) for node in stay)
        free = [node for node in self._targets if node not in stay and node != gone]
        return sorted(free, key=lambda node: (self._shared(racks, node), self.replicas[node], node))

    def keeps_racks(self, partition: PartitionId, gone: NodeId, new: NodeId) -> bool:
        stay = [node for node in self.after[partition] if node != gone]
        racks = Counter(self._rack(node) for node in stay)
        return self._shared(racks, new) <= self._shared(racks, gone)

    def moves(self) -> list[Move]:
        found: list[Move] = []
        for partition, state in self.states.items():
            before, after = self._before[partition], self.after[partition]
            if before != after:
                size = self._sizes.get(partition)
                copied = None if size is None else size * len(set(after) - set(state.replicas))
                found.append(Move(self._image.topics[state.topic_id].name, state.partition, before, after, copied))
        return sorted(found, key=lambda move: (move.topic, move.partition))

    def _set(self, partition: PartitionId, replicas: tuple[NodeId, ...]) -> None:
        before = self.after[partition]
        self.replicas.subtract(before)
        self.replicas.update(replicas)
        self.leads[before[0]] -= 1
        self.leads[replicas[0]] += 1
        self.after[partition] = replicas

    def _rack(self, node: NodeId) -> str | None:
        broker = self._image.brokers.get(node)
        return broker.rack if broker else None

    def _shared(self, racks: Counter[str | None], node: NodeId) -> int:
        rack = self._rack(node)
        return 0 if rack is None else racks[rack]


def emptied(image: MetadataImage, sizes: Mapping[PartitionId, int], node: NodeId) -> list[Move]:
    """The moves that remove all replicas from the node. Raises `CannotPlan`."""
    planner = _Planner(image, sizes, without=node)
    for partition, replicas in list(planner.after.items()):
        if node not in replicas:
            continue
        topic = image.topics[partition.topic].name
        if not image.is_live(node) and planner.is_last(partition, node):
            raise CannotPlan(f"node {node} is down, and no other that is up has all of {topic}-{partition.number}")
        candidates = planner.candidates(partition, node)
        if not candidates:
            raise CannotPlan(
                f"{topic}-{partition.number} has {len(replicas)} replicas, and no other node is up that has none of it"
            )
        planner.replace(partition, node, candidates[0])
    return planner.moves()


def replicated(
    image: MetadataImage, sizes: Mapping[PartitionId, int], factor: int, topic: str | None = None
) -> list[Move]:
    """The moves that give each partition (or each one of the topic) this number of replicas. Replicas that stay are not
    moved, and replicas that are not in sync are removed first. Raises `CannotPlan`."""
    planner = _Planner(image, sizes, without=None)
    for partition in list(planner.after):
        name = image.topics[partition.topic].name
        if topic is not None and name != topic:
            continue
        state = planner.states[partition]
        if factor < len(planner.after[partition]) and state.leader is None:
            raise CannotPlan(f"nobody leads {name}-{partition.number}: what goes may be all that is left of it")
        if not planner.resize(partition, factor):
            raise CannotPlan(f"{factor} replicas of {name}-{partition.number} need as many nodes that are up")
    while topic is None and len(planner.targets) > 1 and _lead_one_less(planner):
        pass
    return planner.moves()


def _worth(state: PartitionState, node: NodeId) -> tuple[bool, bool]:
    """A sort key: replicas with the highest value are removed first."""
    return node not in state.isr, node != state.leader


def balanced(image: MetadataImage, sizes: Mapping[PartitionId, int]) -> list[Move]:
    """The moves that give all nodes about equally many replicas and partitions to lead, as few as possible."""
    planner = _Planner(image, sizes, without=None)
    while len(planner.targets) > 1 and _take_one_from_who_has_most(planner):
        pass
    while len(planner.targets) > 1 and _lead_one_less(planner):
        pass
    return planner.moves()


def _take_one_from_who_has_most(planner: _Planner) -> bool:
    by_count = sorted(planner.targets, key=lambda node: (planner.replicas[node], node))
    least = by_count[0]
    for most in reversed(by_count):
        if planner.replicas[most] - planner.replicas[least] < 2:
            return False
        for partition, replicas in planner.after.items():
            if most in replicas and least not in replicas and planner.keeps_racks(partition, most, least):
                planner.replace(partition, most, least)
                return True
    return False


def _lead_one_less(planner: _Planner) -> bool:
    for most in sorted(planner.targets, key=lambda node: -planner.leads[node]):
        for partition, replicas in planner.after.items():
            if replicas[0] != most:
                continue
            others = [node for node in replicas[1:] if node in planner.targets]
            leader = min(others, key=lambda node: planner.leads[node], default=None)
            if leader is not None and planner.leads[most] - planner.leads[leader] > 1:
                planner.prefer(partition, leader)
                return True
    return False


def bytes_of(moves: Iterable[Move]) -> int:
    """The bytes to copy for all moves, as far as they are known."""
    return sum(move.bytes or 0 for move in moves)


def _settled(state: PartitionState) -> tuple[NodeId, ...]:
    """The replicas after a reassignment in progress is complete."""
    return tuple(node for node in state.replicas if node not in state.removing)
