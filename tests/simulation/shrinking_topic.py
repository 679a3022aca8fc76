"""A topic whose oldest records are deleted again and again while nodes fail: what is left is right, at all replicas.

Batches have several rows, and deletions end anywhere in them.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Final

from millstream.logcore.records.batch import BatchProducer
from millstream.logcore.replication.controller.controller_messages import CreateTopic
from millstream.logcore.replication.replica.replica import Replica
from millstream.logcore.replication.replica.replica_messages import (
    Deleted,
    DeleteRecords,
    PartitionId,
    Produce,
    Produced,
    Read,
    ReadBatches,
)

from .cluster_clients import encode, value_of
from .kernel import MILLISECOND, InvariantViolated

if TYPE_CHECKING:
    from .cluster_world import ClusterWorld

NAME: Final = "shrinking"
_READ_BYTES: Final = 1_000
_CREATE_MS: Final = 300.0
_ROWS_MAX: Final = 5


class ShrinkingTopic:
    """One partition, with a producer, somebody who deletes up to where he has read, and a reader of everything."""

    counters: ClassVar[tuple[str, ...]] = ("records deleted", "began behind a deletion", "began inside a batch")

    def __init__(self, world: ClusterWorld, *, every_ms: float) -> None:
        """`every_ms`: mean time between two deletions; 0: there is no such topic."""
        self._world = world
        self._kernel = world.kernel
        self._random = Random(f"{world.kernel.seed}/shrinking")
        self._every_ms = every_ms
        self._partition: PartitionId | None = None
        self._count = 0
        self._acknowledged: dict[int, tuple[bytes, int]] = {}  # by first offset: the batch, and its last offset
        self._offset = 0  # of the reader

    def begin(self) -> None:
        if self._every_ms:
            self._create()

    def _later(self, mean_ms: float, action: Any) -> None:
        self._kernel.schedule(int(self._random.expovariate(1.0) * mean_ms * MILLISECOND), action)

    def _create(self) -> None:
        topic = self._world.image().topic_ids.get(NAME)
        if topic is not None:
            self._partition = PartitionId(topic, 0)
            self._produce()
            self._read()
            self._later(self._every_ms, self._delete)
        elif not self._world.quiet:
            self._world.operator.ask(CreateTopic(NAME, 1, 3, configs=(("min.insync.replicas", "2"),)))
            self._later(_CREATE_MS, self._create)

    def _ask(self, body: Any, answered: Any) -> None:
        assert self._partition is not None
        self._world.requests.send(self._partition, body, answered, self._world.believed_leader(self._partition))

    def _produce(self) -> None:
        if self._world.quiet:
            return
        self._count += 1
        value = b"s%d" % self._count
        rows = self._random.randint(1, _ROWS_MAX)
        batch = encode(value, BatchProducer(), rows)
        self._ask(Produce([batch]), lambda response: self._produced(value, rows, response))
        self._later(20.0, self._produce)

    def _produced(self, value: bytes, rows: int, response: Any) -> None:
        if isinstance(response, Produced) and self._partition is not None:
            self._acknowledged[response.first_offset] = value, response.first_offset + rows - 1
            self._world.acknowledged(self._partition, response.first_offset, value)

    def _delete(self) -> None:
        if self._world.quiet:
            return
        self._ask(DeleteRecords(self._random.randint(0, self._offset)), self._deleted)
        self._later(self._every_ms, self._delete)

    def _deleted(self, response: Any) -> None:
        if isinstance(response, Deleted):
            self._kernel.counters["records deleted"] += response.log_start_offset > 0

    def _read(self) -> None:
        if not self._world.quiet:
            self._ask(Read(self._offset, _READ_BYTES), self._seen)

    def _seen(self, response: Any) -> None:
        if isinstance(response, ReadBatches) and self._partition is not None:
            for batch in response.batches:
                if batch.header.base_offset >= self._offset:
                    self._world.promises.see(self._partition, batch.header.base_offset, value_of(batch))
                    self._offset = batch.header.last_offset + 1
        self._later(50.0, self._read)

    # In the end

    def missing(self) -> str | None:
        if self._partition is None:
            return None
        replicas = list(self._replicas().values())
        leader = next((replica for replica in replicas if replica is not None and replica.leader is not None), None)
        if leader is None:
            return f"nobody leads {NAME}"
        end_offset, start_offset = leader.core.log.end_offset, leader.core.log.log_start_offset
        for replica in replicas:
            if replica is None or replica.core.log.end_offset != end_offset:
                return f"not all replicas of {NAME} have all of it"
            if replica.core.high_watermark < end_offset:
                return f"not all of {NAME} is committed"
            # An earlier leader may have deleted more than the others had heard of when it was replaced.
            if replica.core.log.log_start_offset < start_offset:
                return f"not all replicas of {NAME} have heard of what was deleted"
        return None

    def _replicas(self) -> dict[int, Replica | None]:
        assert self._partition is not None
        state = self._world.image().partition(self._partition)
        return {node: self._world.replica(node, self._partition) for node in (state.replicas if state else ())}

    def finish(self) -> None:
        """I11: each replica has what was acknowledged, from its start on."""
        if self._partition is None:
            return
        for node, replica in self._replicas().items():
            assert replica is not None
            log = replica.core.log
            batches = log.read(log.log_start_offset, log.end_offset, 1 << 30)
            found = {batch.header.base_offset: value_of(batch) for batch in batches}
            for offset, (value, last_offset) in self._acknowledged.items():
                if last_offset >= log.log_start_offset and found.get(offset) != value:
                    raise InvariantViolated(
                        "I11", f"node {node} has {found.get(offset)!r} at offset {offset} of {NAME}, not {value!r}"
                    )
