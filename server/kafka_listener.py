"""Creates the Kafka listener from the configuration: TLS, users, limits."""

from __future__ import annotations

from ..logcore.log import Log
from ..logcore.protocol.admission import ConnectionLimits
from ..logcore.protocol.kafka_service import Serving
from ..logcore.protocol.security.quotas import Quotas
from ..logcore.server import LogServer
from .config.configuration import Configuration
from .security.access import Authenticator
from .security.kafka_users import KafkaUsers


def kafka_listener(log: Log | Serving, configuration: Configuration, authenticator: Authenticator | None) -> LogServer:
    """The listener, not started. Raises `CannotUseTls`."""
    access, tls, listens = configuration.access, configuration.kafka_tls, configuration.kafka_listener
    assert listens is not None, "an external log has its own listeners"
    listener = LogServer(
        log,
        listens.host,
        listens.port,
        quotas=Quotas(configuration.kafka_produce_bytes, configuration.kafka_fetch_bytes),
        fetch_sessions=configuration.kafka_fetch_sessions,
        idle_ms=configuration.kafka_connections_max_idle_ms,
        limits=ConnectionLimits(configuration.kafka_connections_max, configuration.kafka_connections_per_address_max),
        creates_topics=configuration.kafka_auto_create_topics,
        users=None if access is None or authenticator is None else KafkaUsers(access, authenticator),
        tls=None if tls is None else tls.context(),
    )
    if authenticator is not None:
        authenticator.acls.follow(listener.log)
    return listener
