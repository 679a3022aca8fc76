"""One Apache Kafka for all tests here, where it can be had; and servers whose log it is."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from of_folder import of_folder
from running_server import service_in

from bench.apache_kafka import ApacheKafka, Unavailable
from millstream.server.service import Service

_SETTINGS: Final = {
    "log.cleaner.backoff.ms": "100",
    "auto.create.topics.enable": "false",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}
_numbers = itertools.count()

_LOGIN_MODULES: Final = {
    "plain": 'plain.PlainLoginModule required user_ana="sesame"',
    "scram-sha-256": "scram.ScramLoginModule required",
    "scram-sha-512": "scram.ScramLoginModule required",
    "oauthbearer": 'oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="kafka"',
}

Serving = Callable[..., Service]


class GuardedKafka(ApacheKafka):
    """Who comes to the second door has to log in, and may do what ACLs say; everybody at the first may do all."""

    def _settings(self, folder: Path) -> dict[str, str]:
        found = super()._settings(folder)
        modules = {
            f"listener.name.side.{mechanism}.sasl.jaas.config": f"org.apache.kafka.common.security.{module};"
            for mechanism, module in _LOGIN_MODULES.items()
        }
        return {
            **found,
            **modules,
            "advertised.listeners": ",".join(found["listeners"].split(",")[:2]),
            "listener.security.protocol.map": "MAIN:PLAINTEXT,SIDE:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "sasl.enabled.mechanisms": ",".join(name.upper() for name in _LOGIN_MODULES),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }

    @property
    def guarded_address(self) -> str:
        return f"127.0.0.1:{self.side_port}"


@pytest.fixture
def kafka(tmp_path_factory: pytest.TempPathFactory) -> GuardedKafka:
    pytest.importorskip("confluent_kafka")

    def start() -> GuardedKafka:
        try:
            return GuardedKafka(tmp_path_factory.mktemp("kafka"), settings=_SETTINGS)
        except Unavailable as reason:
            pytest.skip(f"Apache Kafka: {reason}")

    return of_folder(Path(__file__).parent, "kafka", start)


@pytest.fixture
def service_id() -> str:
    """No other test has it."""
    return f"test{next(_numbers)}"


@pytest.fixture
def serve(kafka: GuardedKafka, tmp_path: Path, service_id: str) -> Iterator[Serving]:
    """Starts a server on the brokers; called again, after the first one has ended, it starts the next one."""
    with ExitStack() as running:

        def start(folder: str = "data", external: Mapping[str, str] | None = None, **flags: object) -> Service:
            properties = {
                "ksql.service.id": service_id,
                "auto.offset.reset": "earliest",
                "ksql.streams.cache.max.bytes.buffering": "0",
            }
            service = service_in(
                tmp_path / folder,
                kafka="external",
                external=dict(external or {"bootstrap.servers": kafka.address}),
                properties=properties,
                **flags,
            )
            service.start()
            running.callback(service.stop)
            return service

        yield start
