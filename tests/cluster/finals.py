"""What is there once all is well: a reader that begins at the start of each partition and reads to its end."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from . import events
from .events import Recorder
from .observed import Place, Seen
from .recording import PARTITIONS, TOPICS, place

_PER_REQUEST_S: Final = 10.0
_SETTINGS: Final = {"socket.timeout.ms": 8_000, "reconnect.backoff.max.ms": 500, "log_level": 2}


class NotWell(AssertionError):
    """The cluster does not serve though all faults are healed."""


class Inspector:
    """Looks from outside, once the faults are healed. Each method raises `NotWell` after `within_s`."""

    def __init__(self, brokers: str, within_s: float) -> None:
        self._brokers = brokers
        self._within_s = within_s
        self._admin = AdminClient({"bootstrap.servers": brokers, **_SETTINGS})

    def create_topics(self, replication: int) -> None:
        """Asks until all are there."""

        def created() -> bool:
            new = [NewTopic(topic, PARTITIONS, replication) for topic in TOPICS]
            for future in self._admin.create_topics(new, request_timeout=_PER_REQUEST_S).values():
                try:
                    future.result(_PER_REQUEST_S + 5.0)
                except KafkaException as error:
                    if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                        raise
            return True

        self._until(created, "the topics cannot be created")

    def no_transaction_is_open(self) -> None:
        """Everything that was written is decided: committed readers get as far as others."""

        def decided() -> bool:
            return self._ends(TOPICS, "read_committed") == self._ends(TOPICS, "read_uncommitted")

        self._until(decided, "transactions stay open")

    def groups_are_done(
        self,
        groups: Sequence[str],
        records: Mapping[Place, Sequence[Seen]],
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        """Each group has committed what is behind the last record of each place. `meanwhile` is called now and then."""
        wanted = {where: seen[-1].offset + 1 for where, seen in records.items() if seen}
        for group in groups:

            def done(group: str = group) -> bool:
                meanwhile()
                stored = self._group_offsets(group)
                return all(stored.get(where, 0) >= offset for where, offset in wanted.items())

            self._until(done, f"group {group} does not get to {wanted}")

    def read_all(self, reader: str, recorder: Recorder, topics: Sequence[str] = TOPICS) -> dict[Place, list[Seen]]:
        """All committed records of topics that nobody writes any more. They are noted."""
        ends = self._until_given(lambda: self._ends(topics, "read_committed"), "there are no offsets")
        records = self._read(ends)
        for where, end in ends.items():
            recorder.note(events.FINAL, reader=reader, place=where, end=end, records=records[where])
        return records

    def leaders(self) -> dict[Place, int]:
        topics = self._admin.list_topics(timeout=_PER_REQUEST_S).topics
        return {place(name, n): p.leader for name in TOPICS for n, p in topics[name].partitions.items()}

    def _read(self, ends: Mapping[Place, int]) -> dict[Place, list[Seen]]:
        settings = {"group.id": "finals", "enable.auto.commit": False, "isolation.level": "read_committed"}
        consumer = Consumer(
            {"bootstrap.servers": self._brokers, **_SETTINGS, **settings, "enable.partition.eof": True}
        )  # fmt: skip
        records: dict[Place, list[Seen]] = defaultdict(list)
        consumer.assign([_partition(where) for where in ends])
        left = set(ends)
        until = time.monotonic() + self._within_s
        while left:
            for message in consumer.consume(2_000, 0.5):
                _take(message, records, left, ends)
            if time.monotonic() > until:
                raise NotWell(f"{sorted(left)} cannot be read to the end: {ends}")
        consumer.close()
        return records

    def _ends(self, topics: Sequence[str], level: str) -> dict[Place, int]:
        settings = {"group.id": "ends", "isolation.level": level}
        consumer = Consumer({"bootstrap.servers": self._brokers, **_SETTINGS, **settings})
        try:
            return {
                place(topic, number): consumer.get_watermark_offsets(
                    TopicPartition(topic, number), _PER_REQUEST_S, cached=False
                )[1]
                for topic in topics
                for number in range(PARTITIONS)
            }
        finally:
            consumer.close()

    def _group_offsets(self, group: str) -> dict[Place, int]:
        futures: Any = self._admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group)], request_timeout=_PER_REQUEST_S
        )
        (future,) = futures.values()
        return {place(at.topic, at.partition): at.offset for at in future.result(_PER_REQUEST_S).topic_partitions}

    def _until(self, well: Any, otherwise: str) -> None:
        self._until_given(lambda: well() or None, otherwise)

    def _until_given(self, given: Any, otherwise: str) -> Any:
        until, last = time.monotonic() + self._within_s, None
        while True:
            try:
                if (answer := given()) is not None:
                    return answer
            except (KafkaException, TimeoutError) as error:
                last = error
            if time.monotonic() > until:
                raise NotWell(f"{otherwise} within {self._within_s:.0f} s; last error: {last}")
            time.sleep(0.3)


def _take(message: Any, records: dict[Place, list[Seen]], left: set[Place], ends: Mapping[Place, int]) -> None:
    error = message.error()
    where = place(message.topic(), message.partition())
    if error is None:
        key, value = message.key() or b"", message.value() or b""
        records[where].append(Seen(message.offset(), value.decode(), key.decode()))
    elif error.name() == "_PARTITION_EOF" and message.offset() >= ends[where]:
        left.discard(where)


def _partition(where: Place) -> TopicPartition:
    topic, _, number = where.rpartition("/")
    return TopicPartition(topic, int(number), 0)
