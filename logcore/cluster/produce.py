"""Answers to Produce in a cluster: batches go to the leading replica, which answers when enough replicas have them.

Requests of one connection reach the replica in the order in which they came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from millstream.errors import LogError

from ..client import TopicPartition
from ..error_codes import ErrorCode
from ..errors import InvalidRecords, NotNow, RecordsTooLarge
from ..protocol.connection import Answer, KafkaRequest
from ..protocol.kafka_service import KafkaService
from ..protocol.requests.record_requests import (
    answered,
    check_same_topic,
    checked_write,
    failed,
    is_light,
    named,
    refused_transaction,
)
from ..protocol.security.access import check_writable
from ..protocol.security.peer import Peer
from ..protocol.wire import produce_messages as produce
from ..protocol.wire.produce_messages import ProduceData, ProduceRequest, ProduceResult
from ..records.batch import Buffer, EncodedBatch, stamp
from ..records.whole import checked_batches as whole_batches
from ..replication.disk.disk_log import DiskLog
from ..replication.machine import BROKER
from ..replication.machine_messages import Answer as MachineAnswer
from ..replication.node.node_codec import FRAME_BYTES_MAX
from ..replication.node.node_runtime import NoAnswer, NodeStopped
from ..replication.replica.replica_messages import Acks, ForPartition, PartitionId, Produced, Refused
from ..replication.replica.replica_messages import Produce as ProduceBatches
from .cluster_layout import ClusterLayout
from .cluster_log import ClusterLog
from .refusals import refused

_WAIT_MS_MAX: Final = 5 * 60 * 1000
_ALL: Final = -1
_ACKS: Final[Mapping[int, Acks]] = {_ALL: _ALL, 0: 0, 1: 1}
_BATCH_BYTES_MAX: Final = FRAME_BYTES_MAX - 64 * 1024  # leaves room for the rest of a frame
_TOLD_BYTES_MAX: Final = 8 * 1024 * 1024


class _ToStore(NamedTuple):
    id: PartitionId
    asked: ProduceBatches


_Checked = _ToStore | ProduceResult


class _Slot:
    """The answer of one partition, given on any thread. State, on the event loop: the answer, or why there is none."""

    __slots__ = ("_loop", "_settled", "answer")

    def __init__(self, loop: asyncio.AbstractEventLoop, settled: Callable[[], None]) -> None:
        self._loop, self._settled = loop, settled
        self.answer: MachineAnswer | Exception = None

    def set_result(self, answer: MachineAnswer) -> None:
        self._say(answer)

    def set_exception(self, failure: Exception) -> None:
        self._say(failure)

    def _say(self, said: MachineAnswer | Exception) -> None:
        with suppress(RuntimeError):  # the loop was closed meanwhile
            self._loop.call_soon_threadsafe(self._take, said)

    def _take(self, said: MachineAnswer | Exception) -> None:
        self.answer = said
        self._settled()


_Stored = tuple[ProduceData, _Slot | ProduceResult]


class _Request:
    """One request, on the event loop. State: how many of its partitions have not answered. `answer` comes when all
    have, or after the client's timeout."""

    def __init__(self, timeout_s: float, response: Callable[[Sequence[_Stored]], list[Buffer]]) -> None:
        self._loop = asyncio.get_running_loop()
        self._response = response
        self._stored: Sequence[_Stored] = ()
        self._waiting = 0
        self.answer: asyncio.Future[list[Buffer] | None] = self._loop.create_future()
        self._timer = self._loop.call_later(timeout_s, self._end)

    def slot(self) -> _Slot:
        self._waiting += 1
        return _Slot(self._loop, self._settled)

    def begin(self, stored: Sequence[_Stored]) -> asyncio.Future[list[Buffer] | None]:
        """Begins to wait, after all partitions were asked."""
        self._stored = stored
        if not self._waiting:
            self._end()
        return self.answer

    def _settled(self) -> None:
        self._waiting -= 1
        if not self._waiting:
            self._end()

    def _end(self) -> None:
        self._timer.cancel()
        # The slots refer to this request. Without this its records would stay until the collector of cyclic garbage
        # runs, which counts objects and not their bytes: 700 requests of 900 kB took 600 MB.
        stored, self._stored = self._stored, ()
        if not self.answer.done():
            try:
                self.answer.set_result(self._response(stored))
            except Exception as error:
                self.answer.set_exception(error)


