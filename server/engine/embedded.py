"""An engine with its own log, in this process: used by the server, the shell without a server, and notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeVar

from ...executor.answers.push_query import PushQuery
from ...executor.connect.secret_vault import SecretVault
from ...logcore.client import LogClient
from ...logcore.log import open_log
from ...sql.settings.property_table import PULL_FULL_SQL, PYTHON_FUNCTIONS
from ..config.properties import checked_properties
from ..config.server_settings import ServerSettings
from .engine import Engine
from .executors import RoutingExecutor

_Engine = TypeVar("_Engine", bound=Engine)


class EmbeddedEngine(Engine):
    """An engine that also closes its log."""

    def close(self) -> None:
        super().close()
        self.log.close()


def open_engine(
    data_directory: Path, properties: Mapping[str, object] | None = None, *, sync: Literal["always", "never"] = "always"
) -> EmbeddedEngine:
    """Opens the log below `data_directory`, starts its stored queries, and returns the engine.

    Raises `LogLocked` if another process uses the directory, `InvalidProperty` for a bad configuration.
    """
    return embedded_on(open_log(data_directory / "log", sync=sync), data_directory, properties or {})


def embedded_on(
    log: LogClient, data_directory: Path, properties: Mapping[str, object], kafka_address: str | None = None
) -> EmbeddedEngine:
    """Like `open_engine`, on an open log, which the engine closes."""
    try:
        # The user owns this process anyway, and no program here relies on ksqlDB's refusals.
        checked = {PYTHON_FUNCTIONS.name: "true", PULL_FULL_SQL.name: "true", **checked_properties(properties)}
        alone = not log.capabilities.shared
        return _engine_on(EmbeddedEngine, log, data_directory, checked, kafka_address, alone=alone)
    except BaseException:
        log.close()
        raise


def engine_on(
    log: LogClient,
    data_directory: Path,
    properties: Mapping[str, object],
    kafka_address: str | None = None,
    *,
    paused: bool = False,
    alone: bool = False,
) -> Engine:
    """An engine on an open log. The caller closes the log: after the engine, and after the listeners that serve the
    log. Queries keep their state below `data_directory`.

    In: `kafka_address`: HOST:PORT where other processes reach this log. `paused`: no query runs before a RESUME.
    `alone`: no other server will ever run queries of this log, so a key for secrets may be created here.
    """
    return _engine_on(Engine, log, data_directory, properties, kafka_address, paused=paused, alone=alone)


def _engine_on(
    kind: type[_Engine],
    log: LogClient,
    data_directory: Path,
    properties: Mapping[str, object],
    kafka_address: str | None,
    *,
    paused: bool = False,
    alone: bool,
) -> _Engine:
    key_file = ServerSettings.of(checked_properties(properties)).secrets_key_file
    vault = SecretVault(key_file or data_directory / "connect.key", creates=alone)
    executor = RoutingExecutor(log, data_directory / "state", checked_properties(properties), kafka_address)
    return kind(
        log,
        executor,
        lambda planned, settings: PushQuery(planned.plan, log, settings),
        properties,
        paused=paused,
        vault=vault,
    )
