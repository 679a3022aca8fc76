"""The settings that a server reads from its properties, once at its start; no session can change them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ...sql.settings.property_table import (
    ADVERTISED_LISTENER,
    ASSERT_SCHEMA_MS,
    ASSERT_TOPIC_MS,
    COMMAND_TIMEOUT_MS,
    DENYLIST,
    PERSISTENT_QUERIES,
    PROCESSING_LOG_STREAM,
    PULL_CONCURRENT,
    PULL_MEGABYTES,
    PULL_RATE,
    PUSH_QUERIES,
    PUSH_ROWS,
    PUSH_SECONDS,
    PYTHON_FUNCTIONS,
    SECRETS_KEY,
    SERVICE_ID,
)
from ..connect.connect_client import ConnectClusterSettings
from .denied_properties import denied_properties


@dataclass(frozen=True, slots=True)
class PullGateSettings:
    """Limits of pull queries: started per second, running at once, and bytes of answers per hour."""

    per_second: int
    concurrent: int
    bytes_per_hour: int

    @staticmethod
    def of(properties: Mapping[str, str]) -> PullGateSettings:
        """Raises `InvalidProperty`."""
        return PullGateSettings(
            PULL_RATE.of(properties), PULL_CONCURRENT.of(properties), PULL_MEGABYTES.of(properties) * 1_000_000
        )


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """`advertised_listener`: the URL under which others reach the server, empty if it is not configured.
    `python_functions`: whether users may create functions in Python. `denied`: properties that no session may set.
    `processing_log_stream`: whether to create it. `push_rows_max`, `push_seconds_max`: limits of one push query; None:
    no limit. `assert_topic_ms`, `assert_schema_ms`: how long those statements wait without a TIMEOUT.
    `secrets_key_file`: None: the one in the data folder. `connect_cluster`: None: connectors run here."""

    service_id: str
    advertised_listener: str
    command_timeout_ms: int
    python_functions: bool
    denied: frozenset[str]
    processing_log_stream: bool
    persistent_queries_max: int
    push_queries_max: int
    push_rows_max: int | None
    push_seconds_max: float | None
    pull_gate: PullGateSettings
    assert_topic_ms: int
    assert_schema_ms: int
    secrets_key_file: Path | None = None
    connect_cluster: ConnectClusterSettings | None = None

    @staticmethod
    def of(properties: Mapping[str, str]) -> ServerSettings:
        """Raises `InvalidProperty`."""
        return ServerSettings(
            service_id=SERVICE_ID.of(properties),
            advertised_listener=ADVERTISED_LISTENER.of(properties),
            command_timeout_ms=COMMAND_TIMEOUT_MS.of(properties),
            python_functions=PYTHON_FUNCTIONS.of(properties),
            denied=denied_properties(DENYLIST.of(properties)),
            processing_log_stream=PROCESSING_LOG_STREAM.of(properties),
            persistent_queries_max=PERSISTENT_QUERIES.of(properties),
            push_queries_max=PUSH_QUERIES.of(properties),
            push_rows_max=PUSH_ROWS.of(properties) or None,
            push_seconds_max=PUSH_SECONDS.of(properties) or None,
            pull_gate=PullGateSettings.of(properties),
            assert_topic_ms=ASSERT_TOPIC_MS.of(properties),
            assert_schema_ms=ASSERT_SCHEMA_MS.of(properties),
            secrets_key_file=Path(SECRETS_KEY.of(properties)) if SECRETS_KEY.of(properties) else None,
            connect_cluster=ConnectClusterSettings.of(properties),
        )
