"""Sessions of ShareFetch: what a member reads is remembered."""

from __future__ import annotations

import uuid

from millstream.logcore.error_codes import ErrorCode
from millstream.logcore.protocol.share_sessions import ShareMember, SharePlace, ShareSessions, ShareTurn

A, B = ShareMember("g", "a"), ShareMember("g", "b")
TOPIC = uuid.UUID(int=7)
P0, P1, P2 = (SharePlace(TOPIC, number) for number in range(3))


def fetch(sessions: ShareSessions, member: ShareMember, epoch: int, *named: SharePlace, at: int = 1) -> ShareTurn:
    return sessions.fetch(member, epoch, at, named, ())


def test_a_session_remembers_what_is_read() -> None:
    sessions = ShareSessions()
    assert fetch(sessions, A, 0, P0, P1).places == [P0, P1]
    assert fetch(sessions, A, 1).places == [P0, P1]
    assert fetch(sessions, A, 2, P2).places == [P0, P1, P2]
    assert sessions.fetch(A, 3, 1, (), [P0]).places == [P1, P2]


def test_epochs_follow_each_other() -> None:
    sessions = ShareSessions()
    assert fetch(sessions, A, 1).error is ErrorCode.share_session_not_found
    fetch(sessions, A, 0, P0)
    assert fetch(sessions, A, 2).error is ErrorCode.invalid_share_session_epoch
    assert sessions.acknowledge(A, 1).error is ErrorCode.none
    assert fetch(sessions, A, 1).error is ErrorCode.invalid_share_session_epoch
    assert fetch(sessions, A, 2).error is ErrorCode.none
    assert sessions.acknowledge(B, 1).error is ErrorCode.share_session_not_found


def test_the_largest_epoch_is_followed_by_one() -> None:
    sessions = ShareSessions()
    fetch(sessions, A, 0, P0)
    sessions._sessions[A].epoch = 0x7FFFFFFF
    assert fetch(sessions, A, 0x7FFFFFFF).error is ErrorCode.none
    assert fetch(sessions, A, 1).error is ErrorCode.none


def test_the_last_request_ends_the_session() -> None:
    sessions = ShareSessions()
    fetch(sessions, A, 0, P0, P1)
    assert sessions.acknowledge(A, -1) == ShareTurn([P0, P1], ended=True)
    assert len(sessions) == 0
    fetch(sessions, A, 0, P0)
    assert fetch(sessions, A, -1).ended
    assert fetch(sessions, A, -1).error is ErrorCode.share_session_not_found


def test_a_connection_takes_its_sessions_along() -> None:
    sessions = ShareSessions()
    fetch(sessions, A, 0, P0, at=1)
    fetch(sessions, B, 0, P1, at=2)
    assert sessions.end_of(1) == [(A, [P0])]
    assert sessions.end_of(1) == []
    fetch(sessions, B, 0, P2, at=3)  # it came over another connection meanwhile
    assert sessions.end_of(2) == []


def test_there_are_no_more_sessions_than_may_be() -> None:
    sessions = ShareSessions(sessions_max=1)
    fetch(sessions, A, 0, P0)
    assert fetch(sessions, B, 0, P0).error is ErrorCode.share_session_limit_reached
    assert fetch(sessions, A, 0, P0).error is ErrorCode.none
    fetch(sessions, A, -1)
    assert fetch(sessions, B, 0, P0).error is ErrorCode.none


def test_who_gave_records_waits_for_the_others() -> None:
    sessions = ShareSessions()
    fetch(sessions, A, 0, P0, P1, P2)
    sessions.gave(A, [P0])
    assert fetch(sessions, A, 1).places == [P1, P2, P0]
    sessions.gave(B, [P0])
