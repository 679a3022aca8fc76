"""The promises of the controller, checked on every committed record: who leads, who is in sync, what is given out."""

from __future__ import annotations

from collections import Counter

from millstream.logcore.replication.controller.controller import UNCLEAN_ELECTION
from millstream.logcore.replication.controller.metadata_image import MetadataImage, fold
from millstream.logcore.replication.controller.metadata_records import (
    BrokerRegistered,
    BrokerRemoved,
    PartitionState,
    ProducerIdsReserved,
    Together,
)
from millstream.logcore.replication.machine import NodeId
from millstream.logcore.replication.raft.quorum_messages import Entry
from millstream.logcore.replication.replica.replica_messages import AlterPartition, InSync, PartitionId

from .kernel import InvariantViolated, Kernel


class ControlChecks:
    """Folds the committed log by itself, record by record, and compares each step with the one before."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.images: list[MetadataImage] = [MetadataImage()]  # by index
        self._led: dict[tuple[PartitionId, int], NodeId] = {}  # by partition and leader epoch
        self._asked: dict[tuple[PartitionId, int, int], list[tuple[InSync, ...]]] = {}  # … leader and partition epoch
        self._unclean_allowed: set[PartitionId] = set()
        self._incarnations: dict[NodeId, int] = {}

    def allows_unclean(self, partition: PartitionId) -> None:
        """An operator wanted it: from now on the partition's leader may lack records."""
        self._unclean_allowed.add(partition)

    def asked(self, request: AlterPartition) -> None:
        """A leader has asked for this ISR, at some time."""
        key = request.partition, request.leader_epoch, request.partition_epoch
        self._asked.setdefault(key, []).append(request.in_sync)

    def commits(self, index: int, entry: Entry) -> None:
        """An entry is committed, the first time that any node learns of it."""
        assert index == len(self.images)
        before = self.images[-1]
        record = entry.record
        parts = record.records if isinstance(record, Together) else (record,)
        for part in parts:
            if isinstance(part, BrokerRegistered):
                self._check_registration(part)
            elif isinstance(part, BrokerRemoved):
                self._incarnations.pop(part.broker, None)
            elif isinstance(part, ProducerIdsReserved) and part.next_id <= before.next_producer_id:
                raise InvariantViolated("producer ids", f"{part.next_id} is given out twice")
        after = fold(before, index, record)
        self.images.append(after)
        changed = [part for part in parts if isinstance(part, PartitionState)]
        for now in (*changed, *self._with_lives(before, after, changed)):
            self._check_partition(index, before, after, now)
        self._check_live(after)

    def _with_lives(
        self, before: MetadataImage, after: MetadataImage, changed: list[PartitionState]
    ) -> list[PartitionState]:
        """What changed without a record of its own: a broker has it alone, and its life did."""
        said = {(state.topic_id, state.partition) for state in changed}
        found = [
            now
            for now in after.partitions()
            if (now.topic_id, now.partition) not in said
            and before.partition(PartitionId(now.topic_id, now.partition)) != now
        ]
        self._kernel.counters["moved with a life"] += len(found)
        return found

    def _check_registration(self, record: BrokerRegistered) -> None:
        before = self._incarnations.get(record.broker, 0)
        if record.incarnation <= before:
            raise InvariantViolated(
                "I3", f"broker {record.broker}: start {record.incarnation} after start {before} (R8)"
            )
        self._incarnations[record.broker] = record.incarnation
        self._kernel.counters["registrations"] += 1

    def _check_partition(self, index: int, before: MetadataImage, after: MetadataImage, now: PartitionState) -> None:
        partition = PartitionId(now.topic_id, now.partition)
        if now.leader is not None:
            first = self._led.setdefault((partition, now.leader_epoch), now.leader)
            if first != now.leader:
                raise InvariantViolated("I2", f"{first} and {now.leader} lead {partition} in epoch {now.leader_epoch}")
        self._check_shape(partition, now)
        old = before.partition(partition)
        if old is not None and after.partition(partition) == now:
            self._check_epochs(partition, old, now)
            self._check_leader(partition, before, old, now)
            self._check_growth(partition, after, old, now)

    def _check_shape(self, partition: PartitionId, now: PartitionState) -> None:
        wrong = (
            (now.leader is not None and now.leader not in now.isr)
            or not set(now.isr) <= set(now.replicas)
            or not set(now.elr) <= set(now.replicas)
            or set(now.isr) & set(now.elr)
            or (len(now.isr) >= now.min_isr and now.elr)
            or len(set(now.replicas)) != len(now.replicas)
        )
        if wrong:
            raise InvariantViolated("I9", f"{partition} is {now}")

    def _check_epochs(self, partition: PartitionId, old: PartitionState, now: PartitionState) -> None:
        wrong = (
            now.partition_epoch != old.partition_epoch + 1
            or now.leader_epoch < old.leader_epoch
            or _begins_anew(old, now) != (now.leader_epoch > old.leader_epoch)
        )
        if wrong:
            raise InvariantViolated("I3", f"{partition} was {old} and is {now}")

    def _check_leader(
        self, partition: PartitionId, before: MetadataImage, old: PartitionState, now: PartitionState
    ) -> None:
        """R15: who begins to lead was in sync or eligible, unless somebody wanted it otherwise."""
        counters = self._kernel.counters
        if now.leader not in (None, old.leader):
            counters["leaders elected"] += 1
            if now.leader in old.elr:
                counters["elected from the ELR"] += 1
            if now.leader not in {*old.isr, *old.elr, *self._joining(partition, old)}:
                if not now.unclean or not self._may_be_unclean(partition, before):
                    raise InvariantViolated("I7", f"{now.leader} leads {partition}, and was not eligible: {old}")
                counters["unclean elections"] += 1
        if {*old.isr, *old.elr} and not {*now.isr, *now.elr}:
            counters["nobody left"] += 1

    def _may_be_unclean(self, partition: PartitionId, before: MetadataImage) -> bool:
        """T-L12: a setting allows it, or an operator asked for it."""
        return partition in self._unclean_allowed or before.config(partition.topic, UNCLEAN_ELECTION) == "true"

    def _joining(self, partition: PartitionId, old: PartitionState) -> set[NodeId]:
        """Those whom the leader has asked for: the last step of a reassignment may let one of them lead at once."""
        asked = self._asked.get((partition, old.leader_epoch, old.partition_epoch), [])
        return {member.node for request in asked for member in request}

    def _check_growth(
        self, partition: PartitionId, after: MetadataImage, old: PartitionState, now: PartitionState
    ) -> None:
        """R8: who joins the ISR lives the same life in which the leader heard it."""
        joined = [node for node in now.isr if node not in old.isr and node != now.leader]
        if joined:
            self._kernel.counters["ISR grew"] += 1
            asked = self._asked.get((partition, old.leader_epoch, old.partition_epoch), [])
            members = [InSync(node, after.brokers[node].epoch) for node in joined]
            if not any(all(member in request for member in members) for request in asked):
                raise InvariantViolated("R8", f"{members} joined {partition}, and its leader asked for {asked}")

    def _check_live(self, image: MetadataImage) -> None:
        """R7, R15: nobody leads or is in sync while it is fenced."""
        live = {node for node, broker in image.brokers.items() if not broker.fenced}
        for state in image.partitions():
            if not live.issuperset(state.isr):
                raise InvariantViolated("R15", f"{state} has fenced members; live are {sorted(live)}")


def leaders_by_broker(image: MetadataImage) -> Counter[NodeId | None]:
    return Counter(state.leader for state in image.partitions())


def _begins_anew(old: PartitionState, now: PartitionState) -> bool:
    """Whether a new leader epoch has to begin: for another leader, and where a replica goes."""
    return now.leader != old.leader or not set(old.replicas) <= set(now.replicas)
