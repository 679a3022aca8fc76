"""Settings of the REST proxy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RestProxySettings:
    """`consumers_max`: instances of consumers at a time. `consumer_timeout_s`: one that nobody asks so long ends."""

    consumers_max: int = 100
    consumer_timeout_s: float = 300.0
