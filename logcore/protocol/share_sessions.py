"""Sessions of ShareFetch (KIP-932): the partitions that a member of a share group reads on this node. Pure.

A session ends with its last request, with its connection, or when the same member begins another one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import UUID

from ..error_codes import ErrorCode

SHARE_SESSIONS_MAX: Final = 2_000
FIRST_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_EPOCH_MAX: Final = 0x7FFFFFFF
_PLACES_MAX: Final = 200_000  # of all sessions together


class ShareMember(NamedTuple):
    group: str
    member_id: str


class SharePlace(NamedTuple):
    topic_id: UUID
    partition: int


@dataclass(slots=True)
class _Session:
    """`epoch`: that of the next request. `places`: partitions that returned records most recently are last."""

    epoch: int
    connection: Hashable
    places: dict[SharePlace, None] = field(default_factory=dict[SharePlace, None])


class ShareTurn(NamedTuple):
    """One request. `error`: the only content of the answer. `ended`: the member's records of `places` are released."""

    places: Sequence[SharePlace] = ()
    error: ErrorCode = ErrorCode.none
    ended: bool = False


class ShareSessions:
    """State: the sessions, and their maximum number. Only one thread may use it."""

    def __init__(self, sessions_max: int = SHARE_SESSIONS_MAX) -> None:
        self.sessions_max = sessions_max
        self._sessions: dict[ShareMember, _Session] = {}
        self._places = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def fetch(
        self,
        member: ShareMember,
        epoch: int,
        connection: Hashable,
        named: Sequence[SharePlace],
        forgotten: Iterable[SharePlace],
    ) -> ShareTurn:
        """In: `named`: partitions that are new, or of which records are acknowledged."""
        if epoch == FIRST_EPOCH:
            return self._begin(member, connection, named)
        turn = self.acknowledge(member, epoch)
        session = self._sessions.get(member)
        if turn.error is not ErrorCode.none or session is None:
            return turn
        self._change(session, named, forgotten)
        return ShareTurn(list(session.places))

    def _begin(self, member: ShareMember, connection: Hashable, named: Sequence[SharePlace]) -> ShareTurn:
        self._end(member)
        if len(self._sessions) >= self.sessions_max or self._places + len(named) > _PLACES_MAX:
            return ShareTurn(error=ErrorCode.share_session_limit_reached)
        session = self._sessions[member] = _Session(FIRST_EPOCH + 1, connection)
        self._change(session, named, ())
        return ShareTurn(list(session.places))

    def acknowledge(self, member: ShareMember, epoch: int) -> ShareTurn:
        """A request that only acknowledges."""
        session = self._sessions.get(member)
        if session is None:
            return ShareTurn(error=ErrorCode.share_session_not_found)
        if epoch == FINAL_EPOCH:
            self._end(member)
            return ShareTurn(list(session.places), ended=True)
        if epoch != session.epoch:
            return ShareTurn(error=ErrorCode.invalid_share_session_epoch)
        session.epoch = 1 if epoch >= _EPOCH_MAX else epoch + 1
        return ShareTurn(list(session.places))

    def gave(self, member: ShareMember, places: Iterable[SharePlace]) -> None:
        """These partitions returned records, so next time the others come first."""
        session = self._sessions.get(member)
        if session is not None:
            session.places |= {place: session.places.pop(place) for place in places if place in session.places}

    def end_of(self, connection: Hashable) -> list[tuple[ShareMember, Sequence[SharePlace]]]:
        """Ends and returns the sessions of a connection that was closed."""
        ended = [(member, session) for member, session in self._sessions.items() if session.connection == connection]
        for member, _ in ended:
            self._end(member)
        return [(member, list(session.places)) for member, session in ended]

    def _change(self, session: _Session, named: Iterable[SharePlace], forgotten: Iterable[SharePlace]) -> None:
        before = len(session.places)
        for place in named:
            session.places.setdefault(place)
        for place in forgotten:
            session.places.pop(place, None)
        self._places += len(session.places) - before

    def _end(self, member: ShareMember) -> None:
        session = self._sessions.pop(member, None)
        if session is not None:
            self._places -= len(session.places)
