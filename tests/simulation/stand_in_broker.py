"""A broker without records: it registers, gives signs of life, follows and leads partitions, and asks for ISRs.

It stands in for the real one where only the controller is looked at. What it must get right, it does as the real one.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

from millstream.logcore.replication.controller.controller_messages import (
    BrokerAccepted,
    BrokerHeartbeat,
    HeartbeatAnswer,
    ProducerIds,
    RegisterBroker,
    ReserveProducerIds,
)
from millstream.logcore.replication.controller.metadata_image import MetadataImage, fold
from millstream.logcore.replication.controller.metadata_records import PartitionState
from millstream.logcore.replication.machine import (
    BROKER,
    CONTROLLER,
    Committed,
    Effect,
    Input,
    NodeId,
    Received,
    Send,
    Tick,
)
from millstream.logcore.replication.replica.replica_messages import AlterPartition, AlterRefused, InSync, PartitionId

_SAY_MS = 300  # between two signs of life, to the controller and to leaders
_SILENT_MS = 1_500  # a follower not heard for so long leaves the ISR


class Follows(NamedTuple):
    """A follower that has everything: what a fetch is in the real broker."""

    partition: PartitionId
    leader_epoch: int
    broker_epoch: int


class _Heard(NamedTuple):
    broker_epoch: int
    at_ms: int


class StandInBroker:
    """One life of a broker."""

    def __init__(
        self, node: NodeId, cluster: str, incarnation: int, *, clean: bool, rack: str | None, disk: str
    ) -> None:
        self.id = node
        self.cluster = cluster
        self.incarnation = incarnation
        self.clean = clean
        self.rack = rack
        self.disk = disk
        self.epoch: int | None = None
        self.image = MetadataImage()
        self.producer_ids: list[tuple[int, int]] = []
        self.farewells = False  # whether it says now and then that it is about to end, and then does not
        self._number = 0
        self._say_at_ms = 0
        self._now_ms = 0
        self._led_since_ms: dict[tuple[PartitionId, int], int] = {}
        self._heard: dict[tuple[PartitionId, int], dict[NodeId, _Heard]] = {}  # by partition and leader epoch
        self._asked: dict[PartitionId, tuple[int, int]] = {}  # the partition epoch that a change was asked at, and when
        self._out: list[Effect] = []

    @property
    def leaving(self) -> bool:
        return self.farewells and self._number % 40 > 32

    def step(self, given: Input) -> list[Effect]:
        if isinstance(given, Tick):
            self._now_ms = given.now_ms
            if given.now_ms >= self._say_at_ms:
                self._say_at_ms = given.now_ms + _SAY_MS
                self._say()
        elif isinstance(given, Committed):
            self._learn(given)
        elif isinstance(given, Received):
            self._hear(given.sender, given.message)
        out, self._out = self._out, []
        return out

    def _learn(self, committed: Committed) -> None:
        if committed.image is not None:
            self.image = committed.image
        for index, record in enumerate(committed.records, committed.first_index):
            self.image = fold(self.image, index, record)

    def _hear(self, sender: NodeId, message: Any) -> None:
        if isinstance(message, BrokerAccepted):
            if (message.incarnation, message.disk) == (self.incarnation, self.disk):
                self.epoch = message.epoch
        elif isinstance(message, HeartbeatAnswer):
            if message.epoch == self.epoch and not message.known:
                self.epoch = None
        elif isinstance(message, ProducerIds):
            if message.epoch == self.epoch:
                self.producer_ids.append((message.first, message.count))
        elif isinstance(message, Follows):
            heard = self._heard.setdefault((message.partition, message.leader_epoch), {})
            before = heard.get(sender)
            if before is None or message.broker_epoch >= before.broker_epoch:
                heard[sender] = _Heard(message.broker_epoch, self._now_ms)
        elif isinstance(message, AlterRefused):
            self._asked.pop(message.partition, None)

    def _say(self) -> None:
        self._number += 1
        if self.epoch is None:
            asked = RegisterBroker(
                self.cluster,
                self.id,
                self.incarnation,
                self.clean,
                (("kafka", f"node{self.id}:9093"),),
                self.rack,
                self.disk,
            )
            self._to_controller(asked)
            return
        beat = BrokerHeartbeat(self.cluster, self.id, self.epoch, self._number, self.image.index, self.leaving)
        self._to_controller(beat)
        if self._number % 16 == 0:
            self._to_controller(ReserveProducerIds(self.cluster, self.id, self.epoch, self._number, 100))
        for topic in self.image.topics.values():
            for state in topic.partitions:
                if self.id in state.replicas and self._knows_its_life():
                    self._work_for(state)

    def _knows_its_life(self) -> bool:
        """Metadata of before the own registration says nothing (R7)."""
        return self.epoch is not None and self.image.index >= self.epoch

    def _work_for(self, state: PartitionState) -> None:
        assert self.epoch is not None
        partition = PartitionId(state.topic_id, state.partition)
        if state.leader == self.id:
            self._lead(partition, state)
        elif state.leader is not None:
            self._out.append(Send(state.leader, cast("Any", Follows(partition, state.leader_epoch, self.epoch))))

    def _lead(self, partition: PartitionId, state: PartitionState) -> None:
        """Asks for the ISR that it sees."""
        assert self.epoch is not None
        since_ms = self._led_since_ms.setdefault((partition, state.leader_epoch), self._now_ms)
        heard = self._heard.get((partition, state.leader_epoch), {})
        lively = {node for node, known in heard.items() if self._now_ms - known.at_ms < _SILENT_MS} | {self.id}
        if self._now_ms - since_ms < _SILENT_MS:
            lively |= set(state.isr)  # nobody had the time yet
        wanted = [node for node in state.replicas if node in lively]
        asked_epoch, asked_ms = self._asked.get(partition, (-1, 0))
        waits = asked_epoch == state.partition_epoch and self._now_ms - asked_ms < 2 * _SAY_MS
        if wanted == list(state.isr) or waits:
            return
        self._asked[partition] = state.partition_epoch, self._now_ms
        epochs = {node: known.broker_epoch for node, known in heard.items()} | {self.id: self.epoch}
        in_sync = tuple(InSync(node, epochs.get(node, -1)) for node in wanted)
        self._to_controller(
            AlterPartition(partition, self.id, self.epoch, state.leader_epoch, state.partition_epoch, in_sync)
        )

    def _to_controller(self, message: Any) -> None:
        self._out.append(Send(self.id, message, CONTROLLER))


MACHINE = BROKER
