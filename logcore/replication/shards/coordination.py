"""The coordinators on a broker: one shard for each partition of their topics that this node leads.

A shard is the fold of its partition's records. It begins when everything that earlier leaders wrote is committed (R16),
and its answers wait until its own records are committed. It ends with the leader epoch, and also when a write fails or
too few replicas are in sync: then it is discarded as a whole, and read again from the log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, assert_never

from millstream.errors import LogError

from ...errors import CorruptLog
from ...records.key_values import decode_key_values
from ...topic_rules import GROUPS_TOPIC, TRANSACTIONS_TOPIC
from ..broker.producer_ids import ProducerIdPool
from ..controller.metadata_image import MetadataImage
from ..machine import Effect, NodeId, Reply, RequestId, Send
from ..replica.replica import Replica
from ..replica.replica_messages import PartitionId, Problem, Refused
from .coordination_messages import (
    ForEveryShard,
    ForGroup,
    ForTransaction,
    ShardAnswer,
    ShardQuestion,
    ShardRequest,
    ShardView,
    place_of,
)
from .kept_transactions import KeptTransaction
from .led_log import OUT_OF_TOUCH, PROOF, AskedNow, LedLog, Shard, ShardLost, ShardMaker
from .transaction_messages import ApplyOffsets, EndRefused, ShardMessage, VerifyTransaction


@dataclass(frozen=True, slots=True)
class CoordinationSettings:
    """`load_bytes`: read at a time while a shard begins; `again_ms`: the pause after a failure before it is read again.
    If this node is alone, there is no pause after the first failure, then one of `first_again_ms`, which doubles each
    time, up to `again_ms`."""

    load_bytes: int = 512 * 1024
    first_again_ms: int = 50
    again_ms: int = 1_000
    waiting_max: int = 10_000  # requests of one shard that wait for their answers


class Home(Protocol):
    """What coordinators use of their broker."""

    image: MetadataImage
    replicas: dict[PartitionId, Replica]
    unopened: dict[PartitionId, str]
    producer_ids: ProducerIdPool

    @property
    def alone(self) -> bool:
        """Whether no other node could coordinate in place of this one."""
        ...

    def leads_for_certain(self) -> bool: ...

    def emit(self, effect: Effect) -> None: ...

    def pass_on(self, partition: PartitionId, effects: list[Effect]) -> None:
        """Emits the effects of the partition's replica."""
        ...


@dataclass(slots=True)
class _Led:
    """A partition of a coordinators' topic that this node leads. `end_offset`: the shard begins when it has read the
    log up to here."""

    epoch: int
    log: LedLog
    shard: Shard
    next_offset: int
    end_offset: int
    begun: bool = False


