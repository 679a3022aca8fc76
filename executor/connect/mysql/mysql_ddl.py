"""Determines the effects of statements in the binary log on the rows of tables, because DDL has no row events.

Only statements that remove or replace rows matter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

Effect = Literal["emptied", "replaced", "created", "database dropped", "rows"]
"""emptied: the table has no rows any more; replaced: it has other rows or keys, and has to be read; rows: rows were
changed without row events."""

_TOKEN: Final = re.compile(
    r"""/\*(?!M?!).*?\*/|--[\s\x00][^\n]*|\#[^\n]*|/\*M?!\d*|\*/|`((?:[^`]|``)*)`|"((?:[^"]|"")*)"|'(?:[^'\\]|\\.|'')*'"""
    r"""|([\w$\x80-\U0010ffff]+)|([^\s\w])""",
    re.DOTALL,
)
_CHANGES: Final = ("INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD")
_PARTITION: Final = ("DROP", "TRUNCATE", "EXCHANGE")


@dataclass(frozen=True, slots=True)
class TableEffect:
    """`table`: empty if the effect is on the whole database."""

    effect: Effect
    database: str
    table: str


@dataclass(frozen=True, slots=True)
class _Word:
    text: str
    is_quoted: bool = False

    @property
    def upper(self) -> str:
        return "" if self.is_quoted else self.text.upper()


def effects_of(database: str, text: str) -> list[TableEffect]:
    """The effects of a statement. In: `database`: the default database for names without one."""
    words = list(_words(text[:100_000]))
    uppers = [word.upper for word in words[:6]]
    match uppers:
        case ["TRUNCATE", "TABLE", *_]:
            return _all("emptied", _names(words[2:], database)[:1])
        case ["TRUNCATE", *_]:
            return _all("emptied", _names(words[1:], database)[:1])
        case ["DROP", "TABLE" | "TABLES", *_]:
            return _all("emptied", _names(_behind(words[2:], "IF", "EXISTS"), database))
        case ["DROP", "DATABASE" | "SCHEMA", *_]:
            name = _behind(words[2:], "IF", "EXISTS")
            return [TableEffect("database dropped", name[0].text, "")] if name else []
        case ["CREATE", "TABLE", *_]:
            return _all("created", _names(_behind(words[2:], "IF", "NOT", "EXISTS"), database)[:1])
        case ["CREATE", "OR", "REPLACE", "TABLE", *_]:
            names = _names(words[4:], database)[:1]
            return [*_all("emptied", names), *_all("created", names)]
        case ["RENAME", "TABLE" | "TABLES", *_]:
            return _renamed(_behind(words[2:], "IF", "EXISTS"), database)
        case ["ALTER", *_]:
            return _altered(words, database)
        case [word, *_] if word in _CHANGES:
            return [TableEffect("rows", database, "")]
        case _:
            return []


def _words(text: str) -> Iterator[_Word]:
    for found in _TOKEN.finditer(text):
        backticked, quoted, bare, sign = found.groups()
        if backticked is not None:
            yield _Word(backticked.replace("``", "`"), is_quoted=True)
        elif quoted is not None:
            yield _Word(quoted.replace('""', '"'), is_quoted=True)
        elif bare is not None or sign is not None:
            yield _Word(bare or sign)


def _all(effect: Effect, names: list[tuple[str, str]]) -> list[TableEffect]:
    return [TableEffect(effect, *name) for name in names]


def _behind(words: list[_Word], *optional: str) -> list[_Word]:
    return words[len(optional) :] if [word.upper for word in words[: len(optional)]] == list(optional) else words


def _name(words: list[_Word], at: int, database: str) -> tuple[tuple[str, str], int]:
    """The name at a place, and the place after it."""
    if at + 2 < len(words) and words[at + 1].text == ".":
        return (words[at].text, words[at + 2].text), at + 3
    return (database, words[at].text), at + 1


def _names(words: list[_Word], database: str) -> list[tuple[str, str]]:
    """The names in a list with commas."""
    found, at = list[tuple[str, str]](), 0
    while at < len(words):
        name, at = _name(words, at, database)
        found.append(name)
        if at >= len(words) or words[at].text != ",":
            break
        at += 1
    return found


def _renamed(words: list[_Word], database: str) -> list[TableEffect]:
    found, at = list[TableEffect](), 0
    while at < len(words):
        old, at = _name(words, at, database)
        while at < len(words) and words[at].upper != "TO":
            at += 1
        if at + 1 >= len(words):
            break
        new, at = _name(words, at + 1, database)
        found += [TableEffect("emptied", *old), TableEffect("replaced", *new)]
        at += 1  # the comma
    return found


def _altered(words: list[_Word], database: str) -> list[TableEffect]:
    """The effects of ALTER TABLE: a new name, another primary key, or partitions that are removed or added."""
    at = next((index for index, word in enumerate(words[:5]) if word.upper == "TABLE"), None)
    if at is None:
        return []
    rest = _behind(words[at + 1 :], "IF", "EXISTS")
    if not rest:
        return []
    table, behind = _name(rest, 0, database)
    found = list[TableEffect]()
    for index in range(behind, len(rest) - 1):
        this, following = rest[index].upper, rest[index + 1].upper
        if (this in _PARTITION and following == "PARTITION") or (this == "IMPORT" and following == "TABLESPACE"):
            found.append(TableEffect("replaced", *table))
        elif (this, following) == ("PRIMARY", "KEY") and rest[index - 1].upper != "DROP":
            found.append(TableEffect("replaced", *table))  # nothing would delete the records with keys of before
        elif this == "RENAME" and following not in ("COLUMN", "INDEX", "KEY", ""):
            new_at = index + 2 if following in ("TO", "AS") or rest[index + 1].text == "=" else index + 1
            if new_at < len(rest):
                new, _ = _name(rest, new_at, database)
                found += [TableEffect("emptied", *table), TableEffect("replaced", *new)]
        elif this == "RENAME" and rest[index + 1].is_quoted:
            new, _ = _name(rest, index + 1, database)
            found += [TableEffect("emptied", *table), TableEffect("replaced", *new)]
    return found
