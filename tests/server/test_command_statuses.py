"""What /status knows of commands: the latest thousand, each user's own."""

from __future__ import annotations

from millstream.server.engine.command_statuses import CommandStatuses
from millstream.server.engine.entities import CommandState, CurrentStatus
from millstream.server.security.access import User
from millstream.server.security.rights import EVERYTHING, Rights


def note(statuses: CommandStatuses, name: str, message: str = "done", rights: Rights = EVERYTHING) -> None:
    state = CommandState("SUCCESS", message)
    statuses.note([CurrentStatus(statement_text="", command_id=name, command_status=state)], rights)


def test_the_latest_thousand_are_kept_and_one_that_comes_again_counts_anew() -> None:
    statuses = CommandStatuses()
    for number in range(1000):
        note(statuses, str(number))
    assert len(statuses.of(EVERYTHING)) == 1000
    note(statuses, "0", "again")
    note(statuses, "another")
    found = statuses.of(EVERYTHING)
    assert len(found) == 1000
    assert "1" not in found and found["0"].message == "again"


def test_users_see_their_own_and_administrators_all() -> None:
    statuses = CommandStatuses()
    ana, ben = (Rights(User(name, ())) for name in ("ana", "ben"))
    note(statuses, "a", rights=ana)
    note(statuses, "b", rights=ben)
    assert [list(statuses.of(rights)) for rights in (ana, ben, EVERYTHING)] == [["a"], ["b"], ["a", "b"]]
