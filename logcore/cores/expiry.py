"""How long a log keeps unused offsets and ids: Kafka's settings, in milliseconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_DAY_MS: Final = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class ExpiryTimes:
    """`offsets_ms`: offsets committed by groups without members; `transactional_ids_ms`: ids without a transaction;
    `producer_ids_ms`: the partitions' state of producers that no longer write."""

    offsets_ms: int = 7 * _DAY_MS
    transactional_ids_ms: int = 7 * _DAY_MS
    producer_ids_ms: int = _DAY_MS


DEFAULT: Final = ExpiryTimes()
