"""The savepoints of a transaction. They undo nothing, because statements take effect at once. They only let a
transaction continue after an error, as drivers and psql do for every statement if configured to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

from .pg_statements import PgKind, PgStatement
from .sqlstates import NO_SAVEPOINT, SYNTAX, PgRefused

T = TypeVar("T")


class Savepoints(Generic[T]):
    """The savepoints of one transaction, oldest first; names may repeat. `T`: objects that may be newer than a
    savepoint."""

    def __init__(self) -> None:
        self._kept: list[tuple[str, frozenset[T]]] = []

    def add(self, name: str, there: Mapping[str, T]) -> None:
        made = (name, frozenset(there.values()))
        same = self._kept[-1:] == [made]
        self._kept.append(self._kept[-1] if same else made)  # JDBC creates one for each statement and releases none

    def release(self, name: str) -> None:
        """Removes the savepoint and all later ones. Raises `PgRefused`."""
        del self._kept[self._place(name) :]

    def return_to(self, name: str) -> frozenset[T]:
        """Keeps the savepoint, and removes all later ones. Out: the objects that existed when it was created. Raises
        `PgRefused`."""
        place = self._place(name)
        del self._kept[place + 1 :]
        return self._kept[place][1]

    def clear(self) -> None:
        self._kept.clear()

    def _place(self, name: str) -> int:
        for place in range(len(self._kept) - 1, -1, -1):
            if self._kept[place][0] == name:
                return place
        raise PgRefused(NO_SAVEPOINT, f'savepoint "{name}" does not exist')


def savepoint_named(statement: PgStatement) -> str:
    """SAVEPOINT a, RELEASE [SAVEPOINT] a, ROLLBACK [WORK | TRANSACTION] TO [SAVEPOINT] a. Raises `PgRefused`."""
    rest = list(statement.tokens[1:])
    if statement.kind is PgKind.ROLLBACK_TO:
        to = next(at for at, token in enumerate(rest) if token.upper == "TO")
        rest = rest[to + 1 :]
    if statement.kind is not PgKind.SAVEPOINT and rest and rest[0].upper == "SAVEPOINT":
        rest = rest[1:]
    name = rest[0].named if len(rest) == 1 else None
    if name is None:
        raise PgRefused(SYNTAX, "a savepoint has a name", hint="Write SAVEPOINT a, RELEASE a or ROLLBACK TO a.")
    return name
