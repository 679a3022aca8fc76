"""Fetch sessions (KIP-227): the server remembers what a client fetches, so that a request contains only changes, and an
answer only news. Pure: callers pass the time.

A client that asks for too many partitions, or that finds all slots in use, gets no session, and sends everything each
time.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ..error_codes import ErrorCode
from .wire.fetch_messages import NO_SESSION, ClientFetch, FetchedPartition, FetchPosition, PartitionKey

SLOTS: Final = 1000
IDLE_S: Final = 120.0
"""After this time without a request, another client may get a session's slot."""

FIRST_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_EPOCH_MAX: Final = 0x7FFFFFFF
_ENTRIES_MAX: Final = 200_000  # partitions of all sessions together


class _Told(NamedTuple):
    """The offsets of a partition that the client knows."""

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


_NOTHING: Final = _Told(-2, -2, -2)


@dataclass(slots=True)
class _Entry:
    position: FetchPosition
    told: _Told = _NOTHING


@dataclass(slots=True)
class _Session:
    """`epoch`: that of the next request. `entries`: partitions that returned records most recently are last."""

    id: int
    epoch: int
    used_s: float
    by_id: bool
    entries: dict[PartitionKey, _Entry] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Turn:
    """One request of a session, or without one (`session` is None). `error`: the only content of the answer."""

    positions: Sequence[FetchPosition] = ()
    session: _Session | None = None
    whole: bool = True
    error: ErrorCode = ErrorCode.none

    @property
    def session_id(self) -> int:
        return NO_SESSION if self.session is None else self.session.id

    def news(self, fetched: Sequence[FetchedPartition]) -> Sequence[FetchedPartition]:
        """The partitions that the answer must contain. The session notes that the client knows them then."""
        if self.session is None:
            return fetched
        return [entry for entry in fetched if _note(self.session, entry) or self.whole]


class FetchSessions:
    """State: the sessions, least recently used first. Only one thread may use it."""

    def __init__(self, slots: int = SLOTS, new_id: Callable[[], int] | None = None) -> None:
        self._slots = slots
        self._new_id = new_id or (lambda: random.randint(1, 0x7FFFFFFF))
        self._sessions: OrderedDict[int, _Session] = OrderedDict()
        self._entries = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def turn(self, asked: ClientFetch, now_s: float) -> Turn:
        """The partitions that this request fetches, or an error."""
        if asked.session_epoch in (FIRST_EPOCH, FINAL_EPOCH):
            self._end(asked.session_id)
            session = self._begun(asked, now_s) if asked.session_epoch == FIRST_EPOCH else None
            return Turn(asked.positions, session)
        session = self._sessions.get(asked.session_id)
        if session is None:
            return Turn(error=ErrorCode.fetch_session_id_not_found)
        if session.epoch != asked.session_epoch:
            return Turn(error=ErrorCode.invalid_fetch_session_epoch)
        if session.by_id != asked.by_id:
            return Turn(error=ErrorCode.fetch_session_topic_id_error)
        self._change(session, asked)
        session.epoch, session.used_s = _after(session.epoch), now_s
        self._sessions.move_to_end(session.id)
        positions = [entry.position for entry in session.entries.values()]
        if not positions or self._entries > _ENTRIES_MAX:
            self._end(session.id)
            return Turn(positions)
        return Turn(positions, session, whole=False)

    def _begun(self, asked: ClientFetch, now_s: float) -> _Session | None:
        """None if there is no slot for it, or nothing to remember."""
        entries = {position.key: _Entry(position) for position in asked.positions}
        if not entries or self._entries + len(entries) > _ENTRIES_MAX or not self._has_slot(now_s):
            return None
        id = self._new_id()
        while id in self._sessions:
            id = self._new_id()
        session = self._sessions[id] = _Session(id, _after(FIRST_EPOCH), now_s, asked.by_id, entries)
        self._entries += len(entries)
        return session

    def _has_slot(self, now_s: float) -> bool:
        if len(self._sessions) < self._slots:
            return True
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None or now_s - oldest.used_s < IDLE_S:
            return False
        self._end(oldest.id)
        return True

    def _change(self, session: _Session, asked: ClientFetch) -> None:
        before = len(session.entries)
        for position in asked.positions:
            known = session.entries.get(position.key)
            if known is None:
                session.entries[position.key] = _Entry(position)
            else:
                known.position = position
        for partition in asked.forgotten:
            session.entries.pop(partition, None)
        self._entries += len(session.entries) - before

    def _end(self, id: int) -> None:
        session = self._sessions.pop(id, None)
        if session is not None:
            self._entries -= len(session.entries)


def _note(session: _Session, fetched: FetchedPartition) -> bool:
    """Whether there is news about the partition. A partition that returned records goes to the end of the session."""
    entry = session.entries.get(fetched.key)
    if entry is None:  # another request of the session has forgotten it meanwhile
        return True
    told = _Told(fetched.high_watermark, fetched.last_stable_offset, fetched.log_start_offset)
    if fetched.error_code or fetched.preferred_replica >= 0:
        entry.told = _NOTHING  # so that the client is told when the error is over
        return True
    is_news = bool(fetched.size) or told != entry.told
    entry.told = told
    if fetched.size:
        session.entries[fetched.key] = session.entries.pop(fetched.key)
    return is_news


def _after(epoch: int) -> int:
    return 1 if epoch >= _EPOCH_MAX else epoch + 1
