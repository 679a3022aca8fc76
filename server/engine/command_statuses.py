"""What became of the statements that changed the catalog, by the ids that their answers gave: for /status."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Final, NamedTuple

from ..security.rights import Rights
from .entities import CommandState, CurrentStatus, Entity

_KEPT: Final = 1000


class _Known(NamedTuple):
    state: CommandState
    owner: str | None  # the user who sent the statement


class CommandStatuses:
    """The latest 1000, since this process started. Thread-safe."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}  # by command id, the latest last
        self._lock = threading.Lock()

    def note(self, entities: Iterable[Entity], rights: Rights) -> None:
        """In: `entities`: the answer to a statement of the user with these rights."""
        with self._lock:
            for entity in entities:
                if isinstance(entity, CurrentStatus):
                    self._known.pop(entity.command_id, None)
                    self._known[entity.command_id] = _Known(entity.command_status, rights.name)
            while len(self._known) > _KEPT:
                del self._known[next(iter(self._known))]

    def of(self, rights: Rights) -> dict[str, CommandState]:
        """By command id. A user sees their own, an administrator all: a message names topics."""
        with self._lock:
            return {name: known.state for name, known in self._known.items() if rights.is_own(known.owner)}
