"""What the suite runs against: our log, and a broker of Apache Kafka, to show that the suite tests Kafka and not us."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from bench.apache_kafka import ApacheKafka
from millstream.logcore.log import Log
from millstream.logcore.server import LogServer

from .relay import Relay


class Broker(Protocol):
    @property
    def address(self) -> str: ...

    @property
    def cluster_id(self) -> str: ...

    def relayed(self) -> AbstractContextManager[Relay]:
        """A wire that can be cut: who connects to the relay is told to come again there."""
        ...

    def keep_house(self) -> None:
        """Compacts, where the broker does not do so soon by itself."""
        ...


class MillstreamBroker:
    def __init__(self, log: Log, server: LogServer) -> None:
        self._log = log
        self.address = server.address
        self.cluster_id = log.served.id

    @contextmanager
    def relayed(self) -> Generator[Relay]:
        relay = Relay()
        with LogServer(self._log, port=0, advertised=("127.0.0.1", relay.port)) as server:
            relay.start(server.port)
            try:
                yield relay
            finally:
                relay.cut()

    def keep_house(self) -> None:
        self._log.keep_house()


class KafkaBroker:
    def __init__(self, kafka: ApacheKafka) -> None:
        self._kafka = kafka
        self.address = kafka.address
        self.cluster_id = kafka.cluster_id

    @contextmanager
    def relayed(self) -> Generator[Relay]:
        relay = Relay(self._kafka.side_advertised)
        relay.start(self._kafka.side_port)
        try:
            yield relay
        finally:
            relay.cut()

    def keep_house(self) -> None:
        """Its cleaner looks every tenth of a second."""
