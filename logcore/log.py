"""The log of one node, in a directory, used in this process: `open_log`. The interface is `client.LogClient`."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

import structlog

from millstream.errors import LogError

from .client import ColumnarRecords, Fetched, Isolation, Offsets, RowRecords, Topic, TopicPartition
from .clients.local_producer import LocalTransactionalProducer
from .coordination.coordinator import TransactionCoordinator
from .coordination.group_coordinator import GroupCoordinator
from .coordination.group_offsets import TOPIC as OFFSETS_TOPIC
from .coordination.group_offsets import GroupOffsets
from .coordination.state_log import StateLog
from .coordination.transaction_log import TOPIC as TRANSACTIONS_TOPIC
from .cores.expiry import DEFAULT, ExpiryTimes
from .cores.group_messages import check_forgotten
from .cores.transaction_records import Identity
from .cores.transactions import TransactionDescription
from .errors import CorruptLog, InvalidTopic, LogClosed, OffsetOutOfRange, TopicExists, UnknownTopic, write_error
from .failpoints import fp
from .log_settings import Changes
from .owned_log import OwnedLog
from .protocol.kafka_service import Serving
from .protocol.local_transactions import LocalTransactions
from .protocol.one_node import OneNode
from .protocol.requests.record_requests import answer_produce
from .records.batch import EncodedBatch
from .records.codec import encode
from .records.whole import checked_batches
from .secret import secret_of
from .settings_file import SettingsFile
from .storage.data_directory import DataDirectory, StoredTopic
from .storage.housekeeping import Housekeeper, HousekeepingTarget, Kept
from .storage.open_files import OpenFiles
from .storage.partition import Partition, PartitionContext
from .storage.reader import read
from .storage.timestamps import first_at_or_after
from .stored_topic_ids import StoredTopicIds
from .topic_rules import RESERVED, check_topic
from .topic_settings import check_config, settings_of

_log = structlog.get_logger("millstream.logcore")


class Log(OwnedLog):
    """State: the data directory, its partitions, and what they mean together. Any thread may call any method.

    A damaged partition does not keep the log from opening: who uses it gets the `CorruptLog` that says what is wrong.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float], durable: bool, expiry: ExpiryTimes) -> None:
        self._clock = clock
        self._expiry = expiry
        self._durable = durable
        try:
            self._directory = DataDirectory(path, durable=durable)
        except OSError as error:
            raise write_error(error, f"to the data directory {path}") from error
        self._topics_lock = threading.RLock()
        self._partitions: dict[str, list[Partition | CorruptLog | None]] = {}  # None: not opened yet
        self._advanced = threading.Condition()
        self._waiting = 0
        self._advances = 0  # how often `_wake` has woken those who wait
        self._listeners: tuple[Callable[[], None], ...] = ()
        self._closed = False
        self._settle: Callable[[TopicPartition, Partition], None] = lambda where, partition: None
        self._context = PartitionContext(
            OpenFiles(), self._now_ms, self._wake, durable, found_durable=durable and not self._directory.was_closed
        )
        try:
            self._open()
        except BaseException as error:
            self._directory.close()
            if isinstance(error, OSError):
                raise write_error(error, f"to the data directory {path}") from error
            raise

    def _open(self) -> None:
        if self._durable and self._directory.topics and not self._directory.was_closed:
            os.sync()  # what partitions find when they are opened has to be durable: all at once takes less
        self._settings = SettingsFile(self._directory.path, durable=self._durable)
        for stored in self._directory.topics.values():
            self._partitions[stored.topic.name] = [None] * stored.topic.partition_count
        for name in RESERVED:
            if name not in self._directory.topics:
                self._open_partitions(self._directory.create(Topic(name, 1, {})))
        self._topic_ids = StoredTopicIds(self._directory)
        self._group_offsets = GroupOffsets(StateLog(self.partition(OFFSETS_TOPIC, 0), self._now_ms))
        self._groups = GroupCoordinator(self._group_offsets, self._now_ms, topic_ids=self._topic_ids)
        transactions = StateLog(self.partition(TRANSACTIONS_TOPIC, 0), self._now_ms)
        self._coordinator = TransactionCoordinator(self, transactions, self._group_offsets, self._now_ms)
        self._settle = self._coordinator.settle
        self._coordinator.recover()
        self._housekeeper = Housekeeper(
            self._all_partitions,
            self._now_ms,
            self._expire_unused,
            producer_expiry_ms=self._expiry.producer_ids_ms,
        )
        self._housekeeper.start()

    def _open_partitions(self, stored: StoredTopic) -> None:
        topic = stored.topic
        self._partitions[topic.name] = [
            self._open_partition(topic, partition) for partition in range(topic.partition_count)
        ]

    def _open_partition(self, topic: Topic, partition: int) -> Partition | CorruptLog:
        name = _name_of(topic.name, partition)
        try:
            opened = Partition(
                name,
                self._directory.folder(topic.name, partition),
                settings_of(topic.config),
                self._context,
            )
        except CorruptLog as error:
            error = CorruptLog(f"{name} cannot be opened: {error.message}", hint=error.hint)
            _log.error("partition is damaged", topic=topic.name, partition=partition, error=error.message)
            return error
        self._settle(TopicPartition(topic.name, partition), opened)  # ends what a crash left open there
        return opened

    # Topics

    def create_topic(self, name: str, partition_count: int, config: Mapping[str, str] | None = None) -> None:
        topic = check_topic(name, partition_count, config or {})
        with self._topics_lock:
            self._check_open()
            if name in self._directory.topics:
                raise TopicExists(f'topic "{name}" exists already')
            self._open_partitions(self._directory.create(topic))

    def delete_topic(self, name: str) -> None:
        if name in RESERVED:
            raise InvalidTopic(f'topic "{name}" belongs to the log and cannot be deleted')
        with self._topics_lock:
            self._check_open()
            if name not in self._directory.topics:
                raise _unknown(name)
            self._directory.delete(name)
            for partition in self._partitions.pop(name):
                if isinstance(partition, Partition):
                    partition.mark_deleted()
            self._group_offsets.forget_topic(name)
        self._wake()

    def alter_topic(self, name: str, config: Mapping[str, str], *, only_check: bool = False) -> None:
        """From now on the topic has exactly these settings. Raises `UnknownTopic`, `InvalidTopic`."""
        with self._topics_lock:
            topic = self._changeable(name)
            check_config(name, config)
            if not only_check:
                self._directory.change(replace(topic, config=dict(config)))
                for partition in self._partitions[name]:
                    if isinstance(partition, Partition):
                        partition.configure(settings_of(config))

    def add_partitions(self, name: str, partition_count: int, *, only_check: bool = False) -> None:
        """The topic gets so many in all. Raises `UnknownTopic`, or `InvalidTopic` where it has as many already."""
        with self._topics_lock:
            topic = self._changeable(name)
            changed = check_topic(name, partition_count, topic.config)
            if partition_count <= topic.partition_count:
                raise InvalidTopic(
                    f'topic "{name}" has {topic.partition_count} partitions, and cannot have {partition_count}',
                    hint="Partitions can be added, but not taken away.",
                )
            if not only_check:
                self._directory.change(changed)
                new = range(topic.partition_count, partition_count)
                self._partitions[name] = [*self._partitions[name], *(self._open_partition(changed, n) for n in new)]

    def _changeable(self, name: str) -> Topic:
        if name in RESERVED:
            raise InvalidTopic(f'topic "{name}" belongs to the log and cannot be changed')
        self._check_open()
        if name not in self._directory.topics:
            raise _unknown(name)
        return self._directory.topics[name].topic

    def delete_records(self, topic: str, partition: int, offset: int) -> int:
        """Removes the records before `offset`, but for those of open transactions; returns where the log starts then.

        Raises `OffsetOutOfRange`, `InvalidTopic` for a topic of the log's own.
        """
        target = self.writable(topic, partition)
        end_offset = target.offsets().high_watermark
        if not 0 <= offset <= end_offset:
            raise OffsetOutOfRange(
                f"the records before offset {offset} of {target.name} cannot be deleted: it ends at {end_offset}"
            )
        return target.drop_before(offset)

    def topics(self) -> Mapping[str, Topic]:
        self._check_open()
        return {name: stored.topic for name, stored in self._directory.topics.items()}

    def topic(self, name: str) -> Topic | None:
        """None where there is none of that name."""
        stored = self._directory.topics.get(name)
        return None if stored is None else stored.topic

    @property
    def partitions_here(self) -> int:
        return sum(topic.partition_count for topic in self.topics().values())

    def partition_count(self, topic: str) -> int:
        if (found := self.topic(topic)) is None:
            raise _unknown(topic)
        return found.partition_count

    def topic_id(self, topic: str) -> str:
        if (stored := self._directory.topics.get(topic)) is None:
            raise _unknown(topic)
        return stored.id

    def topic_name(self, id: bytes) -> str | None:
        """Of the topic that has this id now."""
        return self._topic_ids.name_of(id)

    # Settings of what is no topic

    def settings(self, resource: str) -> Mapping[str, str]:
        return self._settings.of(resource)

    def resources(self, prefix: str) -> Iterable[str]:
        """Those that have settings."""
        return self._settings.resources(prefix)

    def change_settings(self, resource: str, changes: Changes) -> None:
        """Durable on return. Raises `LogError`."""
        self._check_open()
        self._settings.change(resource, changes)

    # Partitions

    def partition(self, topic: str, partition: int) -> Partition:
        """Raises `UnknownTopic`, or `CorruptLog` where it is damaged."""
        self._check_open()
        partitions = self._partitions.get(topic)
        if partitions is None:
            raise _unknown(topic)
        if not 0 <= partition < len(partitions):
            raise UnknownTopic(f'topic "{topic}" has {len(partitions)} partitions, and none with number {partition}')
        found = partitions[partition] or self._opened(topic, partition)
        if isinstance(found, CorruptLog):
            raise CorruptLog(found.message, hint=found.hint)
        return found

    def partition_if_open(self, topic: str, partition: int) -> Partition | None:
        """`partition`, as far as that needs no disk."""
        partitions = self._partitions.get(topic, ())
        found = partitions[partition] if 0 <= partition < len(partitions) else None
        return found if isinstance(found, Partition) else None

    def _opened(self, topic: str, partition: int) -> Partition | CorruptLog:
        with self._topics_lock:
            self._check_open()  # it may have been closed while this waited
            stored = self._directory.topics.get(topic)
            if stored is None:
                raise _unknown(topic)
            partitions = self._partitions[topic]
            found = partitions[partition]
            if found is None:
                found = partitions[partition] = self._open_partition(stored.topic, partition)
            return found

    def _all_partitions(self) -> Iterator[HousekeepingTarget]:
        """Those that housekeeping looks after; they are opened for it. The log's own compact themselves."""
        for name, topic in self.topics().items():
            for number in range(topic.partition_count if name not in RESERVED else 0):
                yield HousekeepingTarget(_name_of(name, number), partial(self._for_housekeeping, name, number))

    def _for_housekeeping(self, topic: str, partition: int) -> Partition | None:
        """None where it is gone, or damaged, which `problems` says anyway."""
        try:
            return self.partition(topic, partition)
        except (UnknownTopic, CorruptLog, LogClosed):
            return None

    def _expire_unused(self) -> None:
        self._coordinator.expire(self._expiry.transactional_ids_ms)
        self._groups.expire(self._expiry.offsets_ms)

    def keep_house(self) -> Kept:
        """Does at once what otherwise happens in the background: retention, compaction, forgetting old producers."""
        self._check_open()
        return self._housekeeper.round()

    def problems(self) -> list[str]:
        """What is wrong in the data directory, as far as it is known: damage, and housekeeping that failed."""
        found = [problem.message for problem in self._housekeeper.problems.values()]
        for partitions in list(self._partitions.values()):
            for partition in partitions:
                if isinstance(partition, CorruptLog):
                    found.append(partition.message)
                elif partition is not None:
                    found += [f"{partition.name} lacks {lost}" for lost in partition.damage]
        return found

    def usable_partitions(self) -> Iterator[Partition]:
        """Those that were opened: nothing is to be done to the others."""
        for partitions in list(self._partitions.values()):
            for partition in partitions:
                if isinstance(partition, Partition) and partition.usable:
                    yield partition

    # Records

    def append(self, topic: str, partition: int, records: RowRecords | ColumnarRecords) -> int:
        return self._append(self.writable(topic, partition), encode(records))

    def append_batches(self, topic: str, partition: int, batches: bytes | memoryview) -> int:
        """Appends whole Kafka record batches as they are, for producers that speak Kafka's protocol.

        Returns the first offset once they are durable; for a batch that is there already, the offset it has.
        Raises `InvalidRecords`, `OutOfOrderSequence`, `ProducerFenced`.
        """
        target = self.writable(topic, partition)
        first_offsets = [self._append(target, [batch]) for batch in checked_batches(memoryview(batches))]
        return first_offsets[0] if first_offsets else target.offsets().log_end_offset

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int = 16 * 1024 * 1024,
        isolation: Isolation = "read_committed",
    ) -> Fetched:
        """Raises `CorruptLog`, which names the partition and the offset, where the records there are lost."""
        source = self.partition(topic, partition)
        view = source.view(offset, max_bytes, isolation)
        try:
            return read(view, offset, max_bytes)
        except CorruptLog as error:
            raise source.unreadable(offset, error) from error

    def offsets(self, topic: str, partition: int) -> Offsets:
        return self.partition(topic, partition).offsets()

    def wait(self, positions: Mapping[TopicPartition, int], timeout_s: float) -> bool:
        """As the contract says; records of an aborted transaction may also end the wait."""
        deadline = time.monotonic() + timeout_s
        with self._advanced:
            self._waiting += 1
        try:
            while True:
                seen = self._advances
                if self._any_behind(positions):  # takes partitions' locks, so not under `_advanced`: see `_wake`
                    return True
                with self._advanced:
                    left_s = deadline - time.monotonic()
                    if left_s <= 0:
                        return False
                    if self._advances == seen:
                        self._advanced.wait(left_s)
        finally:
            with self._advanced:
                self._waiting -= 1

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Calls `listener`, on any thread and with locks held, whenever a partition advanced. Returns what ends it."""
        with self._advanced:
            self._listeners = (*self._listeners, listener)

        def stop() -> None:
            with self._advanced:
                self._listeners = tuple(other for other in self._listeners if other is not listener)

        return stop

    def _append(self, partition: Partition, batches: list[EncodedBatch]) -> int:
        if not batches:
            return partition.offsets().log_end_offset
        appended = partition.append(batches)
        partition.sync(appended.mark)
        return appended.first_offset

    def writable(self, topic: str, partition: int) -> Partition:
        """A partition that others than the log itself may write to. Raises `InvalidTopic`, `UnknownTopic`."""
        if topic in RESERVED:
            raise InvalidTopic(f'topic "{topic}" belongs to the log: nobody else writes to it')
        return self.partition(topic, partition)

    def _any_behind(self, positions: Mapping[TopicPartition, int]) -> bool:
        return any(
            self.partition(topic, partition).last_stable_offset > position
            for (topic, partition), position in positions.items()
        )

    def _wake(self) -> None:
        # Who waits counts itself before it looks at the partitions, and we changed them before we look at the count:
        # so nobody who needs it sleeps on.
        if self._waiting:
            with self._advanced:
                self._advances += 1
                self._advanced.notify_all()
        for listener in self._listeners:
            listener()

    # Groups and transactions

    def committed_offsets(self, group: str) -> Mapping[TopicPartition, int]:
        self._check_open()
        return self._group_offsets.committed(group)

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        self._check_open()
        self._group_offsets.commit(group, offsets, self._now_ms())

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """Of the first visible record with this time or a later one; None where there is none."""
        where = self.partition(topic, partition)
        found = first_at_or_after(where, timestamp_ms)
        return found.offset if found is not None and found.offset < where.last_stable_offset else None

    @property
    def groups(self) -> GroupCoordinator:
        """The consumer groups of this log, whoever their members are."""
        return self._groups

    def transactional_producer(self, transactional_id: str, timeout_ms: int = 0) -> LocalTransactionalProducer:
        """`timeout_ms`: for how long a transaction may be open, as administrators are told; the caller ends it then."""
        self._check_open()
        identity = self._coordinator.new_producer(transactional_id, timeout_ms)
        producer = LocalTransactionalProducer(self._coordinator, self, identity)
        self._coordinator.hold(transactional_id, producer)
        return producer

    def forget_producer(self, transactional_id: str) -> None:
        self._check_open()
        self._coordinator.forget(transactional_id)

    def forget_group(self, group: str) -> None:
        self._check_open()
        check_forgotten(group, self._groups.delete(group))

    def resumed_producer(
        self, transactional_id: str, producer_id: int, epoch: int
    ) -> LocalTransactionalProducer | None:
        """One that was there before the log was closed, or died, and has not noticed; None where it must not go on. It
        has another epoch where it has ended its last transaction, and did not hear of it."""
        self._check_open()
        identity = self._coordinator.goes_on_as(Identity(transactional_id, producer_id, epoch))
        if not self._coordinator.may_go_on(identity):
            return None
        producer = LocalTransactionalProducer(self._coordinator, self, identity)
        self._coordinator.hold(transactional_id, producer)
        return producer

    def end_hanging(self, where: TopicPartition, producer_id: int, epoch: int, *, commit: bool) -> None:
        """Ends what the producer has open in this partition, whatever is known of its transaction; durable on return.
        Raises `ProducerFenced` for an epoch that is over."""
        partition = self.writable(*where)
        opened = next((found for found in partition.open_transactions() if found.producer_id == producer_id), None)
        first_offset, now_ms = -1 if opened is None else opened.first_offset, self._now_ms()
        partition.end_transaction(producer_id, epoch, first_offset, committed=commit, timestamp_ms=now_ms)
        partition.sync_all()

    def new_producer_id(self) -> int:
        """For a producer without transactions, whose retried batches are stored once."""
        self._check_open()
        return self._coordinator.new_producer_id()

    def unsettled_offsets(self, group: str) -> frozenset[TopicPartition]:
        """Those that an open transaction is going to commit for this group."""
        return self._coordinator.unsettled_offsets(group)

    def transactions(self) -> list[TransactionDescription]:
        """What is known of each transactional id."""
        return self._coordinator.transactions()

    @property
    def secret(self) -> str:
        """Who knows it may write to Millstream's own topics over the network. Raises `LogError`."""
        return secret_of(self._directory.path)

    @property
    def path(self) -> Path:
        return self._directory.path

    @property
    def expiry(self) -> ExpiryTimes:
        return self._expiry

    @property
    def id(self) -> str:
        """Tells this log from every other one."""
        return self._directory.node_id

    # What its owner does with it

    @property
    def served(self) -> Log:
        return self

    def serving(self, advertised: tuple[str, int] | None = None) -> Serving:
        transactions = LocalTransactions(self)
        layout = OneNode(self, lambda local: advertised or local)
        return Serving(self, layout, transactions, partial(answer_produce, transactions))

    def expire_offsets_of(self, expires: Callable[[str], bool]) -> None:
        self._groups.expires = expires

    # Life

    def close(self) -> None:
        """Makes everything durable and lets another process open the directory. Twice is fine.

        Raises `LogWriteFailed` where the disk refused; what was acknowledged is safe all the same.
        """
        self._housekeeper.stop()  # before the lock is taken: their threads may be about to open a partition
        self._groups.close()
        fp("log.close")
        self._coordinator.refuse()  # before the lock, too: a commit under way may open a partition
        with self._topics_lock:
            if self._closed:
                return
            self._closed = True
            try:
                failure = self._close_partitions()
                if self._durable and failure is None and self._all_durable():
                    self._directory.mark_closed()
            finally:
                self._directory.close()
        self._wake()
        if failure is not None:
            raise failure

    def _close_partitions(self) -> LogError | None:
        """What the first one that failed has raised."""
        failure: LogError | None = None
        self._coordinator.close()
        fp("log.closed_noted")
        for partition in self.usable_partitions():
            try:
                partition.close()
            except LogError as error:
                failure = failure or error
        return failure

    def _all_durable(self) -> bool:
        return all(
            partition.usable
            for partitions in self._partitions.values()
            for partition in partitions
            if isinstance(partition, Partition)
        )

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise LogClosed("the log is closed")

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)


def open_log(
    path: str | os.PathLike[str],
    *,
    clock: Callable[[], float] = time.time,
    sync: Literal["always", "never"] = "always",
    expiry: ExpiryTimes = DEFAULT,
) -> Log:
    """The log in this directory, which is created where there is none.

    With `sync="never"` an append does not wait for the disk: records survive the end of the process, but not that of
    the machine. Raises `LogLocked` where it is open already.
    """
    return Log(Path(path), clock=clock, durable=sync == "always", expiry=expiry)


def _name_of(topic: str, partition: int) -> str:
    return f'partition {partition} of topic "{topic}"'


def _unknown(topic: str) -> UnknownTopic:
    return UnknownTopic(f'topic "{topic}" does not exist')
