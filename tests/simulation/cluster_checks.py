"""The promises of a cluster, by somebody who sees all disks at once: I2, I7 to I10, I14 to I19."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from millstream.logcore.replication.broker import Broker
from millstream.logcore.replication.machine import NodeId
from millstream.logcore.replication.metadata_image import MetadataImage
from millstream.logcore.replication.metadata_records import PartitionState
from millstream.logcore.replication.replica_messages import AlterPartition, PartitionId, Produced

from .cluster_clients import value_of
from .cluster_logs import WatchedLog
from .host import Host
from .kernel import InvariantViolated
from .replica_log import SimReplicaLog

if TYPE_CHECKING:
    from .cluster_world import ClusterWorld


class ClusterChecks:
    """What has been seen so far. It outlives the processes."""

    def __init__(self, world: ClusterWorld) -> None:
        self._world = world
        self._kernel = world.kernel
        self._leaders: dict[tuple[PartitionId, int], NodeId] = {}
        self._safe: dict[tuple[NodeId, PartitionId], int] = {}  # what each disk holds for certain
        self._committed: dict[PartitionId, int] = {}  # the end of what was acknowledged
        self._states: dict[PartitionId, PartitionState] = {}
        self._counted_index = 0
        self._proposed: dict[PartitionId, tuple[int, int]] = {}  # at which epochs another ISR was asked for last
        self._acknowledged_in: dict[tuple[PartitionId, int], int] = {}  # by offset: the epoch of the first answer

    def copies_of(self, node: NodeId) -> Callable[[PartitionId, int], None]:
        """What a log of this node calls with the end of what is safe."""

        def safe(partition: PartitionId, end_offset: int) -> None:
            self._safe[node, partition] = end_offset

        return safe

    # While it runs

    def learned(self, host: Host, broker: Broker) -> None:
        """A broker has applied metadata: its replicas may have begun to lead."""
        self._count_changes(broker.image)
        for partition, replica in broker.replicas.items():
            if replica.leader is None:
                continue
            key = partition, replica.core.leader_epoch
            known = self._leaders.get(key)
            if known is None:
                self._leaders[key] = host.id
                self._kernel.counters["leaders"] += 1
                self._check_new_leader(host.id, partition)
            elif known != host.id:
                raise InvariantViolated("I2", f"nodes {known} and {host.id} lead {partition} in epoch {key[1]}")

    def proposes(self, asked: AlterPartition) -> None:
        """A leader asks for another ISR."""
        self._proposed[asked.partition] = asked.leader_epoch, asked.partition_epoch

    def _count_changes(self, image: MetadataImage) -> None:
        """What has to happen sometimes: counted where the metadata are newer than any before."""
        if image.index <= self._counted_index:
            return
        self._counted_index = image.index
        for state in image.partitions():
            key = PartitionId(state.topic_id, state.partition)
            before = self._states.get(key)
            self._states[key] = state
            if before is None or before == state:
                continue
            counters = self._kernel.counters
            counters["isr changes"] += before.isr != state.isr
            counters["elr elections"] += state.leader is not None and state.leader in before.elr
            if state.leader_epoch > before.leader_epoch and before.leader is not None:
                pending = self._proposed.get(key) == (before.leader_epoch, before.partition_epoch)
                counters["elections with a pending isr"] += pending

    def _check_new_leader(self, node: NodeId, partition: PartitionId) -> None:
        """I7: it has everything that was acknowledged."""
        end = self._log(node, partition).end_offset
        if end < self._committed.get(partition, 0):
            raise InvariantViolated(
                "I7", f"node {node} leads {partition} with {end} records of {self._committed[partition]} acknowledged"
            )

    def acknowledges(self, host: Host, partition: PartitionId, produced: Produced) -> None:
        """I8, I14: at this moment enough disks have it, and those of all who may lead."""
        end = produced.first_offset + 1
        state = self._world.image().partition(partition)
        assert state is not None
        copies = [node for node in state.replicas if self._safe.get((node, partition), 0) >= end]
        if len(copies) < state.min_isr:
            raise InvariantViolated(
                "I14", f"offset {end - 1} of {partition} is acknowledged, and safe on {copies} only"
            )
        lacking = [node for node in (*state.isr, *state.elr) if node not in copies]
        if lacking:
            raise InvariantViolated("I8", f"offset {end - 1} of {partition} is acknowledged, and {lacking} may lack it")
        self._committed[partition] = max(self._committed.get(partition, 0), end)
        first = self._acknowledged_in.setdefault((partition, produced.first_offset), produced.leader_epoch)
        if first != produced.leader_epoch:
            self._kernel.counters["duplicates answered after a fail-over"] += 1
        if host.id not in copies:
            raise InvariantViolated("I14", f"leader {host.id} acknowledges what its own disk does not have")

    # When all is well

    def end_of(self, partition: PartitionId) -> int:
        """Of the longest log."""
        return max(self._log(node, partition).end_offset for node in self._replicas(partition))

    def missing(self) -> str | None:
        world = self._world
        for node, host in world.simulation.hosts.items():
            broker = world.broker(node)
            if host.broken is None and (broker is None or not broker.active or broker.fenced):
                return f"node {node} is not back"
        for partition in world.partitions():
            state = world.image().partition(partition)
            if state is None or state.leader is None:
                return f"nobody leads {partition}"
            if set(state.isr) != set(state.replicas):
                return f"of {state.replicas} only {state.isr} are in sync"
            if any(world.replica(node, partition) is None for node in state.replicas):
                return f"not all of {state.replicas} have opened {partition}"
            ends = [self._log(node, partition).end_offset for node in state.replicas]
            leader = world.replica(state.leader, partition)
            if leader is None or leader.leader is None:
                return f"node {state.leader} does not know that it leads {partition}"
            if len(set(ends)) > 1 or leader.core.high_watermark != ends[0]:
                return f"the replicas of {partition} end at {ends}, high watermark {leader.core.high_watermark}"
            if leader.core.last_stable_offset != leader.core.high_watermark:
                return f"a transaction of {partition} is open"
        return None

    def finish(self) -> None:
        for partition in self._world.partitions():
            logs = {node: self._log(node, partition) for node in self._replicas(partition)}
            contents = {node: [self._entry(stored.batch) for stored in log.stored] for node, log in logs.items()}
            (first, content), *others = contents.items()
            for node, other in others:
                if other != content:
                    raise InvariantViolated("I10", f"the logs of nodes {first} and {node} differ in {partition}")
            self._check_content(partition, content)
            for node, log in logs.items():
                self._check_folds(node, log)

    def _check_content(self, partition: PartitionId, content: list[tuple[int, bytes]]) -> None:
        by_offset = dict(content)
        for offset, value in self._world.promises.seen.get(partition, {}).items():
            if by_offset.get(offset) != value:
                raise InvariantViolated(
                    "I11", f"offset {offset} of {partition} was {value!r}: {by_offset.get(offset)!r}"
                )
        values = [value for _, value in content if value != b"marker"]
        if len(set(values)) != len(values):
            twice = sorted(value for value in set(values) if values.count(value) > 1)
            raise InvariantViolated("I15", f"twice in {partition}: {twice[:5]}")

    def _check_folds(self, node: NodeId, log: SimReplicaLog) -> None:
        """I19: what is known of the log is what reading it again says."""
        again = WatchedLog(self._world.simulation.hosts[node].disk, log.name, PartitionId("", 0), lambda *_: None)
        if again.epochs.starts != log.epochs.starts or again.state.to_json() != log.state.to_json():
            raise InvariantViolated("I19", f"node {node} has other epochs or producers in memory than in its log")

    def _entry(self, batch: Any) -> tuple[int, bytes]:
        return batch.header.base_offset, b"marker" if batch.header.control else value_of(batch)

    def _replicas(self, partition: PartitionId) -> tuple[NodeId, ...]:
        state = self._world.image().partition(partition)
        return state.replicas if state is not None else ()

    def _log(self, node: NodeId, partition: PartitionId) -> SimReplicaLog:
        replica = self._world.replica(node, partition)
        assert replica is not None and isinstance(replica.core.log, SimReplicaLog)
        return replica.core.log
