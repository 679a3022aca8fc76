"""Limits how many bytes a client may send and fetch per second. A client above its limit is told to wait, and the
server does not read from it until then.

The meter is pure: callers pass the time. `client_quotas.py` determines which connections count as one client.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

_BURST_S: Final = 1.0
"""A client may use at once what it did not use for this long."""

_WAIT_S_MAX: Final = 10.0
_CLIENTS_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class Quotas:
    """Bytes per second and client; None: no limit."""

    produce_bytes: int | None = None
    fetch_bytes: int | None = None


UNLIMITED: Final = Quotas()


class Meter:
    """State: for each client, the time at which its bytes so far would have been allowed at its rate."""

    def __init__(self) -> None:
        self._due_s: dict[Hashable, float] = {}

    def note(self, client: Hashable, size: int, bytes_per_s: float, now_s: float) -> float:
        """Notes that the client has moved `size` bytes. Returns for how many seconds it has to wait."""
        if len(self._due_s) >= _CLIENTS_MAX:
            self._due_s = {known: due_s for known, due_s in self._due_s.items() if due_s > now_s - _BURST_S}
        begin_s = max(self._due_s.get(client, 0.0), now_s - _BURST_S)
        self._due_s[client] = begin_s + size / bytes_per_s
        return min(max(0.0, self._due_s[client] - now_s), _WAIT_S_MAX)
