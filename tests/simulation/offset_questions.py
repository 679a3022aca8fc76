"""I25: what a leader says is committed has all that was acknowledged before it was asked, whoever did that (T-L4).

Left out: leaders that were replaced while they were live (an operator's election, a reassignment), for whom it takes as
long as the metadata take to reach them; and runs whose clocks do not go at about the same speed, which leases need.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Final

from millstream.logcore.replication.controller.metadata_image import MetadataImage
from millstream.logcore.replication.controller.metadata_records import PartitionState
from millstream.logcore.replication.machine import NodeId
from millstream.logcore.replication.replica.replica_messages import (
    AskOffsets,
    PartitionId,
    PartitionOffsets,
    Problem,
    Refused,
)

from .host import Host
from .kernel import MILLISECOND, InvariantViolated

if TYPE_CHECKING:
    from .cluster_world import ClusterWorld

FIRST_QUESTION: Final = 1 << 52
_MEAN_MS: Final = 100.0
_DRIFT_MAX: Final = 0.01


class OffsetQuestions:
    """Asks whoever believes that it leads. State: the end of what was acknowledged, now and when each one was asked.

    It draws from a random stream of its own: no draw of others is shifted.
    """

    counters: ClassVar[tuple[str, ...]] = ("leaders' offsets checked", "offsets refused without a lease")

    def __init__(self, world: ClusterWorld) -> None:
        self._world = world
        self._kernel = world.kernel
        self._random = Random(f"{world.kernel.seed}/questions")
        self._ends: dict[PartitionId, int] = {}
        self._asked: list[tuple[PartitionId, int]] = []
        self._excused: set[tuple[PartitionId, int]] = set()  # leader epochs that ended with a live leader

    def begin(self) -> None:
        self._later(_MEAN_MS, self._ask)

    def _later(self, mean_ms: float, action: Any, *arguments: Any) -> None:
        self._kernel.schedule(int(self._random.expovariate(1.0) * mean_ms * MILLISECOND), action, *arguments)

    def _ask(self) -> None:
        partition = self._random.choice(self._world.partitions())
        self._ask_all(partition, self._leaders(partition))
        self._later(_MEAN_MS, self._ask)

    def _leaders(self, partition: PartitionId) -> list[NodeId]:
        """Those who believe it."""
        nodes = [host.id for host in self._world.simulation.hosts.values()]
        replicas = [(node, self._world.replica(node, partition)) for node in nodes]
        return [node for node, replica in replicas if replica is not None and replica.leader is not None]

    def _ask_all(self, partition: PartitionId, nodes: list[NodeId]) -> None:
        for node in nodes:
            number = FIRST_QUESTION + len(self._asked)
            self._asked.append((partition, self._ends.get(partition, 0)))
            self._later(1.0, self._world.ask, node, number, partition, AskOffsets())

    def acknowledged(self, partition: PartitionId, offset: int) -> None:
        """A client has heard so. Where several believe that they lead, one of them may not know it: they are asked."""
        self._ends[partition] = max(self._ends.get(partition, 0), offset + 1)
        leaders = self._leaders(partition)
        if len(leaders) > 1:
            self._ask_all(partition, leaders)

    def elected(self, before: PartitionState, state: PartitionState, image: MetadataImage) -> None:
        """The partition has a later leader epoch; `image` is the metadata in which that is so."""
        known = image.brokers.get(before.leader) if before.leader is not None else None
        if known is None or not known.fenced or state.leader_epoch != before.leader_epoch + 1:
            partition = PartitionId(state.topic_id, state.partition)
            self._excused.update((partition, epoch) for epoch in range(before.leader_epoch, state.leader_epoch))

    def replied(self, host: Host, request: int, response: Any) -> None:
        partition, end = self._asked[request - FIRST_QUESTION]
        replica = self._world.replica(host.id, partition)
        if replica is None or replica.leader is None:
            return
        if isinstance(response, Refused):
            self._kernel.counters["offsets refused without a lease"] += response.problem is Problem.NOT_LEADER
            return
        assert isinstance(response, PartitionOffsets)
        epoch = replica.core.leader_epoch
        if (partition, epoch) in self._excused or not self._clocks_agree():
            return
        self._kernel.counters["leaders' offsets checked"] += 1
        if response.high_watermark < end:
            raise InvariantViolated(
                "I25",
                f"node {host.id} says, as the leader of epoch {epoch}, that {response.high_watermark} records of"
                f" {partition} are committed: {end} were acknowledged before it was asked",
            )

    def _clocks_agree(self) -> bool:
        drift = self._world.simulation.options.clock_drift
        return drift <= _DRIFT_MAX and not self._kernel.counters["fault clock_jump"]
