"""Operators of a simulated cluster: they move, add and configure partitions, elect leaders, make topics anew."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, Final

from millstream.logcore.replication.controller.controller import Controller
from millstream.logcore.replication.controller.controller_messages import (
    AddPartitions,
    ChangeConfig,
    Done,
    ElectLeader,
    NotController,
    Reassign,
    Refused,
)
from millstream.logcore.replication.controller.controller_requests import MIN_ISR
from millstream.logcore.replication.controller.metadata_image import MetadataImage
from millstream.logcore.replication.machine import CONTROLLER, NodeId
from millstream.logcore.replication.replica.replica_messages import PartitionId

from .kernel import MILLISECOND
from .node_replacement import NodeReplacement

if TYPE_CHECKING:
    from .cluster_world import ClusterWorld

FIRST_REQUEST: Final = 1 << 41  # requests with numbers from here on are those of this operator
_PARTITIONS_MAX: Final = 5
_REPLACE_MS: Final = 300


class ClusterOperator:
    """Acts now and then, as the options of the seed say. Its answers come to `replied`."""

    def __init__(self, world: ClusterWorld) -> None:
        self._world = world
        self._kernel = world.kernel
        self._random = Random(f"{world.kernel.seed}/operator")  # no draw of others is shifted by what it does
        self._asked: dict[int, Any] = {}
        self._replacement: NodeReplacement | None = None

    def begin(self) -> None:
        if self._options["act_ms"]:
            self._later()

    @property
    def _options(self) -> dict[str, Any]:
        return self._world.simulation.options.world

    def active(self) -> Controller | None:
        """Of the controllers that believe to decide, the one of the latest term."""
        running = [self._world.controller(node) for node in self._world.simulation.hosts]
        active = [controller for controller in running if controller is not None and controller.active]
        return max(active, key=lambda controller: controller.quorum.term, default=None)

    def ask(self, body: Any) -> None:
        """The one that decides, or any other where nobody does."""
        active = self.active()
        nodes = list(self._world.simulation.hosts)
        node = active.quorum.id if active is not None else self._random.choice(nodes)
        self._asked[FIRST_REQUEST + len(self._asked)] = body
        self._world.simulation.hosts[node].ask(CONTROLLER, FIRST_REQUEST + len(self._asked) - 1, body)

    def replied(self, request: int, response: Any) -> None:
        body = self._asked[request]
        name = body.__class__.__name__
        if isinstance(response, Done):
            self._kernel.counters[f"done {name}"] += 1
            if isinstance(body, AddPartitions):
                self._world.serve(body.partition_count)
        elif isinstance(response, Refused):
            self._kernel.counters[f"refused {name}"] += 1
        else:
            assert isinstance(response, NotController)

    # A node with a lost disk

    @property
    def replacing(self) -> bool:
        return self._replacement is not None

    def replace(self, node: NodeId, lost_disk: str) -> None:
        """Begins to, and goes on until it is done, also after the healing."""
        self._replacement = NodeReplacement(node, lost_disk, replicas=3)
        self._replace_on()

    def _replace_on(self) -> None:
        replacement, active = self._replacement, self.active()
        if replacement is None:
            return
        request = replacement.next_request(active) if active is not None else None
        if request is not None:
            self.ask(request)
        if replacement.done:
            self._kernel.counters["replaced nodes"] += 1
            self._replacement = self._world.lost = None
        self._kernel.schedule(_REPLACE_MS * MILLISECOND, self._replace_on)

    # Other acts

    def _later(self) -> None:
        delay = self._random.expovariate(1.0) * self._options["act_ms"]
        self._kernel.schedule(int(delay * MILLISECOND), self._act)

    def _act(self) -> None:
        if self._world.simulation.healing:
            return
        body = self._draw(self._world.image())
        if body is not None:
            self.ask(body)
        self._later()

    def _draw(self, image: MetadataImage) -> Any:
        states = [state for state in image.partitions() if state.topic_id == self._world.topic]
        if not states:
            return None
        random = self._random
        state = random.choice(states)
        partition = PartitionId(state.topic_id, state.partition)
        kind = random.random()
        if kind < 0.4:
            return Reassign(partition, self._some_nodes() if random.random() < 0.85 else None)
        if kind < 0.7:
            return ElectLeader(partition)
        if kind < 0.9:
            return ChangeConfig("events", MIN_ISR, str(random.choice(self._min_isrs())))
        return AddPartitions("events", min(_PARTITIONS_MAX, len(states) + 1))

    def _some_nodes(self) -> tuple[NodeId, ...]:
        nodes = [NodeId(node) for node in self._world.simulation.hosts]
        least = 2 if self._options["damage"] else 1
        return tuple(self._random.sample(nodes, self._random.randint(least, 3)))

    def _min_isrs(self) -> tuple[int, ...]:
        """Where a disk may be damaged, one copy is never enough."""
        return (2, 2, 3) if self._options["damage"] else (1, 2, 2, 3)
