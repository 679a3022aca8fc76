"""A read that fails gives its client nothing, so it skips nothing either."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.logcore.client import TopicPartition
from millstream.logcore.clients.consumer import Consumed, Consumer
from millstream.logcore.clients.producer import Producer
from millstream.logcore.errors import LogUnavailable
from millstream.server.engine.embedded import open_engine
from millstream.server.rest_proxy.consumer_instances import ConsumerInstance, ConsumerInstances, InstanceSettings
from millstream.server.rest_proxy.embedded_formats import EmbeddedFormat
from millstream.server.rest_proxy.proxied_log import ProxiedLog
from millstream.server.rest_proxy.proxy_errors import ProxyRefusal
from millstream.server.rest_proxy.proxy_settings import RestProxySettings
from millstream.server.rest_proxy.reading import InstanceReader
from millstream.server.security.rights import EVERYTHING

PARTITIONS = [TopicPartition("t", number) for number in range(2)]


@pytest.fixture
def proxied(tmp_path: Path) -> Iterator[ProxiedLog]:
    with open_engine(tmp_path, {"millstream.executor": "duckdb"}, sync="never") as engine:
        engine.log.create_topic("t", 2)
        yield ProxiedLog(engine)


def write(proxied: ProxiedLog, *values: bytes) -> None:
    """One in each partition, in order."""
    with Producer(proxied.log) as producer:
        for number, value in enumerate(values):
            producer.send("t", value, None, partition=number)


@pytest.fixture
def instances(proxied: ProxiedLog) -> Iterator[ConsumerInstances]:
    opened = ConsumerInstances(proxied.log, RestProxySettings())
    yield opened
    opened.close()


@pytest.fixture
def reader(proxied: ProxiedLog) -> InstanceReader:
    return InstanceReader(proxied, lambda _: None)  # JSON needs no schemas


def made(instances: ConsumerInstances, bytes_min: int = 1) -> ConsumerInstance:
    settings = InstanceSettings(EmbeddedFormat.JSON, reset="earliest", bytes_min=bytes_min, auto_commit=False)
    instance = instances.create("g", "a", EVERYTHING, settings)
    instance.assign(PARTITIONS)
    return instance


@pytest.mark.parametrize("values", [(b"no JSON", b"1"), (b"1", b"no JSON")])
def test_a_record_that_cannot_be_read_lets_none_of_another_partition_be_skipped(
    proxied: ProxiedLog, instances: ConsumerInstances, reader: InstanceReader, values: tuple[bytes, bytes]
) -> None:
    write(proxied, *values)
    instance = made(instances)
    found: list[object] = []
    for _ in range(4):
        try:
            found += [record["partition"] for record in reader.read(instance, 0, 10_000)]
        except ProxyRefusal:
            for where in PARTITIONS:
                if values[where.partition] == b"no JSON":
                    instance.consumer.seek(where, 1)
    assert found == [values.index(b"1")]


class FailingLater(Consumer):
    """A poll that goes on fails once."""

    failed = False

    def poll(self, timeout_s: float = 1.0, max_bytes: int | None = None, *, goes_on: bool = False) -> list[Consumed]:
        if goes_on and not self.failed:
            self.failed = True
            raise LogUnavailable("the leader does not answer")
        return super().poll(timeout_s, max_bytes, goes_on=goes_on)


def test_records_that_were_read_before_the_error_are_read_again(
    proxied: ProxiedLog, instances: ConsumerInstances, reader: InstanceReader
) -> None:
    write(proxied, b"1", b"2")
    instance = made(instances, bytes_min=10_000)
    instance.consumer = FailingLater(proxied.log, "g", commit_every_ms=None)
    instance.assign(PARTITIONS)
    with pytest.raises(LogUnavailable):
        reader.read(instance, 600, 100_000)
    assert sorted(record["partition"] for record in reader.read(instance, 600, 100_000)) == [0, 1]
