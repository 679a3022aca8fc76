"""A topic that is deleted and made anew under its old name, with clients that know it by name (R20)."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, Final

from millstream.logcore.records.batch import BatchProducer
from millstream.logcore.replication.controller.controller_messages import CreateTopic, DeleteTopic
from millstream.logcore.replication.replica.replica_messages import PartitionId, Produce, Produced, Read, ReadBatches

from .cluster_clients import encode, value_of
from .kernel import MILLISECOND

if TYPE_CHECKING:
    from .cluster_world import ClusterWorld

NAME: Final = "passing"
_READ_BYTES: Final = 1_000


class PassingTopic:
    """Each making of the topic is another log: what was acknowledged in one is never seen in another (I11)."""

    def __init__(self, world: ClusterWorld, *, every_ms: float) -> None:
        self._world = world
        self._kernel = world.kernel
        self._random = Random(f"{world.kernel.seed}/passing")
        self._every_ms = every_ms
        self._count = 0
        self._offsets: dict[str, int] = {}  # of the consumer, by topic id

    def begin(self) -> None:
        self._change()
        self._produce()
        self._read()

    def _later(self, mean_ms: float, action: Any) -> None:
        self._kernel.schedule(int(self._random.expovariate(1.0) * mean_ms * MILLISECOND), action)

    def _change(self) -> None:
        if self._world.simulation.healing:
            return
        there = NAME in self._world.image().topic_ids
        replicas = min(3, len(self._world.simulation.hosts))
        create = CreateTopic(NAME, 1, replicas, configs=(("min.insync.replicas", "2"),))
        self._world.operator.ask(DeleteTopic(NAME) if there else create)
        self._later(self._every_ms if there else self._every_ms / 2, self._change)

    def _believed(self) -> PartitionId | None:
        """What some node says, which may be behind."""
        broker = self._world.broker(self._random.choice(list(self._world.simulation.hosts)))
        topic = broker.image.topic_ids.get(NAME) if broker is not None else None
        return PartitionId(topic, 0) if topic is not None else None

    def _produce(self) -> None:
        if self._world.quiet:
            return
        partition = self._believed()
        if partition is not None:
            self._count += 1
            value = b"p%d" % self._count
            self._world.requests.send(
                partition,
                Produce([encode(value, BatchProducer())]),
                lambda response: self._produced(partition, value, response),
                self._world.believed_leader(partition),
            )
        self._later(30.0, self._produce)

    def _produced(self, partition: PartitionId, value: bytes, response: Any) -> None:
        if isinstance(response, Produced):
            self._kernel.counters["acknowledged in a topic made anew"] += len(self._offsets) > 1
            self._world.acknowledged(partition, response.first_offset, value)

    def _read(self) -> None:
        if self._world.quiet:
            return
        partition = self._believed()
        if partition is None:
            self._later(50.0, self._read)
            return
        node = self._world.believed_leader(partition)
        read = Read(self._offsets.setdefault(partition.topic, 0), _READ_BYTES)
        self._world.requests.send(partition, read, lambda response: self._seen(partition, response), node)

    def _seen(self, partition: PartitionId, response: Any) -> None:
        if isinstance(response, ReadBatches):
            for batch in response.batches:
                if batch.header.base_offset >= self._offsets[partition.topic]:
                    self._world.promises.see(partition, batch.header.base_offset, value_of(batch))
                    self._offsets[partition.topic] = batch.header.last_offset + 1
        self._later(50.0, self._read)