class Coordinators:
    """State: the shards of this node, and the errors of those whose logs cannot be read. `makers`: by the name of the
    topic whose partitions are shards."""

    def __init__(
        self, home: Home, makers: Mapping[str, ShardMaker], settings: CoordinationSettings | None = None
    ) -> None:
        self.now_ms = 0
        self.wall_ms = 0
        self._home = home
        self._makers = makers
        self._settings = settings or CoordinationSettings()
        self._led: dict[PartitionId, _Led] = {}
        self._not_before_ms: dict[PartitionId, int] = {}
        self._next_pause_ms: dict[PartitionId, int] = {}  # after the next failure, if no write succeeds before
        self._unreadable: dict[PartitionId, CorruptLog] = {}
        self._unwritten: dict[PartitionId, Refused] = {}  # why the previous shard could not continue
        self.kept: dict[
            PartitionId, dict[str, KeptTransaction]
        ] = {}  # by shard, transactions without a record: see `LedLog.kept`

    @property
    def image(self) -> MetadataImage:
        return self._home.image

    @property
    def producer_ids(self) -> ProducerIdPool:
        return self._home.producer_ids

    @property
    def alone(self) -> bool:
        return self._home.alone

    def leads_for_certain(self) -> bool:
        return self._home.leads_for_certain()

    def emit(self, effect: Effect) -> None:
        self._home.emit(effect)

    def shards(self, topic: str) -> list[Shard]:
        """The shards of the topic of this name that have begun."""
        topic_id = self.image.topic_ids.get(topic)
        return [led.shard for partition, led in self._led.items() if partition.topic == topic_id and led.begun]

    # Inputs

    def ask(self, request: RequestId, body: ForGroup | ForTransaction | ForEveryShard) -> None:
        match body:
            case ForGroup(group, asked):
                self._ask(request, GROUPS_TOPIC, group, asked)
            case ForTransaction(transactional_id, asked):
                self._ask(request, TRANSACTIONS_TOPIC, transactional_id, asked)
            case ForEveryShard(topic, asked):
                self.emit(Reply(request, self.look(topic, asked)))
            case _:
                assert_never(body)

    def _ask(self, request: RequestId, topic: str, key: str, asked: ShardRequest) -> None:
        partition = place_of(self.image, topic, key)
        led = self._led_now(partition) if partition is not None else None
        refused = self._why_not(partition, led)
        if refused is not None or led is None:
            self.emit(Reply(request, refused))
            return
        log = led.log
        log.waiting[request] = None

        def refuse(refused: Refused) -> None:
            if request in log.waiting:
                log.reply_now(request, refused)

        self._run(led, lambda: led.shard.ask(request, key, asked), refuse)

    def _led_now(self, partition: PartitionId) -> _Led | None:
        """The shard of the partition. On a node that is alone, a request makes it read a failed shard again, so that a
        client need not wait for a tick after the disk has space again."""
        if partition not in self._led and self._home.alone:
            self.advance(partition)
        return self._led.get(partition)

    def _why_not(self, partition: PartitionId | None, led: _Led | None) -> Refused | None:
        if partition is None:
            return Refused(Problem.COORDINATOR_NOT_AVAILABLE, "the topic of the coordinators is not made yet")
        if led is None or not led.begun:
            damaged = self.damage(partition)
            if damaged is not None:
                return Refused(Problem.CORRUPT_MESSAGE, f"{damaged.code}: {damaged.message}")
        if led is None:
            return self._unwritten.get(partition) or self._not_here(partition)
        if not led.begun:
            return Refused(Problem.COORDINATOR_LOADING, "the coordinator reads its log; ask again")
        if len(led.log.waiting) >= self._settings.waiting_max:
            return Refused(Problem.COORDINATOR_NOT_AVAILABLE, "too many requests wait for the coordinator; ask again")
        return None

    def damage(self, partition: PartitionId) -> CorruptLog | None:
        """On a node that is alone: the damage that prevents coordinating the keys of this partition. In a cluster
        another node may have what this log lacks."""
        if not self._home.alone:
            return None
        why = self._home.unopened.get(partition)
        return CorruptLog(why) if why is not None else self._unreadable.get(partition)

    def _not_here(self, partition: PartitionId) -> Refused:
        replica = self._home.replicas.get(partition)
        if replica is None or replica.leader is None:
            return Refused(Problem.NOT_COORDINATOR, "another node is the coordinator; ask who")
        return Refused(Problem.COORDINATOR_NOT_AVAILABLE, "the coordinator cannot write to its log now; ask again")

    def look(self, topic: str, asked: ShardQuestion) -> tuple[ShardView, ...] | Refused:
        """The answers of all shards of this node. A node that is alone has all shards, so it refuses if one failed."""
        topic_id = self.image.topic_ids.get(topic)
        if topic_id is not None and self._home.alone:
            for number in range(len(self.image.topics[topic_id].partitions)):
                partition = PartitionId(topic_id, number)
                if self._led_now(partition) is None:
                    return self._why_not(partition, None) or self._not_here(partition)
        led = [each for partition, each in self._led.items() if partition.topic == topic_id]
        known = (*self._home.unopened, *self._unreadable)
        for damaged in (self.damage(partition) for partition in known if partition.topic == topic_id):
            if damaged is not None:
                return Refused(Problem.CORRUPT_MESSAGE, f"{damaged.code}: {damaged.message}")
        if not all(each.begun for each in led):
            return Refused(Problem.COORDINATOR_LOADING, "a coordinator reads its log; ask again")
        if led and not self.leads_for_certain():
            return Refused(Problem.COORDINATOR_NOT_AVAILABLE, OUT_OF_TOUCH)
        return tuple(each.shard.look(asked) for each in led)

    def receive(self, sender: NodeId, message: ShardMessage) -> None:
        """Gives the message to the shard of its partition. It is dropped if that shard does not coordinate (yet)."""
        led = self._led_now(message.partition)
        if led is not None and led.begun:

            def refuse(refused: Refused) -> None:
                if isinstance(message, VerifyTransaction):
                    answer = message.answered(led.log.partition, led.epoch, refused.problem, refused.message)
                    self.emit(Send(sender, answer))
                else:
                    self._refuse_end(sender, message, refused)

            self._run(led, lambda: led.shard.receive(sender, message), refuse)
        elif led is None and (unwritten := self._unwritten.get(message.partition)) is not None:
            self._refuse_end(sender, message, unwritten)

    def answer_now(self, topic: str, key: str, asked: AskedNow) -> ShardAnswer | None:
        """The immediate answer to a question that changes nothing in the log; None: send it as an ordinary request. In:
        `key`: determines the shard; the `partition` in the message is not used."""
        partition = place_of(self.image, topic, key)
        led = self._led.get(partition) if partition is not None else None
        if led is None or not led.begun or not led.log.only_here:
            return None
        return led.shard.answer_now(key, asked)

    def _refuse_end(self, sender: NodeId, message: ShardMessage, refused: Refused) -> None:
        if isinstance(message, ApplyOffsets):
            self.emit(Send(sender, EndRefused(message.sender, message.producer_id, message.number, refused.message)))

    def tick(self, now_ms: int, wall_ms: int) -> None:
        self.now_ms, self.wall_ms = now_ms, wall_ms
        for partition in [each for each, due_ms in self._not_before_ms.items() if due_ms <= now_ms]:
            self.advance(partition)
        for partition, led in list(self._led.items()):
            if led.begun:
                led.log.hurry()
                self._run(led, led.shard.tick)
            else:
                self.advance(partition)

    # How shards begin and end

    def coordinates(self, partition: PartitionId) -> bool:
        """Whether the partition belongs, or belonged, to a coordinators' topic."""
        topic = self._home.image.topics.get(partition.topic)
        return (topic is not None and topic.name in self._makers) or partition in self._led

    def is_of_coordinators(self, topic_id: str) -> bool:
        topic = self.image.topics.get(topic_id)
        return topic is not None and topic.name in self._makers

    def advance(self, partition: PartitionId) -> None:
        """Call it after a step of the replica: it may lead now, lead no longer, or have committed more."""
        replica = self._home.replicas.get(partition)
        led = self._led.get(partition)
        if led is not None and not _may_go_on(led, replica):
            self._drop(led)
            led = None
        if led is None and replica is not None and self._may_open(partition, replica):
            led = self._open(partition, replica)
        if led is None or replica is None:
            return
        if not led.begun:
            self._load(led, replica)
        if led.begun:
            self._run(led, led.log.release)

    def _may_open(self, partition: PartitionId, replica: Replica) -> bool:
        if self.now_ms < self._not_before_ms.get(partition, 0):
            return False
        return replica.leader is not None and replica.leader.has_enough_in_sync

    def _open(self, partition: PartitionId, replica: Replica) -> _Led | None:
        topic = self.image.topics.get(partition.topic)
        if topic is None:
            return None
        log = LedLog(self, partition, replica)
        shard = self._makers[topic.name](log)
        start, end = replica.core.log.log_start_offset, replica.core.log.end_offset
        self._unwritten.pop(partition, None)
        self._not_before_ms.pop(partition, None)
        led = self._led[partition] = _Led(replica.core.leader_epoch, log, shard, start, end)
        return led

    def _load(self, led: _Led, replica: Replica) -> None:
        if not self._is_settled(led, replica):
            return
        try:
            self._read(led, replica)
        except (OSError, LogError, ValueError) as error:
            if isinstance(error, CorruptLog):
                self._unreadable[led.log.partition] = error
            self._fail(led)
            return
        self._unreadable.pop(led.log.partition, None)
        if led.next_offset >= led.end_offset:
            led.begun = True
            self._run(led, led.shard.begin)

    def _is_settled(self, led: _Led, replica: Replica) -> bool:
        """R16: before that, the leader does not know how much of its log is committed."""
        return replica.core.high_watermark >= led.end_offset

    def _read(self, led: _Led, replica: Replica) -> None:
        """Reads one piece, so that the node can serve other requests in between."""
        batches = replica.core.log.read(led.next_offset, led.end_offset, self._settings.load_bytes)
        for batch in batches:
            led.shard.fold([record for record in decode_key_values(batch) if record != PROOF])
            led.next_offset = batch.header.last_offset + 1
        if not batches:
            led.next_offset = led.end_offset

    def _run(
        self, led: _Led, act: Callable[[], None], refuse: Callable[[Refused], None] = lambda refused: None
    ) -> None:
        """Runs `act`; ends the shard if a write fails. In: `refuse`: tells the sender that the log does not take the
        record, if this node is alone; in a cluster, another node with space may lead when the sender asks again. Other
        waiting clients must ask again in any case: what was written for them may still be committed."""
        try:
            act()
        except ShardLost as error:
            if self._home.alone and error.refused is not None:
                self._unwritten[led.log.partition] = error.refused
                refuse(error.refused)
            self._fail(led)

    def _fail(self, led: _Led) -> None:
        partition, again_ms = led.log.partition, self._settings.again_ms
        pause_ms = self._next_pause_ms.get(partition, 0) if self._home.alone else again_ms
        self._next_pause_ms[partition] = min(max(2 * pause_ms, self._settings.first_again_ms), again_ms)
        self._not_before_ms[partition] = self.now_ms + pause_ms
        led.log.hurry()  # its successor begins once everything in the log is committed
        self._drop(led)

    def _drop(self, led: _Led) -> None:
        del self._led[led.log.partition]
        text = "this node has stopped coordinating; whether it is done is open: ask who coordinates, and there again"
        led.log.refuse_waiting(Refused(Problem.NOT_COORDINATOR, text))

    def appended(self, partition: PartitionId, replica: Replica) -> None:
        if self._next_pause_ms:
            self._next_pause_ms.pop(partition, None)
        self._home.pass_on(partition, replica.flush())


def _may_go_on(led: _Led, replica: Replica | None) -> bool:
    leader = replica.leader if replica is not None else None
    if replica is None or leader is None:
        return False
    return replica.core.leader_epoch == led.epoch and leader.has_enough_in_sync
