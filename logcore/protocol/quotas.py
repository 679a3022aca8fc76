"""How many bytes a client may send and fetch per second. Who takes more is told to wait, and not read until then.

The meter is pure: it is told the time. A client is who calls itself by the same client id, as in Kafka.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_BURST_S: Final = 1.0
"""What a client did not use for so long it may use at once."""

_WAIT_S_MAX: Final = 10.0
_CLIENTS_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class Quotas:
    """Bytes per second and client; None: as many as it likes."""

    produce_bytes: int | None = None
    fetch_bytes: int | None = None


UNLIMITED: Final = Quotas()


class Meter:
    """State: per client the time at which what it has moved so far would have been due."""

    def __init__(self, bytes_per_s: int | None) -> None:
        self._bytes_per_s = bytes_per_s
        self._due_s: dict[str, float] = {}

    def note(self, client: str, size: int, now_s: float) -> float:
        """The client has moved so many bytes. Gives for how many seconds it has to wait."""
        if self._bytes_per_s is None:
            return 0.0
        if len(self._due_s) >= _CLIENTS_MAX:
            self._due_s = {known: due_s for known, due_s in self._due_s.items() if due_s > now_s - _BURST_S}
        begin_s = max(self._due_s.get(client, 0.0), now_s - _BURST_S)
        self._due_s[client] = begin_s + size / self._bytes_per_s
        return min(max(0.0, self._due_s[client] - now_s), _WAIT_S_MAX)