class ClusterProduce:
    """`Serving.produce`."""

    def __init__(self, log: ClusterLog, layout: ClusterLayout) -> None:
        self._log = log
        self._layout = layout
        self._told_bytes = 0  # bytes with acks=0 that the node has not taken yet

    async def __call__(self, broker: KafkaService, request: KafkaRequest) -> Answer:
        """Returns when the replicas have been asked; the answer comes when they have answered, or after the client's
        timeout: then nothing is promised."""
        version = request.header.version
        asked = named(broker.log, produce.read_request(request.message, request.position, version))
        throttle_ms = broker.throttle(request.peer, produced=len(request.message))
        if (unlawful := await refused_transaction(broker, asked, request.peer)) is not None:
            body = produce.write_response(unlawful, version, throttle_ms, asked.topic_ids) if asked.acks else None
            return answered(body)
        if all(is_light(data.records) for data in asked.data):
            checked = [self._checked(asked, data, request.peer) for data in asked.data]
        else:
            checked = await broker.blocking(lambda: [self._checked(asked, data, request.peer) for data in asked.data])
        if not asked.acks:
            for entry in checked:
                if isinstance(entry, _ToStore):
                    self._log.node.tell(BROKER, ForPartition(*entry))
            return broker.keep(self._told(sum(map(len, (records for data in asked.data for records in data.records)))))
        return broker.keep_answer(self._asked(asked, checked, version, throttle_ms))

    def _asked(
        self, asked: ProduceRequest, checked: Sequence[_Checked], version: int, throttle_ms: int
    ) -> asyncio.Future[list[Buffer] | None]:
        def response(stored: Sequence[_Stored]) -> list[Buffer]:
            results = [self._result(*entry) for entry in stored]
            return produce.write_response(results, version, throttle_ms, asked.topic_ids)

        request = _Request(min(max(asked.timeout_ms, 0), _WAIT_MS_MAX) / 1000, response)
        stored: list[_Stored] = []
        for data, entry in zip(asked.data, checked, strict=True):
            if isinstance(entry, _ToStore):
                slot = request.slot()
                self._log.node.begin_produce(*entry, slot)
                stored.append((data, slot))
            else:
                stored.append((data, entry))
        return request.begin(stored)

    def write(
        self,
        where: TopicPartition,
        batch: EncodedBatch,
        transactional_id: str | None,
        timeout_s: float,
        *,
        here: bool = False,
    ) -> ProduceResult:
        """What a client of this process writes: a batch of its own making, so nobody looks into it again. Returns when
        the in-sync replicas have them, or after `timeout_s`: then nothing is promised. In: `here`: see `Produce`."""

        def asked(partition: DiskLog) -> ProduceBatches:
            if batch.header.size > _BATCH_BYTES_MAX:
                raise _too_large_to_replicate(where, batch.header.size)
            partition.settings.check_writer(where.topic, None)
            stored = stamp(batch, self._log.node.now_ms()) if partition.settings.append_time else batch
            return ProduceBatches((stored,), _ALL, False, transactional_id, transactional_id is not None, here)

        return self._written(where, asked, timeout_s)

    def write_copies(
        self, where: TopicPartition, batches: Sequence[EncodedBatch], mirror: str, timeout_s: float
    ) -> ProduceResult:
        """Writes batches of a mirror, as its source has stored them. Their headers contain their offsets."""
        return self._written(where, lambda partition: _copies(partition, where, batches, mirror), timeout_s)

    def _written(
        self, where: TopicPartition, asked: Callable[[DiskLog], ProduceBatches], timeout_s: float
    ) -> ProduceResult:
        """In: `asked`: returns what to store in the partition; it raises `LogError`."""
        try:
            id = self._log.id_of(where)
            partition = self._log.writable_at(where, id)
            answer = self._log.node.produce(id, asked(partition), timeout_s)
        except NoAnswer:
            return failed(ProduceData(where, []), _late())
        except NodeStopped:
            return failed(ProduceData(where, []), _ended())
        except LogError as error:
            return failed(ProduceData(where, []), error)
        if isinstance(answer, Refused):
            return failed(ProduceData(where, []), refused(answer))
        assert isinstance(answer, Produced)
        return ProduceResult(where, 0, answer.first_offset, partition.log_start_offset)

    async def _told(self, size: int) -> None:
        """The client does not wait for an answer, but its connection waits if the node is too slow. Otherwise batches
        would pile up."""
        self._told_bytes += size
        taken = asyncio.wrap_future(self._log.node.caught_up())

        def take(done: object) -> None:
            self._told_bytes -= size

        taken.add_done_callback(take)
        if self._told_bytes > _TOLD_BYTES_MAX:
            await asyncio.wait([taken])

    def _checked(self, asked: ProduceRequest, data: ProduceData, peer: Peer) -> _Checked:
        try:
            acks = _ACKS.get(asked.acks)
            if acks is None:
                raise NotNow(ErrorCode.invalid_required_acks, f"acks is 0, 1 or -1 (all), and not {asked.acks}")
            check_same_topic(self._log, data.partition.topic, data.topic_id)
            check_writable(peer, data.partition.topic)
            partition = self._log.writable(*data.partition)
            self._layout.check_leads(data.partition)
            if asked.mirror is not None and peer.trusted:
                copies = [batch for records in data.records for batch in whole_batches(memoryview(records))]
                return _ToStore(
                    self._log.id_of(data.partition), _copies(partition, data.partition, copies, asked.mirror)
                )
            partition.settings.check_writer(data.partition.topic, None)
            batches = checked_write(partition, asked.transactional_id, data, peer, self._log.node.now_ms())
            id = self._log.id_of(data.partition)
            check_same_topic(self._log, data.partition.topic, data.topic_id)
            return _ToStore(
                id,
                self._to_store(partition, data, batches, asked.transactional_id, acks, announces=asked.announces),
            )
        except LogError as error:
            return failed(data, error)

    def _to_store(
        self,
        partition: DiskLog,
        data: ProduceData,
        batches: Sequence[EncodedBatch],
        transactional_id: str | None,
        acks: Acks = _ALL,
        *,
        announces: bool = False,
    ) -> ProduceBatches:
        """The request to the replica. Raises `RecordsTooLarge` and `InvalidRecords`."""
        _check_replicable(data, batches)
        if partition.settings.append_time:
            batches = [stamp(batch, self._log.node.now_ms()) for batch in batches]
        return ProduceBatches(batches, acks, False, transactional_id, announces)

    def _result(self, data: ProduceData, stored: _Slot | ProduceResult) -> ProduceResult:
        if isinstance(stored, ProduceResult):
            return stored
        answer = stored.answer
        if answer is None:
            return failed(data, _late())
        if isinstance(answer, Exception):
            return failed(data, _ended())
        if isinstance(answer, Refused):
            return failed(data, refused(answer))
        assert isinstance(answer, Produced)
        return ProduceResult(data.partition, 0, answer.first_offset, self._log_start(data))

    def _log_start(self, data: ProduceData) -> int:
        try:
            return self._log.partition(*data.partition).log_start_offset
        except LogError:
            return -1


