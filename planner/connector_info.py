"""The catalog's entries for connectors and secrets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class ConnectorInfo:
    """`config`: the settings as given, including `connector.class`. They may contain a secret, so show them only with
    `shown_config`. `statement`: without secrets. `stopped`: it has no tasks, so its offsets can be changed."""

    name: str
    kind: Literal["SOURCE", "SINK"]
    config: Mapping[str, str]
    statement: str = ""
    paused: bool = False
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class SecretInfo:
    """CREATE SECRET. `sealed`: its values, encrypted with the key of the secrets."""

    name: str
    sealed: str
