"""What the catalog knows of a connector, and of a secret."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class ConnectorInfo:
    """`config`: the settings as they were given, `connector.class` among them; a secret may be among them too, so they
    are shown only by way of `shown_config`. `statement`: without secrets. `stopped`: without tasks, so that
    its offsets can be changed."""

    name: str
    kind: Literal["SOURCE", "SINK"]
    config: Mapping[str, str]
    statement: str = ""
    paused: bool = False
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class SecretInfo:
    """CREATE SECRET. `sealed`: its values, which only who has the key of the secrets can read."""

    name: str
    sealed: str
