"""One Apache Kafka for all tests here, where it can be had; and servers whose log it is."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from running_server import service_in

from bench.apache_kafka import ApacheKafka, Unavailable
from millstream.server.service import Service

_SETTINGS: Final = {"log.cleaner.backoff.ms": "100", "auto.create.topics.enable": "false"}
_JAVA: Final = ("-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_numbers = itertools.count()

Serving = Callable[..., Service]


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    pytest.importorskip("confluent_kafka")
    try:
        running = ApacheKafka(tmp_path_factory.mktemp("kafka"), java_options=_JAVA, settings=_SETTINGS)
    except Unavailable as reason:
        pytest.skip(f"Apache Kafka: {reason}")
    with running:
        yield running


@pytest.fixture
def service_id() -> str:
    """No other test has it."""
    return f"test{next(_numbers)}"


@pytest.fixture
def serve(kafka: ApacheKafka, tmp_path: Path, service_id: str) -> Iterator[Serving]:
    """Starts a server on the brokers; called again, after the first one has ended, it starts the next one."""
    with ExitStack() as running:

        def start(folder: str = "data", **flags: object) -> Service:
            properties = {
                "ksql.service.id": service_id,
                "auto.offset.reset": "earliest",
                "ksql.streams.cache.max.bytes.buffering": "0",
            }
            service = service_in(
                tmp_path / folder,
                kafka="external",
                external={"bootstrap.servers": kafka.address},
                properties=properties,
                **flags,
            )
            service.start()
            running.callback(service.stop)
            return service

        yield start
