"""Until when a node may answer reads for the partitions that it leads: the controller replaces no leader before (T-L4).

A leader that was replaced without knowing it loses no write, because it can commit nothing; but the end of committed
records that it reports may be old. The controller replaces a leader that it has not heard for a session. So a node with
an answer to a heartbeat that it sent less than a session ago was not replaced. These are leases as in Gray and Cheriton
(1989): the clocks need not agree, but must run at about the same speed.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from ..controller.controller_messages import HeartbeatAnswer

_SHARE: Final = 0.9  # of a session; the rest allows for clocks of different speeds, and for a tick
_UNANSWERED_MAX: Final = 256


class _Sent(NamedTuple):
    number: int
    sent_ms: int


class _Granted(NamedTuple):
    as_of: int  # the index of the committed metadata when the controller answered
    until_ms: int


class LeaderLease:
    """State: unanswered heartbeats, and answers as of metadata that this node has not applied yet.

    An answer counts only once this node has applied the metadata up to the answer's index: a node that was replaced,
    and is live again before it knows that it was, leads nothing yet.
    """

    def __init__(self) -> None:
        self.until_ms = 0
        """A time of the node's monotonic clock. Any thread may read it."""
        self._sent: deque[_Sent] = deque(maxlen=_UNANSWERED_MAX)
        self._granted: list[_Granted] = []

    def holds(self, now_ms: int) -> bool:
        return now_ms < self.until_ms

    @property
    def is_unanswered(self) -> bool:
        return bool(self._sent)

    def sent(self, number: int, now_ms: int) -> None:
        """A heartbeat is sent. In: `number`: increases."""
        self._sent.append(_Sent(number, now_ms))

    def answered(self, answer: HeartbeatAnswer, applied: int) -> None:
        """In: an answer to this process of the broker; `applied`: up to which index this node has the metadata."""
        found: _Sent | None = None
        while self._sent and self._sent[0].number <= answer.number:
            found = self._sent.popleft()
        if found is None or found.number != answer.number:
            return  # a copy, or older than an answer that has arrived
        if answer.fenced:
            self.until_ms = 0
            self._granted.clear()
            return
        self._granted.append(_Granted(answer.index, found.sent_ms + int(answer.session_ms * _SHARE)))
        self.learned(applied)

    def learned(self, applied: int) -> None:
        """This node has applied the metadata up to this index."""
        if self._granted:
            known = [each.until_ms for each in self._granted if self._is_known(each, applied)]
            self.until_ms = max(self.until_ms, *known, 0)
            self._granted = [each for each in self._granted if not self._is_known(each, applied)]

    def _is_known(self, granted: _Granted, applied: int) -> bool:
        return granted.as_of <= applied
