"""A log served by one or more nodes: each request goes to the node that can answer it (`protocol/routing.py`).
`RemoteLog` works over the network, `cluster/node_log.py` in the process of a node."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Self

from ..capabilities import MILLSTREAM, LogCapabilities
from ..client import ColumnarRecords, Fetched, Isolation, Offsets, RowRecords, Topic, TopicConfig, TopicPartition
from ..cores.group_messages import check_forgotten
from ..error_codes import ErrorCode
from ..errors import LogUnavailable, OutOfOrderSequence, UnknownTopic
from ..protocol.lines import Line
from ..protocol.retries import RETRIABLE
from ..protocol.routing import CoordinatorKey, Router
from ..protocol.sender import Sender
from ..protocol.wire.apis import Api
from ..protocol.wire.fetch_messages import FetchedPartition, FetchPosition
from ..records.batch import BatchProducer, EncodedBatch
from ..records.codec import encode
from ..records.whole import checked_batches
from .remote_admin import OF_THE_BROKER, RemoteAdmin, check
from .remote_cluster import RemoteCluster
from .remote_groups import RemoteGroups
from .remote_producer import TRANSACTION_TIMEOUT, RemoteTransactionalProducer, offset_topics
from .remote_wait import answers_of_each, by_leader, first_answers

_TIMEOUT: Final = timedelta(seconds=30)
_WAIT_S_MAX: Final = 30.0  # per request, because firewalls drop idle connections
_PAUSE_S: Final = 0.05
_TOPIC_RESOURCE: Final = 2
_SET_ON_TOPIC: Final = 1
_EARLIEST: Final = -2
_LATEST: Final = -1
_BYTES_MAX: Final = 0x7FFFFFFF
_CORRUPT: Final = int(ErrorCode.corrupt_message)
_OUT_OF_RANGE: Final = int(ErrorCode.offset_out_of_range)
_FROM_ANOTHER_LEADER: Final = RETRIABLE | {int(ErrorCode.unknown_topic_or_partition)}
"""Error codes after which the leader is looked up again. A leader may not know a new topic yet; the look-up in the
metadata shows whether the topic exists."""


@dataclass(slots=True)
class _Turn:
    """The holder of the lock may append to the partition. State: the producer with its next sequence number there; None
    if that is in doubt."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    producer: BatchProducer | None = None


