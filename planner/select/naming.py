"""Names of columns without an alias (KSQL_COL_0, KSQL_COL_1, …; a field of a struct has the field's name), lists of
names in messages, and hidden columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlglot import exp

from ...sql.ast import unwrapped


def joined(names: Sequence[str], word: str = "and") -> str:
    """The names as a list in a sentence.

    >>> joined(["A"]), joined(["A", "B", "C"]), joined(["A", "B"], "or")
    ('A', 'A, B and C', 'A or B')
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {word} {names[-1]}"


def bare_name(node: exp.Expression) -> str | None:
    """The name of an expression that is just a column, with or without parentheses; None for any other expression."""
    inner = unwrapped(node)
    return inner.name if isinstance(inner, exp.Column) else None


_ANSWER = "#(SELECT) "


def answer(name: str) -> str:
    """The name of a column with the result of a query inside an expression. A star does not include it."""
    return _ANSWER + name


def is_answer(name: str) -> bool:
    return name.startswith(_ANSWER)


class AliasGenerator:
    """Generates names that no column of the sources has.

    >>> names = AliasGenerator(["KSQL_COL_1", "STREET"])
    >>> names.next(), names.next(), names.field("TOWN"), names.field("STREET")
    ('KSQL_COL_0', 'KSQL_COL_2', 'TOWN', 'STREET_1')
    """

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)
        self._count = 0

    def next(self) -> str:
        """The next name for an expression."""
        while (name := f"KSQL_COL_{self._count}") in self._taken:
            self._count += 1
        self._count += 1
        self._taken.add(name)
        return name

    def field(self, name: str) -> str:
        """A name for a struct's field."""
        alias, number = name, 0
        while alias in self._taken:
            number += 1
            alias = f"{name}_{number}"
        self._taken.add(alias)
        return alias
