"""The producer ids that a node may hand out: taken from the controller a block at a time, each given once (R19)."""

from __future__ import annotations

from collections import deque
from typing import Final

from ..controller.controller_messages import ProducerIds
from ..machine import RequestId

_LOW: Final = 100  # with fewer left the next block is asked for
_WAITING_MAX: Final = 1_000


class ProducerIdPool:
    """State: the block that is being used up, and who waits for an id.

    Invariant: a block comes from an answer that was not taken before; answers may come twice, late, or never.
    """

    def __init__(self) -> None:
        self._next = 0
        self._end = 0
        self._last_number = 0  # of the answer that was taken last
        self._wants_id: deque[RequestId] = deque()

    @property
    def asks(self) -> bool:
        """Whether the controller is to be asked for a block: before somebody has to wait for it."""
        return self._end - self._next < _LOW or bool(self._wants_id)

    @property
    def is_crowded(self) -> bool:
        """Whether nobody else may wait for an id: who gave up long ago is still in the queue."""
        return len(self._wants_id) >= _WAITING_MAX

    def take(self) -> int | None:
        """An id; None where there is none now."""
        if self._next >= self._end:
            return None
        self._next += 1
        return self._next - 1

    def wait_for_id(self, request: RequestId) -> None:
        self._wants_id.append(request)

    def got(self, block: ProducerIds) -> None:
        """Takes a block of this life, once."""
        if block.number > self._last_number:
            self._last_number = block.number
            self._next, self._end = block.first, block.first + block.count

    def served(self) -> tuple[RequestId, int] | None:
        """Who waits for an id, and the id; None where nobody does, or there is none."""
        if not self._wants_id:
            return None
        producer_id = self.take()
        return (self._wants_id.popleft(), producer_id) if producer_id is not None else None
