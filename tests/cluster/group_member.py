"""A member of a consumer group: reads what is committed, notes it, and then commits the group's offsets."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from . import events
from .recording import GROUP_SESSION_MS, TOPICS, Work, place

_POLL_S: Final = 0.3
_RECORDS_MAX: Final = 500
_OFFSETS_WITHIN_S: Final = 30.0


class NotingConsumer:
    """State: what it has been assigned, and the position in each partition: of the next record it will ask for."""

    def __init__(self, work: Work, topics: Sequence[str]) -> None:
        self._work = work
        self.name = work.part()
        self.positions: dict[tuple[str, int], int] = {}
        classic = {"session_timeout_ms": GROUP_SESSION_MS, "heartbeat_interval_ms": 1_000}
        self.consumer = Consumer(
            work.settings(
                group_id=work.group,
                group_protocol=work.protocol,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                isolation_level="read_committed",
                fetch_error_backoff_ms=100,
                **(classic if work.protocol == "classic" else {}),
            )
        )
        self.consumer.subscribe(list(topics), on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)

    def poll(self) -> Sequence[Message]:
        """The next records, which are noted. Raises KafkaException where the library gives up."""
        records = []
        for message in self.consumer.consume(_RECORDS_MAX, _POLL_S):
            error = message.error()
            if error is None:
                records.append(message)
            elif error.fatal() or error.code() == KafkaError._MAX_POLL_EXCEEDED:
                raise KafkaException(error)
            else:
                self._work.say(KafkaException(error))
        self._note(records)
        return records

    def restart(self) -> None:
        """Reads all it has from the committed offsets again."""
        partitions = [TopicPartition(*key) for key in self.positions]
        if partitions:
            for partition in self._starts(partitions):
                self.consumer.seek(partition)

    def close(self) -> None:
        self.consumer.close()

    def offsets(self) -> list[TopicPartition]:
        return [TopicPartition(topic, number, at) for (topic, number), at in self.positions.items()]

    def _note(self, records: Sequence[Message]) -> None:
        read: dict[str, list[tuple[int, str, str]]] = defaultdict(list)
        for message in records:
            key, value = message.key() or b"", message.value() or b""
            topic, number, offset = _where(message)
            read[place(topic, number)].append((offset, value.decode(), key.decode()))
            self.positions[topic, number] = offset + 1
        if read:
            self._work.recorder.note(events.POLLED, consumer=self.name, records=read)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        starts = self._starts(partitions)
        if self._work.protocol == "consumer":
            consumer.incremental_assign(starts)
        else:
            consumer.assign(starts)

    def _starts(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Where the group's offsets say, noted."""
        asked_at = time.monotonic()
        starts = [TopicPartition(each.topic, each.partition, max(0, each.offset)) for each in self._stored(partitions)]
        self.positions.update({(each.topic, each.partition): each.offset for each in starts})
        self._work.recorder.note(
            events.STARTED,
            consumer=self.name,
            group=self._work.group,
            asked_at=asked_at,
            starts={place(each.topic, each.partition): each.offset for each in starts},
        )
        return starts

    def _stored(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        until = time.monotonic() + _OFFSETS_WITHIN_S
        while True:
            try:
                stored = self.consumer.committed(partitions, timeout=60)
                for each in stored:
                    if each.error is not None:
                        raise KafkaException(each.error)
            except KafkaException as error:
                self._work.say(error)
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)
            else:
                return stored

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        gone = [place(each.topic, each.partition) for each in partitions]
        self._work.recorder.note(events.REVOKED, consumer=self.name, places=gone)
        for each in partitions:
            self.positions.pop((each.topic, each.partition), None)
        if self._work.protocol == "consumer":
            consumer.incremental_unassign(partitions)


def _where(message: Any) -> tuple[str, int, int]:
    return message.topic(), message.partition(), message.offset()


def read_in_group(work: Work) -> None:
    while not work.ending.is_set():
        consumer = NotingConsumer(work, TOPICS)
        try:
            while not work.ending.is_set():
                if consumer.poll():
                    _commit(work, consumer)
        except KafkaException as error:
            work.say(error)
        consumer.close()


def _commit(work: Work, consumer: NotingConsumer) -> None:
    """A commit that fails may have happened; the next one says more."""
    positions = consumer.offsets()
    commit = work.unique()
    offsets = {place(each.topic, each.partition): each.offset for each in positions}
    work.recorder.note(events.STORING, commit=commit, group=work.group, transaction=None, offsets=offsets)
    try:
        for each in consumer.consumer.commit(offsets=positions, asynchronous=False) or ():
            if each.error is not None:
                raise KafkaException(each.error)
    except KafkaException as error:
        work.say(error)
    else:
        work.recorder.note(events.STORED, commit=commit)
