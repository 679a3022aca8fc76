"""The promises of a cluster, by somebody who sees all disks at once: I2, I7 to I10, I14 to I19."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from millstream.logcore.replication.broker.broker import ReplicaBroker
from millstream.logcore.replication.controller.metadata_image import MetadataImage
from millstream.logcore.replication.controller.metadata_records import PartitionState
from millstream.logcore.replication.machine import Effect, NodeId, Reply
from millstream.logcore.replication.replica.replica_messages import (
    AlterPartition,
    ForPartition,
    PartitionId,
    Problem,
    Produced,
    Read,
    ReadBatches,
    Refused,
)

from .cluster_clients import value_of
from .cluster_logs import WatchedLog, stored_on
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
        self._lost_life: dict[NodeId, int] = {}  # the epoch of a broker in the life whose disk lost something
        self._had_once: dict[tuple[NodeId, PartitionId], int] = {}  # what was safe on it before
        self._committed: dict[PartitionId, dict[int, int]] = {}  # the end of what was acknowledged in a leader epoch
        self._states: dict[PartitionId, PartitionState] = {}
        self._counted_index = 0
        self._proposed: dict[PartitionId, tuple[int, int]] = {}  # at which epochs another ISR was asked for last
        self._acknowledged_in: dict[tuple[PartitionId, int], int] = {}  # by offset: the epoch of the first answer

    def copies_of(self, node: NodeId) -> Callable[[PartitionId, int], None]:
        """What a log of this node calls with the end of what is safe."""

        def safe(partition: PartitionId, end_offset: int) -> None:
            self._safe[node, partition] = end_offset

        return safe

    def forget(self, node: NodeId) -> None:
        """Its disk lost something: how much it still has shows when it starts."""
        broker = self._world.image().brokers.get(node)
        self._lost_life[node] = broker.epoch if broker is not None else 0
        for key in [key for key in self._safe if key[0] == node]:
            self._had_once[key] = self._safe.pop(key)

    def _had(self, leader: NodeId, node: NodeId, partition: PartitionId) -> int:
        """How much a node has for certain; or had, when it told the leader so, in a life whose disk was lost since."""
        safe = self._safe.get((node, partition), 0)
        if node not in self._lost_life:
            return safe
        replica = self._world.replica(leader, partition)
        known = replica.leader.in_sync.followers.get(node) if replica is not None and replica.leader else None
        if known is not None and known.broker_epoch > self._lost_life[node]:
            return safe
        return max(safe, self._had_once.get((node, partition), 0))

    # While it runs

    def learned(self, host: Host, broker: ReplicaBroker) -> None:
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
                self._check_new_leader(host.id, partition, key[1])
            elif known != host.id:
                raise InvariantViolated("I2", f"nodes {known} and {host.id} lead {partition} in epoch {key[1]}")

    def answers(self, host: Host, asked: Any, effects: Sequence[Effect]) -> None:
        """R6, T-L4: who knows another leader epoch is refused, whatever the one that is asked believes to be."""
        if not isinstance(asked, ForPartition) or not isinstance(asked.body, Read) or asked.body.leader_epoch < 0:
            return
        read = asked.body
        replica = self._world.replica(host.id, asked.partition)
        for effect in effects:
            if not isinstance(effect, Reply) or replica is None:
                continue
            own, response = replica.core.leader_epoch, effect.response
            if response.__class__ is ReadBatches and own != read.leader_epoch:
                raise InvariantViolated("R6", f"node {host.id} of epoch {own} answers a read of {read.leader_epoch}")
            fenced = isinstance(response, Refused) and response.problem is Problem.FENCED_LEADER_EPOCH
            self._kernel.counters["reads of a leader epoch that is over"] += fenced

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
            if state.leader_epoch > before.leader_epoch:
                self._world.questions.elected(before, state, image)
            counters["elr elections"] += state.leader is not None and state.leader in before.elr
            if state.leader_epoch > before.leader_epoch and before.leader is not None:
                pending = self._proposed.get(key) == (before.leader_epoch, before.partition_epoch)
                counters["elections with a pending isr"] += pending

    def _check_new_leader(self, node: NodeId, partition: PartitionId, epoch: int) -> None:
        """I7: it has what was acknowledged before its epoch; who learns late that it leads lacks what came later."""
        end = self._log(node, partition).end_offset
        before = [end for earlier, end in self._committed.get(partition, {}).items() if earlier < epoch]
        if end < max(before, default=0):
            raise InvariantViolated(
                "I7", f"node {node} leads {partition} with {end} records of {max(before)} acknowledged"
            )

    def acknowledges(self, host: Host, partition: PartitionId, produced: Produced) -> None:
        """I8, I14: at this moment enough disks have it, and those of all who may lead."""
        end = produced.first_offset + 1
        state = self._world.image().partition(partition)
        if state is None:
            return  # the topic is deleted, and this leader does not know it yet
        nodes = [other.id for other in self._world.simulation.hosts.values()]  # a reassignment may just be done
        copies = [node for node in nodes if self._had(host.id, node, partition) >= end]
        if len(copies) < min(state.min_isr, self._min_isr_known(host.id, partition)):
            raise InvariantViolated(
                "I14", f"offset {end - 1} of {partition} is acknowledged, and safe on {copies} only"
            )
        lacking = [node for node in (*state.isr, *state.elr) if node not in copies]
        if lacking:
            raise InvariantViolated("I8", f"offset {end - 1} of {partition} is acknowledged, and {lacking} may lack it")
        ends = self._committed.setdefault(partition, {})
        ends[produced.leader_epoch] = max(ends.get(produced.leader_epoch, 0), end)
        first = self._acknowledged_in.setdefault((partition, produced.first_offset), produced.leader_epoch)
        if first != produced.leader_epoch:
            self._kernel.counters["duplicates answered after a fail-over"] += 1
        if host.id not in copies:
            raise InvariantViolated("I14", f"leader {host.id} acknowledges what its own disk does not have")

    def _min_isr_known(self, node: NodeId, partition: PartitionId) -> int:
        """What the leader goes by: a setting that was raised just now may not have reached it."""
        replica = self._world.replica(node, partition)
        view = replica.core.view if replica is not None else None
        return view.min_isr if view is not None else 1

    # When all is well

    def end_of(self, partition: PartitionId) -> int:
        """Of the longest log."""
        return max(self._log(node, partition).end_offset for node in self._replicas(partition))

    def missing(self) -> str | None:
        world = self._world
        if world.operator.replacing:
            return "a node with a lost disk is not replaced yet"
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
        return self._leftovers()

    def _leftovers(self) -> str | None:
        """Logs of partitions that are gone, or that are others' now."""
        image = self._world.image()
        for node, host in self._world.simulation.hosts.items():
            for partition in stored_on(host.disk):
                state = image.partition(partition)
                if state is None or node not in state.replicas:
                    return f"node {node} keeps the log of {partition}, which is not its own"
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

    def visible(self, partition: PartitionId) -> set[bytes]:
        """What a reader of committed records sees, when all is well."""
        log = self._log(self._replicas(partition)[0], partition)
        aborted = log.state.transactions.aborted
        data = [stored.batch for stored in log.stored if not stored.batch.header.control]
        return {value_of(batch) for batch in data if not aborted.covers(batch.header)}

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