class RoutedLog:
    """A `LogClient`, with what `Consumer` and `Admin` need. Any thread may call any method.

    State: the next sequence number of this client's own producer in each partition.
    """

    def __init__(
        self,
        router: Router,
        bootstrap: str,
        *,
        replication_factor: int = OF_THE_BROKER,
        transaction_timeout: timedelta = TRANSACTION_TIMEOUT,
        shrinks: bool = False,
        wait_bytes: int = 0,
    ) -> None:
        """In: `bootstrap`: the address for other Millstream processes, as `RemoteLog` takes it. `replication_factor`:
        for new topics. `transaction_timeout`: after this time the log aborts an open transaction. `shrinks`: partitions
        may become shorter, which ends a `wait` for a position after the new end. `wait_bytes`: a `wait` asks for this
        many bytes of records: Apache Kafka answers a request for 0 bytes only at the end of its wait."""
        self._shrinks, self._wait_bytes = shrinks, wait_bytes
        self.bootstrap = bootstrap
        self._router = router
        self._sender = Sender(router)
        self._admin = RemoteAdmin(router, replication_factor)
        self._transaction_timeout = transaction_timeout
        self.groups = RemoteGroups(router)
        self.cluster = RemoteCluster(router)
        self._turns: dict[TopicPartition, _Turn] = {}
        self._turns_lock = threading.Lock()
        self._owner = os.getpid()

    @property
    def capabilities(self) -> LogCapabilities:
        return MILLSTREAM

    # Topics

    def create_topic(self, name: str, partition_count: int, config: TopicConfig = None, replicas: int = 0) -> None:
        self._admin.create_topic(name, partition_count, config, replicas)

    def delete_topic(self, name: str, topic_id: uuid.UUID | None = None) -> None:
        """In: `topic_id`: if given, a topic of this name with another id is not deleted."""
        self._admin.delete_topic(name, topic_id)
        self._router.forget(name)
        with self._turns_lock:
            for where in [where for where in self._turns if where.topic == name]:
                del self._turns[where]

    def topic_id(self, name: str) -> uuid.UUID | None:
        """None if there is no such topic, or the server gives it no id."""
        return self._admin.topic_id(name)

    def topics(self) -> Mapping[str, Topic]:
        described = self._admin.described(None).topics
        configs = self._configs([topic.name for topic in described])
        return {topic.name: _topic(topic, configs[topic.name]) for topic in described}

    def topics_without_configs(self) -> list[Topic]:
        """All topics without their settings, in one request."""
        return [_topic(topic, {}) for topic in self._admin.described(None).topics]

    def topic(self, name: str) -> Topic | None:
        described = self._described(name)
        return None if described is None else _topic(described, self._configs([name])[name])

    def partition_count(self, topic: str) -> int:
        described = self._described(topic)
        if described is None:
            raise UnknownTopic(f'topic "{topic}" does not exist')
        return len(described.partitions)

    def _described(self, topic: str) -> Any:
        """The metadata of the topic; None if no topic has that name."""
        [described] = self._admin.described(topic).topics
        if int(described.error_code) == int(ErrorCode.unknown_topic_or_partition):
            return None
        check(described.error_code, None, f'find topic "{topic}"')
        return described

    def _configs(self, names: list[str]) -> dict[str, dict[str, str]]:
        resources = [
            {"resource_type": _TOPIC_RESOURCE, "resource_name": name, "configuration_keys": None} for name in names
        ]
        answer = self._router.ask(Api.DESCRIBE_CONFIGS, {"resources": resources})
        configs: dict[str, dict[str, str]] = {name: {} for name in names}
        for result in answer.results:
            for entry in result.configs:
                if entry.config_source == _SET_ON_TOPIC and entry.value is not None:
                    configs[result.resource_name][entry.name] = entry.value
        return configs

    def alter_topic(self, name: str, config: Mapping[str, str], *, only_check: bool = False) -> None:
        self._admin.alter_topic(name, config, only_check=only_check)

    def add_partitions(self, name: str, partition_count: int, *, only_check: bool = False) -> None:
        self._admin.add_partitions(name, partition_count, only_check=only_check)

    def delete_records(self, topic: str, partition: int, offset: int) -> int:
        return self._admin.delete_records(topic, partition, offset)

    # Records

    def append(self, topic: str, partition: int, records: RowRecords | ColumnarRecords) -> int:
        where = TopicPartition(topic, partition)
        turn = self._turn(where)
        with turn.lock:
            known, turn.producer = turn.producer, None
            producer = known or self._new_producer()
            batches = encode(records, producer)
            if not batches:
                turn.producer = known
                return self.offsets(topic, partition).log_end_offset
            try:
                first = sent = self._sender.send(where, batches[:1], None)
            except OutOfOrderSequence:
                if known is None:
                    raise
                # The partition has forgotten this producer: the topic was recreated, or we wrote nothing for a day.
                producer = self._new_producer()
                batches = encode(records, producer)
                first = sent = self._sender.send(where, batches[:1], None)
            if len(batches) > 1:
                sent = self._sender.send(where, batches[1:], None)
            turn.producer = BatchProducer(producer.producer_id, producer.epoch, sent.next_sequence)
            return first.first_offset

    def append_batches(self, topic: str, partition: int, batches: bytes | memoryview) -> int:
        """Appends whole Kafka record batches as they are, for producers that speak Kafka's protocol.

        Returns the first offset once they are acknowledged; for a batch that is already stored, its existing offset.
        Raises `InvalidRecords`, `OutOfOrderSequence`, `ProducerFenced`.
        """
        where, found = TopicPartition(topic, partition), checked_batches(memoryview(batches))
        first_offsets = [self._sender.send(where, [batch], None).first_offset for batch in found]
        return first_offsets[0] if first_offsets else self.offsets(topic, partition).log_end_offset

    def append_copies(self, topic: str, partition: int, batches: Sequence[EncodedBatch], mirror: str) -> None:
        """See `MirrorLog`."""
        self._sender.send_copies(TopicPartition(topic, partition), batches, mirror)

    def _turn(self, where: TopicPartition) -> _Turn:
        """The turn of this partition. A child process that inherited this object by `fork` gets new turns, so that it
        does not use its parent's sequence numbers."""
        if self._owner != os.getpid():
            self._turns, self._owner, self._turns_lock = {}, os.getpid(), threading.Lock()
        known = self._turns.get(where)
        if known is not None:
            return known
        with self._turns_lock:
            return self._turns.setdefault(where, _Turn())

    def _new_producer(self) -> BatchProducer:
        answer = self._router.ask(Api.INIT_PRODUCER_ID, {"transactional_id": None, "transaction_timeout": _TIMEOUT})
        check(answer.error_code, None, "append")
        return BatchProducer(answer.producer_id, answer.producer_epoch, 0)

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int = 16 * 1024 * 1024,
        isolation: Isolation = "read_committed",
    ) -> Fetched:
        where = TopicPartition(topic, partition)
        max_bytes = max(1, min(max_bytes, _BYTES_MAX))
        answer = self._router.put(
            lambda line: line.read(self._position(where, offset, max_bytes), isolation),
            lambda answer: [answer.error_code],
            to=where,
            reads=True,
        )
        if answer.error is not None:
            raise answer.error
        check(answer.error_code, None, f'fetch offset {offset} of partition {partition} of topic "{topic}"')
        assert answer.fetched is not None
        return answer.fetched

    def offsets(self, topic: str, partition: int) -> Offsets:
        """As log end offset it returns the high watermark, because readers cannot see more."""
        where = TopicPartition(topic, partition)
        fetched = self._offsets_at(where, 0)
        if fetched.error_code == _OUT_OF_RANGE and fetched.high_watermark < 0:
            fetched = self._offsets_at(where, self._admin.offset_at(topic, partition, _EARLIEST) or 0)
        elif fetched.error_code == _CORRUPT:  # the records there are lost, so ask at the end
            fetched = self._offsets_at(where, self._admin.offset_at(topic, partition, _LATEST) or 0)
        if fetched.error_code != _OUT_OF_RANGE:
            check(fetched.error_code, None, f'read the offsets of partition {partition} of topic "{topic}"')
        return Offsets(
            fetched.log_start_offset, fetched.last_stable_offset, fetched.high_watermark, fetched.high_watermark
        )

    def _offsets_at(self, where: TopicPartition, offset: int) -> FetchedPartition:
        [found] = self._look({where: offset}, "read_uncommitted", 0)
        return found

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """The offset of the first visible record with this time or a later one; None if there is none."""
        return self._admin.offset_at(topic, partition, max(0, timestamp_ms))

    def wait(self, positions: Mapping[TopicPartition, int], timeout_s: float) -> bool:
        """See `LogClient.wait`. Records of an aborted transaction may also end the wait. In a cluster, a partition
        without a leader does not end it."""
        deadline = time.monotonic() + timeout_s
        asked = {TopicPartition(*where): offset for where, offset in positions.items()}
        while True:
            left_s = max(0.0, deadline - time.monotonic())
            for fetched in self._next(asked, min(left_s, _WAIT_S_MAX)):
                where = fetched.partition
                if self._router.clustered and fetched.error_code in _FROM_ANOTHER_LEADER:
                    self._router.doubt(where)
                    time.sleep(min(left_s, _PAUSE_S))
                    continue
                if fetched.error_code != _OUT_OF_RANGE:
                    check(fetched.error_code, None, f'wait for partition {where.partition} of topic "{where.topic}"')
                elif self._shrinks:  # other brokers do not report the end here
                    return True
                elif fetched.high_watermark >= 0:
                    asked[where] = fetched.last_stable_offset  # the log has to reach the position first
                if fetched.last_stable_offset > positions[where]:
                    return True
            if left_s <= 0 or not asked:
                return False

    def advanced(
        self, positions: Mapping[TopicPartition, int], timeout_s: float
    ) -> Mapping[TopicPartition, int | None]:
        deadline = time.monotonic() + timeout_s
        asked = {TopicPartition(*where): offset for where, offset in positions.items()}
        while True:
            left_s = max(0.0, deadline - time.monotonic())
            if self._router.clustered:
                answers, unknown = answers_of_each(self._router, asked, min(left_s, _WAIT_S_MAX), self._wait_bytes)
            else:
                answers, unknown = self._look(asked, "read_committed", min(left_s, _WAIT_S_MAX)), []
            found = dict.fromkeys(unknown) | self._ends(answers, positions, asked)
            if found or left_s <= 0 or not asked:
                return found
            if not answers or any(fetched.error_code for fetched in answers):
                time.sleep(min(left_s, _PAUSE_S))

    def _ends(
        self,
        answers: Sequence[FetchedPartition],
        positions: Mapping[TopicPartition, int],
        asked: dict[TopicPartition, int],
    ) -> dict[TopicPartition, int | None]:
        """The last stable offsets of the partitions that have advanced; None for those that cannot be read. `asked`: is
        updated with the offsets to ask for next."""
        found: dict[TopicPartition, int | None] = {}
        for fetched in answers:
            where, code = fetched.partition, fetched.error_code
            if self._router.clustered and code in _FROM_ANOTHER_LEADER:
                self._router.doubt(where)
            elif code and (code != _OUT_OF_RANGE or self._shrinks):
                found[where] = None
            elif fetched.last_stable_offset > positions[where]:
                found[where] = fetched.last_stable_offset
            elif code and fetched.high_watermark >= 0:  # the log has to reach the position first
                asked[where] = fetched.last_stable_offset
        return found

    def _next(self, asked: Mapping[TopicPartition, int], wait_s: float) -> list[FetchedPartition]:
        """The answer of the only node, or the first answer of several nodes."""
        if not self._router.clustered:
            return self._look(asked, "read_committed", wait_s)
        try:
            return first_answers(self._router, by_leader(self._router, list(asked)), asked, wait_s, self._wait_bytes)
        except LogUnavailable:
            for where in asked:
                self._router.doubt(where)
            time.sleep(min(wait_s, _PAUSE_S))
            return []

    def _look(self, asked: Mapping[TopicPartition, int], isolation: Isolation, wait_s: float) -> list[FetchedPartition]:
        """In: `asked`: one partition, or several if there is only one node."""

        def look(line: Line) -> list[FetchedPartition]:
            positions = [self._position(where, offset, 0) for where, offset in asked.items()]
            return line.look(positions, isolation, wait_s)

        return self._router.put(
            look,
            lambda answer: [entry.error_code for entry in answer],
            to=next(iter(asked), None),
            reads=True,
        )

    def _position(self, where: TopicPartition, offset: int, max_bytes: int) -> FetchPosition:
        """A position with the known leader epoch, so that a node that no longer leads, or leads again, refuses it."""
        return FetchPosition(where, offset, max_bytes, self._router.leader_epoch(where))

    # Groups and transactions

    def committed_offsets(self, group: str) -> Mapping[TopicPartition, int]:
        return {where: found.offset for where, found in self.groups.committed(group).items()}

    def forget_producer(self, transactional_id: str) -> None:
        self.transactional_producer(transactional_id)
        self._router.forget(CoordinatorKey("transaction", transactional_id))

    def forget_group(self, group: str) -> None:
        check_forgotten(group, self.groups.delete(group))
        self._router.forget(CoordinatorKey("group", group))

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        topics = offset_topics(offsets)
        to = CoordinatorKey("group", group)
        answer = self._router.ask(Api.OFFSET_COMMIT, {"group_id": group, "topics": topics}, to=to)
        for topic in answer.topics:
            for partition in topic.partitions:
                check(partition.error_code, None, f'commit the offsets of group "{group}"')

    def transactional_producer(self, transactional_id: str) -> RemoteTransactionalProducer:
        return RemoteTransactionalProducer(self._router, transactional_id, self._transaction_timeout)

    # Closing

    def close(self) -> None:
        """Closes the client; the log itself stays open. It may be called twice."""
        self._router.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _topic(described: Any, config: Mapping[str, str]) -> Topic:
    factor = max((len(partition.replica_nodes) for partition in described.partitions), default=1)
    return Topic(described.name, len(described.partitions), config, factor)
