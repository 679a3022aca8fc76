"""Settings of the REST proxy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RestProxySettings:
    """`consumers_max`: limit of consumer instances. `consumer_timeout_s`: an instance unused for this long ends."""

    consumers_max: int = 100
    consumer_timeout_s: float = 300.0
