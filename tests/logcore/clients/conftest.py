"""Brokers for the suite: a log of ours for each test, and one Apache Kafka for all of them, where it can be had."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from of_folder import of_folder

from bench.apache_kafka import ApacheKafka, Unavailable
from millstream.logcore.log import Log, open_log
from millstream.logcore.server import LogServer

from ..cluster.nodes import Cluster
from .asking import Asking
from .brokers import Broker, KafkaBroker, MillstreamBroker
from .outside import create_topic, unique

HERE = Path(__file__).parent
_KAFKA_SETTINGS = {
    "log.cleaner.backoff.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "200",
}


@pytest.fixture
def kafka(tmp_path_factory: pytest.TempPathFactory) -> ApacheKafka:
    def start() -> ApacheKafka:
        try:
            return ApacheKafka(tmp_path_factory.mktemp("kafka"), settings=_KAFKA_SETTINGS)
        except Unavailable as reason:
            pytest.skip(f"Apache Kafka: {reason}")

    return of_folder(HERE, "kafka", start)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "log") as opened:
        yield opened


@pytest.fixture
def millstream(log: Log) -> Iterator[MillstreamBroker]:
    with LogServer(log, port=0, creates_topics=True) as running:
        yield MillstreamBroker(log, running)


_KAFKA = pytest.param("kafka", marks=pytest.mark.soak)
"""Apache Kafka shows that the tests are right: once, for what it answers does not change with Millstream."""


@pytest.fixture(params=["millstream", _KAFKA])
def broker(request: pytest.FixtureRequest) -> Broker:
    if request.param == "kafka":
        return KafkaBroker(request.getfixturevalue("kafka"))
    return request.getfixturevalue("millstream")


@pytest.fixture
def address(broker: Broker) -> str:
    return broker.address


@pytest.fixture
def topic(address: str) -> str:
    """One with two partitions."""
    return create_topic(address, unique("t"), 2)


@pytest.fixture
def group() -> str:
    return unique("g")


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """One of ours, with one node: what needs several is tested in `tests/logcore/cluster`."""
    return of_folder(HERE, "cluster", lambda: Cluster(tmp_path_factory.mktemp("cluster"), 1))


@pytest.fixture(params=["one node", "cluster", _KAFKA])
def asking(request: pytest.FixtureRequest) -> Iterator[Asking]:
    """Requests by hand, of all three who serve."""
    match request.param:
        case "kafka":
            opened = Asking(request.getfixturevalue("kafka").address, 1)
        case "cluster":
            opened = Asking(request.getfixturevalue("cluster").bootstrap, 1)
        case _:
            opened = Asking(request.getfixturevalue("millstream").address, 1)
    yield opened
    opened.close()
