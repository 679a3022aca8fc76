"""The savepoints of a transaction. They undo nothing, for what a statement did has happened at once: they let a
transaction go on behind an error, as drivers and psql do with every statement when they are asked to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

from .pg_statements import PgKind, PgStatement
from .sqlstates import NO_SAVEPOINT, SYNTAX, PgRefused

T = TypeVar("T")


class Savepoints(Generic[T]):
    """Those of one transaction, oldest first; names may be there twice. `T`: what may be younger than a savepoint."""

    def __init__(self) -> None:
        self._kept: list[tuple[str, frozenset[T]]] = []

    def add(self, name: str, there: Mapping[str, T]) -> None:
        made = (name, frozenset(there.values()))
        same = self._kept[-1:] == [made]
        self._kept.append(self._kept[-1] if same else made)  # JDBC makes one for each statement and releases none

    def release(self, name: str) -> None:
        """With those behind it. Raises `PgRefused`."""
        del self._kept[self._place(name) :]

    def return_to(self, name: str) -> frozenset[T]:
        """It stays, those behind it go. Out: what was there when it was made. Raises `PgRefused`."""
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