def _check_replicable(data: ProduceData, batches: Sequence[EncodedBatch]) -> None:
    """Followers get a batch whole, in one frame; and the leader looks for who has sent it, and what before, once per
    request (Kafka takes one batch per partition, too). Raises `RecordsTooLarge`, `InvalidRecords`."""
    largest = 0
    for batch in batches:
        largest = max(largest, batch.header.size)
    if largest > _BATCH_BYTES_MAX:
        raise _too_large_to_replicate(data.partition, largest)
    if len(batches) > 1 and any(batch.header.producer_id >= 0 for batch in batches):
        raise InvalidRecords(
            f"{len(batches)} batches of a producer in one request for the same partition",
            hint="Batches that are numbered go one by one, each in a request of its own.",
        )


def _copies(partition: DiskLog, where: TopicPartition, batches: Sequence[EncodedBatch], mirror: str) -> ProduceBatches:
    """Raises `ReadOnlyTopic`, `RecordsTooLarge`, `InvalidRecords`."""
    partition.settings.check_writer(where.topic, mirror)
    if not batches:
        raise InvalidRecords("a mirror has sent no record batch")
    _check_replicable(ProduceData(where, []), batches)
    return ProduceBatches(batches, base_offset=batches[0].header.base_offset)


def _too_large_to_replicate(where: TopicPartition, size: int) -> RecordsTooLarge:
    return RecordsTooLarge(
        f"a record batch of {size} bytes is too large for {where.topic}-{where.partition}:"
        f" replicas can be sent {_BATCH_BYTES_MAX} bytes",
        hint="Cut it into several batches.",
    )


def _late() -> NotNow:
    return NotNow(ErrorCode.request_timed_out, "not enough replicas have it yet; whether it is stored is open")


def _ended() -> NotNow:
    return NotNow(ErrorCode.not_leader_or_follower, "this node has ended")
