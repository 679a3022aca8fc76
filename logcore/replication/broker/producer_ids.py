"""The producer ids that a node may assign: it gets them in blocks from the controller, and assigns each once (R19)."""

from __future__ import annotations

from collections import deque
from typing import Final

from ..controller.controller_messages import ProducerIds
from ..machine import RequestId

_LOW: Final = 100  # with fewer ids left, it requests the next block
_WAITING_MAX: Final = 1_000


class ProducerIdPool:
    """State: the current block, and the requests that wait for an id.

    Invariant: each block comes from a new answer; answers may be duplicated, late or lost.
    """

    def __init__(self) -> None:
        self._next = 0
        self._end = 0
        self._last_number = 0  # of the last answer that was accepted
        self._wants_id: deque[RequestId] = deque()

    @property
    def asks(self) -> bool:
        """Whether to request a block from the controller, before a request has to wait for one."""
        return self._end - self._next < _LOW or bool(self._wants_id)

    @property
    def is_crowded(self) -> bool:
        """Whether the queue is full. Requests of callers that gave up long ago are still in it."""
        return len(self._wants_id) >= _WAITING_MAX

    def take(self) -> int | None:
        """An id; None if there is none now."""
        if self._next >= self._end:
            return None
        self._next += 1
        return self._next - 1

    def wait_for_id(self, request: RequestId) -> None:
        self._wants_id.append(request)

    def got(self, block: ProducerIds) -> None:
        """Takes a block for this process, once."""
        if block.number > self._last_number:
            self._last_number = block.number
            self._next, self._end = block.first, block.first + block.count

    def served(self) -> tuple[RequestId, int] | None:
        """The next waiting request and its id; None if no request waits, or there is no id."""
        if not self._wants_id:
            return None
        producer_id = self.take()
        return (self._wants_id.popleft(), producer_id) if producer_id is not None else None
