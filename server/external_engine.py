"""The engine of a server that keeps its log on external Kafka brokers.

One transactional id, prefixed by the service id, is the lease (`cluster/engine_log.py`). A second server with the same
service id acquires the lease. From then on the brokers refuse the first server's writes, and it exits. The brokers have
no list of servers, so only the lease decides.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

import structlog

from ..logcore.external.external_log import ExternalLog, ExternalLogSettings
from .cluster.engine_log import EngineLog
from .config.configuration import Configuration
from .config.server_settings import ServerSettings
from .engine.embedded import EmbeddedEngine, embedded_on, engine_on
from .engine.engine import Engine

_log = structlog.get_logger("millstream.server")


def engine_on_brokers(
    settings: ExternalLogSettings,
    configuration: Configuration,
    properties: dict[str, str],
    parts: contextlib.ExitStack,
    panicked: Callable[[str], None],
) -> tuple[Engine, Callable[[], None]]:
    """A running engine, and a function to call before it ends, which makes statements stop waiting for the brokers.
    `parts` closes the engine and its connections. In: `panicked`: called with the reason when another server has
    acquired the lease. Raises `LogError`."""
    external = ExternalLog(settings)
    parts.callback(external.close)
    ending = _Ending(settings.names.service_id, panicked)
    parts.callback(ending.expected)
    log = EngineLog(external, ending.lost, outlasts=True)
    _log.info("log is external", brokers=", ".join(map(str, settings.properties.addresses())),
              prefix=settings.names.prefix, columnar=external.capabilities.columnar)  # fmt: skip
    engine = engine_on(log, configuration.data, properties, external.bootstrap, paused=configuration.paused)
    parts.callback(engine.close)

    def give_up() -> None:
        ending.expected()
        log.give_up()

    return engine, give_up


def open_engine_on_brokers(
    external: Mapping[str, str], data_directory: Path, properties: Mapping[str, str]
) -> EmbeddedEngine:
    """An engine inside a program's process. In: `external`: as [external] of the configuration. Raises
    `InvalidKafkaProperty`, `LogError`. If another engine acquires the lease later, each call raises
    `ProducerFenced`."""
    settings = ExternalLogSettings.of(external, ServerSettings.of(properties).service_id)
    log = ExternalLog(settings)
    try:
        leased = EngineLog(log, lambda: None, outlasts=True)
    except BaseException:
        log.close()
        raise
    return embedded_on(leased, data_directory, properties, settings.address)


def cluster_id(settings: ExternalLogSettings) -> str:
    """The log's id in the answer of /info: the same for all servers of these brokers."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, ",".join(map(str, settings.properties.addresses()))))


class _Ending:
    """State: whether the server is already ending; then the loss of the lease is not reported."""

    def __init__(self, service_id: str, panicked: Callable[[str], None]) -> None:
        self._service_id, self._panicked = service_id, panicked
        self._expected = False

    def expected(self) -> None:
        self._expected = True

    def lost(self) -> None:
        if not self._expected:
            self._panicked(
                f'another server with ksql.service.id "{self._service_id}" has taken over its queries: see the log '
                "lines above. Run one server per ksql.service.id"
            )
