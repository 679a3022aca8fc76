"""The engine of a server whose log is on somebody else's brokers.

One transactional id, prefixed by the service id, is the lease (`cluster/engine_log.py`): a second server with the same
service id takes it, and the first one, whose writes are refused from then on, ends. Nothing on the brokers tells the
engine who else is there, so nothing but the lease decides.
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
    """An engine that runs, and what is called before it ends: a statement that waits for the brokers then waits no
    more. `parts` ends it and its connections. In: `panicked`: called with the reason when another server has taken the
    lease. Raises `LogError`."""
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
    """An engine for a program, in its process. In: `external`: as [external] of the configuration. Raises
    `InvalidKafkaProperty`, `LogError`; where another engine takes the lease later, each call `ProducerFenced`."""
    settings = ExternalLogSettings.of(external, ServerSettings.of(properties).service_id)
    log = ExternalLog(settings)
    try:
        leased = EngineLog(log, lambda: None, outlasts=True)
    except BaseException:
        log.close()
        raise
    return embedded_on(leased, data_directory, properties, settings.address)


def cluster_id(settings: ExternalLogSettings) -> str:
    """What /info calls the log: the same for all servers of these brokers."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, ",".join(map(str, settings.properties.addresses()))))


class _Ending:
    """State: whether the server ends anyway; then a lease that is lost is no news."""

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
