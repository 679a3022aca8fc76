"""A read that polls several times, because it waits for more bytes, commits nothing that its client has not got."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.logcore.client import TopicPartition
from millstream.logcore.clients.consumer import Consumer
from millstream.logcore.clients.producer import Producer
from millstream.server.engine.embedded import open_engine
from millstream.server.rest_proxy.consumer_instances import ConsumerInstances, InstanceSettings
from millstream.server.rest_proxy.embedded_formats import EmbeddedFormat
from millstream.server.rest_proxy.proxied_log import ProxiedLog
from millstream.server.rest_proxy.proxy_settings import RestProxySettings
from millstream.server.rest_proxy.reading import InstanceReader
from millstream.server.security.rights import EVERYTHING

AT = TopicPartition("t", 0)


@pytest.fixture
def proxied(tmp_path: Path) -> Iterator[ProxiedLog]:
    with open_engine(tmp_path, {"millstream.executor": "duckdb"}, sync="never") as engine:
        engine.log.create_topic("t", 1)
        with Producer(engine.log) as producer:
            for number in range(2):
                producer.send("t", str(number).encode(), None)
        yield ProxiedLog(engine)


def committed(proxied: ProxiedLog) -> int | None:
    found = proxied.log.groups.committed("g").get(AT)
    return None if found is None else found.offset


def test_a_read_commits_what_earlier_reads_gave_and_no_more(proxied: ProxiedLog) -> None:
    instances = ConsumerInstances(proxied.log, RestProxySettings())
    settings = InstanceSettings(EmbeddedFormat.JSON, reset="earliest", bytes_min=10_000)
    instance = instances.create("g", "a", EVERYTHING, settings)
    instance.consumer = Consumer(proxied.log, "g", reset="earliest", commit_every_ms=0)  # a commit is always due
    instance.assign([AT])
    reader = InstanceReader(proxied, lambda _: None)  # JSON needs no schemas
    records = reader.read(instance, 600, 100_000)
    assert [record["offset"] for record in records] == [0, 1]
    assert committed(proxied) in (None, 0)
    instance.go_back({AT: 0})  # the client went away
    assert len(reader.read(instance, 600, 100_000)) == 2
    assert committed(proxied) in (None, 0)
    assert reader.read(instance, 0, 100_000) == []  # the next read says that the records have come
    assert committed(proxied) == 2
    instances.close()


def test_the_end_commits_what_the_last_poll_gave(proxied: ProxiedLog) -> None:
    consumer = Consumer(proxied.log, "g", reset="earliest", commit_every_ms=0)
    consumer.assign([AT])
    assert consumer.poll(1.0)
    consumer.poll(0.0, goes_on=True)
    assert committed(proxied) in (None, 0)
    consumer.close()
    assert committed(proxied) == 2
