"""The push queries that send rows to clients, as statements see them. The HTTP server keeps the register."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ...planner.planning import PlannedPush
from ..security.rights import Rights


@dataclass(frozen=True, slots=True)
class OpenPush:
    """A push query or a PRINT. `statement`: its text. `planned`: None if it is a PRINT."""

    id: str
    statement: str
    planned: PlannedPush | None = None


class OpenPushes(Protocol):
    """A register of what is open. Any thread may call it."""

    def pushes(self, rights: Rights) -> Sequence[OpenPush]:
        """Those that the user may end."""
        ...

    def close_one(self, query_id: str, rights: Rights) -> bool:
        """False if no such query is open, or if another user owns it."""
        ...


class NoPushes:
    """Implements `OpenPushes` for an engine without clients."""

    def pushes(self, rights: Rights) -> Sequence[OpenPush]:
        del rights
        return ()

    def close_one(self, query_id: str, rights: Rights) -> bool:
        del query_id, rights
        return False


def find_push(written: str, pushes: OpenPushes, rights: Rights) -> OpenPush | None:
    """The push query of this id, which is not case-sensitive."""
    return next((push for push in pushes.pushes(rights) if push.id.upper() == written.upper()), None)
