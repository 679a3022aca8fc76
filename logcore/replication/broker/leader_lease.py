"""Until when a node may answer reads as the leader of what it leads: the controller counts on it until then (T-L4).

A leader that was replaced without knowing it loses no write, for it commits nothing any more; but what it says is
committed may be old. The controller replaces a leader that it has not heard for a session. So whoever has an answer to
a sign of life that it sent less than a session ago was not replaced: leases as in Gray and Cheriton (1989), whose
clocks need not agree, but have to run at about the same speed.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from ..controller.controller_messages import HeartbeatAnswer

_SHARE: Final = 0.9  # of a session: the rest is for clocks that run at different speeds, and for a tick
_UNANSWERED_MAX: Final = 256


class _Sent(NamedTuple):
    number: int
    sent_ms: int


class _Granted(NamedTuple):
    as_of: int  # the metadata that the controller had decided when it answered
    until_ms: int


class LeaderLease:
    """State: signs of life that were not answered, and answers that speak of metadata which this node does not know.

    An answer counts only once the metadata that it knew of are known here, too: a node that was replaced, and is live
    again before it has heard of that, leads nothing yet.
    """

    def __init__(self) -> None:
        self.until_ms = 0
        """By the node's monotonic clock. Any thread may read it."""
        self._sent: deque[_Sent] = deque(maxlen=_UNANSWERED_MAX)
        self._granted: list[_Granted] = []

    def holds(self, now_ms: int) -> bool:
        return now_ms < self.until_ms

    @property
    def is_unanswered(self) -> bool:
        return bool(self._sent)

    def sent(self, number: int, now_ms: int) -> None:
        """A sign of life goes out; numbers rise."""
        self._sent.append(_Sent(number, now_ms))

    def answered(self, answer: HeartbeatAnswer, applied: int) -> None:
        """Of this life of the broker. In: `applied`: how far this node knows the metadata."""
        found: _Sent | None = None
        while self._sent and self._sent[0].number <= answer.number:
            found = self._sent.popleft()
        if found is None or found.number != answer.number:
            return  # a copy, or older than one that has come
        if answer.fenced:
            self.until_ms = 0
            self._granted.clear()
            return
        self._granted.append(_Granted(answer.index, found.sent_ms + int(answer.session_ms * _SHARE)))
        self.learned(applied)

    def learned(self, applied: int) -> None:
        """The node knows the metadata up to there."""
        if self._granted:
            known = [each.until_ms for each in self._granted if self._is_known(each, applied)]
            self.until_ms = max(self.until_ms, *known, 0)
            self._granted = [each for each in self._granted if not self._is_known(each, applied)]

    def _is_known(self, granted: _Granted, applied: int) -> bool:
        return granted.as_of <= applied
