"""aiokafka: asyncio. Each call runs on one event loop, which lives in a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import for_code

from .driver import TIMEOUT_S, Got, Member, Record, Transaction

logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # a member that was abandoned complains for ever

name = "aiokafka"
compressions = ("none", "gzip", "snappy", "lz4", "zstd")

_Result = TypeVar("_Result")


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return loop


def _run(work: Coroutine[Any, Any, _Result]) -> _Result:
    return asyncio.run_coroutine_threadsafe(work, _loop()).result(2 * TIMEOUT_S)


def produce(
    address: str, topic: str, records: Sequence[Record], *, compression: str = "none", idempotent: bool = False
) -> None:
    async def work() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=address,
            compression_type=None if compression == "none" else compression,
            enable_idempotence=idempotent,
            acks="all",
            linger_ms=20,
            retry_backoff_ms=50,
        )
        await producer.start()
        try:
            await _send(producer, topic, records)
        finally:
            await producer.stop()

    _run(work())


async def _send(producer: Any, topic: str, records: Sequence[Record]) -> None:
    sent = [
        await producer.send(
            topic,
            value=record.value,
            key=record.key,
            headers=list(record.headers),
            partition=record.partition,
            timestamp_ms=record.timestamp_ms,
        )
        for record in records
    ]
    await asyncio.gather(*sent)


def _got(found: Any) -> Got:
    headers = tuple((key, bytes(value)) for key, value in found.headers)
    return Got(found.offset, Record(found.value, found.key, headers, found.timestamp, found.partition))


def read(address: str, topic: str, count: int, *, committed: bool = True) -> list[Got]:
    async def work() -> list[Got]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=address,
            isolation_level="read_committed" if committed else "read_uncommitted",
            check_crcs=True,
            enable_auto_commit=False,
        )
        partition = TopicPartition(topic, 0)
        await consumer.start()
        try:
            consumer.assign([partition])
            consumer.seek(partition, 0)
            found: list[Got] = []
            deadline = _loop().time() + TIMEOUT_S
            while len(found) < count and _loop().time() < deadline:
                batch = await consumer.getmany(partition, timeout_ms=500)
                found += [_got(record) for record in batch.get(partition, [])]
            batch = await consumer.getmany(partition, timeout_ms=300)
            return found + [_got(record) for record in batch.get(partition, [])]
        finally:
            await consumer.stop()

    return _run(work())


class _Member:
    def __init__(self, address: str, group: str, topic: str) -> None:
        async def start() -> Any:
            consumer = AIOKafkaConsumer(
                topic,
                bootstrap_servers=address,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                session_timeout_ms=6000,
                heartbeat_interval_ms=200,
                rebalance_timeout_ms=10_000,
            )
            await consumer.start()
            return consumer

        self._starting = asyncio.run_coroutine_threadsafe(start(), _loop())

    @property
    def _consumer(self) -> Any:
        return self._starting.result(TIMEOUT_S)

    def poll(self) -> list[Got]:
        if not self._starting.done():
            return []
        batches = _run(self._consumer.getmany(timeout_ms=100))
        return [_got(record) for records in batches.values() for record in records]

    def partitions(self) -> set[int]:
        if not self._starting.done():
            return set()
        return {partition.partition for partition in self._consumer.assignment()}

    def commit(self) -> None:
        _run(self._consumer.commit())

    def close(self) -> None:
        _run(self._consumer.stop())


def member(address: str, group: str, topic: str) -> Member:
    return _Member(address, group, topic)


class _Transaction:
    def __init__(self, producer: Any) -> None:
        self._producer = producer
        _run(producer.begin_transaction())

    def send(self, topic: str, records: Sequence[Record]) -> None:
        _run(_send(self._producer, topic, records))

    def commit(self) -> None:
        _run(self._producer.commit_transaction())

    def abort(self) -> None:
        _run(self._producer.abort_transaction())


@contextmanager
def transactions(address: str, transactional_id: str) -> Generator[Callable[[], Transaction]]:
    async def start() -> Any:
        producer = AIOKafkaProducer(bootstrap_servers=address, transactional_id=transactional_id)
        await producer.start()
        return producer

    producer = _run(start())
    try:
        yield lambda: _Transaction(producer)
    finally:
        _run(producer.stop())


async def _with_admin(address: str, work: Callable[[Any], Coroutine[Any, Any, _Result]]) -> _Result:
    admin = AIOKafkaAdminClient(bootstrap_servers=address)
    await admin.start()
    try:
        return await work(admin)
    finally:
        await admin.close()


def create_topic(address: str, topic: str, partitions: int, config: Mapping[str, str]) -> None:
    new = NewTopic(topic, partitions, 1, topic_configs=dict(config))
    _run(_with_admin(address, lambda admin: admin.create_topics([new])))


def partitions_of(address: str, topic: str) -> int | None:
    async def look(admin: Any) -> int | None:
        if topic not in await admin.list_topics():
            return None
        return len((await admin.describe_topics([topic]))[0]["partitions"])

    return _run(_with_admin(address, look))


def delete_topic(address: str, topic: str) -> None:
    async def delete(admin: Any) -> None:
        [(_, code)] = (await admin.delete_topics([topic])).topic_error_codes
        if code:
            raise for_code(code)

    _run(_with_admin(address, delete))
