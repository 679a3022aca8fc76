"""Clients of a simulated cluster: producers that retry until they are answered, consumers that read and remember.

They reach the nodes over a network of their own, which delays, loses and repeats what they say; they learn who leads a
partition from whatever node they ask, which may not know it yet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from millstream.logcore.records.batch import HEADER_SIZE, BatchProducer, EncodedBatch, seal
from millstream.logcore.replication.replica.replica_messages import (
    PartitionId,
    Problem,
    Produce,
    Produced,
    Read,
    ReadBatches,
    Refused,
)

from .kernel import MILLISECOND, InvariantViolated

if TYPE_CHECKING:
    from .cluster_world import ClusterWorld

_IN_FLIGHT: Final = 5
_TIMEOUT_MS: Final = 1_500
_GIVE_UP_EVERY_MS: Final = 50
_READ_BYTES: Final = 2_000


def encode(value: bytes, producer: BatchProducer, rows: int = 1) -> EncodedBatch:
    """A batch of rows. Nobody looks into its records, so they are just the value."""
    return seal(
        [bytearray(HEADER_SIZE) + value],
        attributes=0,
        last_offset_delta=rows - 1,
        base_timestamp_ms=0,
        max_timestamp_ms=0,
        record_count=rows,
        producer=producer,
    )


def value_of(batch: EncodedBatch) -> bytes:
    return b"".join(batch.buffers)[HEADER_SIZE:]


class Requests:
    """Sends requests to nodes and finds who waits for an answer; answers that come late or twice find nobody."""

    def __init__(self, world: ClusterWorld) -> None:
        self._world = world
        self._kernel = world.kernel
        self._number = 0
        self._waiting: dict[int, Callable[[Any], None]] = {}
        self._partitions: dict[int, PartitionId] = {}
        self._deadlines: deque[tuple[int, int]] = deque()  # (ns, number), in the order of both

    def send(self, partition: PartitionId, body: Any, answered: Callable[[Any], None], node: int | None) -> None:
        """To this node; `answered(None)` after the time-out."""
        self._number += 1
        number = self._number
        self._waiting[number] = answered
        self._partitions[number] = partition
        random = self._kernel.randoms.workload
        if node is not None:
            for _ in range(2 if random.random() < 0.02 else 1):
                if random.random() > 0.02:
                    delay = random.expovariate(1.0) * 2 * MILLISECOND
                    self._kernel.schedule(int(delay), self._world.ask, node, number, partition, _on_the_wire(body))
        if not self._deadlines:
            self._kernel.schedule(_TIMEOUT_MS * MILLISECOND, self._give_up)
        self._deadlines.append((self._kernel.now_ns + _TIMEOUT_MS * MILLISECOND, number))

    def _give_up(self) -> None:
        """One event for all time-outs of a while: most requests were answered by then."""
        until_ns = self._kernel.now_ns + _GIVE_UP_EVERY_MS * MILLISECOND
        while self._deadlines and self._deadlines[0][0] <= until_ns:
            self.answer(self._deadlines.popleft()[1], None)
        if self._deadlines:
            self._kernel.schedule(self._deadlines[0][0] - self._kernel.now_ns, self._give_up)

    def partition_of(self, number: int) -> PartitionId:
        return self._partitions[number]

    def answer(self, number: int, response: Any) -> None:
        answered = self._waiting.pop(number, None)
        if answered is not None:
            answered(response)


def _on_the_wire(body: Any) -> Any:
    """Each copy of a message has bytes of its own: a leader writes offsets into them."""
    if body.__class__ is not Produce:
        return body
    copies = [EncodedBatch([bytearray(part) for part in batch.buffers], batch.header) for batch in body.batches]
    return body._replace(batches=copies)


@dataclass(slots=True)
class _Sent:
    sequence: int
    value: bytes
    tries: int = 0


@dataclass
class Promises:
    """What the clients were told: the history that has to be true in the end."""

    acknowledged: dict[PartitionId, dict[int, bytes]] = field(default_factory=dict[PartitionId, dict[int, bytes]])
    seen: dict[PartitionId, dict[int, bytes]] = field(default_factory=dict[PartitionId, dict[int, bytes]])
    aborted: set[bytes] = field(default_factory=set[bytes])  # values of transactions that were never committed
    sent: int = 0

    def acknowledge(self, partition: PartitionId, offset: int, value: bytes) -> None:
        known = self.acknowledged.setdefault(partition, {}).setdefault(offset, value)
        if known != value:
            raise InvariantViolated("I11", f"{value!r} and {known!r} were both acknowledged at offset {offset}")
        self.see(partition, offset, value)

    def see(self, partition: PartitionId, offset: int, value: bytes) -> None:
        """I11: what was committed at an offset once is there for ever."""
        known = self.seen.setdefault(partition, {}).setdefault(offset, value)
        if known != value:
            raise InvariantViolated("I11", f"offset {offset} was {known!r} and is {value!r} now")


class ProducerClient:
    """An idempotent producer of one partition, with up to five batches under way."""

    def __init__(self, world: ClusterWorld, number: int, partition: PartitionId) -> None:
        self._world = world
        self._kernel = world.kernel
        self._number = number
        self._partition = partition
        self._next = 0
        self._sent: list[_Sent] = []
        self._full = False  # as much is under way as may be: it goes on with the next answer

    def begin(self) -> None:
        self._later(self._act)

    @property
    def waiting(self) -> int:
        """Batches that are not answered."""
        return len(self._sent)

    def _later(self, action: Callable[..., object], *arguments: Any) -> None:
        delay = self._kernel.randoms.workload.expovariate(1.0) * self._world.produce_ms
        self._kernel.schedule(int(delay * MILLISECOND), action, *arguments)

    def _act(self) -> None:
        if self._world.quiet:
            return
        oldest = self._sent[0].sequence if self._sent else self._next
        self._full = self._next - oldest >= _IN_FLIGHT
        if not self._full:
            batch = _Sent(self._next, b"%d.%d" % (self._number, self._next))
            self._next += 1
            self._sent.append(batch)
            self._world.promises.sent += 1
            self._send(batch)
            self._later(self._act)

    def _send(self, batch: _Sent) -> None:
        batch.tries += 1
        encoded = encode(batch.value, BatchProducer(self._number, 0, batch.sequence))
        self._world.requests.send(
            self._partition,
            Produce([encoded]),
            lambda response: self._answered(batch, response),
            self._world.believed_leader(self._partition),
        )

    def _answered(self, batch: _Sent, response: Any) -> None:
        if isinstance(response, Produced):
            self._sent.remove(batch)
            self._world.acknowledged(self._partition, response.first_offset, batch.value)
            if batch.tries > 1:
                self._kernel.counters["acknowledged after a retry"] += 1
            if self._full:
                self._full = False
                self._later(self._act)
            return
        if isinstance(response, Refused) and response.problem is Problem.PRODUCER_FENCED:
            raise InvariantViolated("I15", f"producer {self._number} is fenced, and nobody did that")
        self._kernel.schedule(20 * MILLISECOND, self._send, batch)


class ConsumerClient:
    """Reads a partition from its start, at the leader or at any other replica; begins anew now and then."""

    def __init__(self, world: ClusterWorld, partition: PartitionId, *, committed_only: bool) -> None:
        self._world = world
        self._kernel = world.kernel
        self.partition = partition
        self._committed_only = committed_only
        self.offset = 0

    def begin(self) -> None:
        self._read()

    def _read(self) -> None:
        random = self._kernel.randoms.workload
        node, epoch = self._world.believed(self.partition)
        if random.random() < 0.3:
            node = random.choice(list(self._world.simulation.hosts))
        if random.random() < 0.01 and not self._world.quiet:
            self.offset = 0
        read = Read(self.offset, _READ_BYTES, self._committed_only, epoch if random.random() < 0.7 else -1)
        self._world.requests.send(self.partition, read, self._answered, node)

    def _answered(self, response: Any) -> None:
        if isinstance(response, ReadBatches):
            self._take(response)
        elif isinstance(response, Refused) and response.problem is Problem.OFFSET_OUT_OF_RANGE:
            raise InvariantViolated("I12", f"offset {self.offset} is gone: {response.message}")
        delay = self._kernel.randoms.workload.expovariate(1.0) * self._world.read_ms
        self._kernel.schedule(int(delay * MILLISECOND), self._read)

    def _take(self, response: ReadBatches) -> None:
        for batch in response.batches:
            header = batch.header
            if header.last_offset < self.offset:
                continue
            if header.base_offset > self.offset:
                raise InvariantViolated("I11", f"asked for {self.offset}, got {header.base_offset}")
            value = b"marker" if header.control else value_of(batch)
            self._world.promises.see(self.partition, header.base_offset, value)
            if self._committed_only and not header.control and not response.aborted.covers(header):
                self._world.read_committed(value)
            self.offset = header.last_offset + 1
