"""The inbox of a connector to which records are sent. The sender of a delivery waits until it is settled."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from typing import Final, Literal

_WAITING_MAX: Final = 1000
_WAITING_BYTES_MAX: Final = 64 * 1024 * 1024

Outcome = Literal["committed", "known", "refused", "not meant", "too large", "unavailable"]
"""committed: the records are in the log; known: they already were; refused: the sender has no permission;
not meant: the delivery cannot be converted to records; unavailable: the outcome is unknown, so it must be sent
again."""


@dataclass(frozen=True, slots=True)
class Settlement:
    outcome: Outcome
    why: str = ""
    records: int = 0


@dataclass(frozen=True, slots=True)
class Delivery:
    """`headers`: names in lower case. `settled`: gets the outcome once."""

    headers: Mapping[str, str]
    body: bytes
    settled: Future[Settlement] = field(default_factory=Future[Settlement])

    def settle(self, outcome: Outcome, why: str = "", records: int = 0) -> None:
        with contextlib.suppress(InvalidStateError):  # the sender has left, or it was already settled
            self.settled.set_result(Settlement(outcome, why, records))


class Inbox:
    """Any thread may call any method. The inbox is closed while no task takes deliveries from it.

    State: the waiting deliveries, and the largest allowed body.
    """

    def __init__(self) -> None:
        self._waiting: deque[Delivery] = deque()
        self._bytes = 0
        self._body_bytes_max: int | None = None
        self._changed = threading.Condition()

    @property
    def body_bytes_max(self) -> int | None:
        """The largest allowed body; None while the inbox is closed."""
        return self._body_bytes_max

    def open(self, body_bytes_max: int) -> None:
        with self._changed:
            self._body_bytes_max = body_bytes_max

    def close(self) -> None:
        """Closes the inbox. Waiting deliveries must be sent again."""
        with self._changed:
            self._body_bytes_max = None
            waiting, self._waiting, self._bytes = list(self._waiting), deque(), 0
        for delivery in waiting:
            delivery.settle("unavailable", "the connector stopped")

    def put(self, delivery: Delivery) -> bool:
        """Adds a delivery. False if too many are waiting, or the inbox is closed."""
        with self._changed:
            size = self._bytes + len(delivery.body)
            if self._body_bytes_max is None or len(self._waiting) >= _WAITING_MAX or size > _WAITING_BYTES_MAX:
                return False
            self._waiting.append(delivery)
            self._bytes = size
            self._changed.notify_all()
            return True

    def take(self, most: int, timeout_s: float) -> Sequence[Delivery]:
        """The waiting deliveries, oldest first; empty if none arrived within `timeout_s`."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._waiting), timeout_s)
            found = [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]
            self._bytes -= sum(len(delivery.body) for delivery in found)
            return found

    def __len__(self) -> int:
        return len(self._waiting)
