"""The queries: files of SQL in two parts, Millstream's statements and DuckDB's query over the whole of the streams."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent / "queries"
_SOURCES, _ANSWER, _NEXT = "-- sources:", "-- answer", "-- next"
_FINAL: Final = "EMIT FINAL"
_MADE: Final = re.compile(r"^CREATE (?:STREAM|TABLE) (\w+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class NexmarkQuery:
    """`statements`: the last one makes the stream or table `name`. `sources`: the topics that they read.

    `answer`: gives the columns of that stream or table, in any order, by the same names. A comment EMIT FINAL stands
    where its windows may be given when they close.
    """

    name: str
    title: str
    sources: tuple[str, ...]
    statements: str
    answer: str

    @property
    def as_windows_close(self) -> NexmarkQuery | None:
        """The query that gives each window once, when it closes; None where none of its windows waits for that."""
        statements = self.statements.replace(f"/* {_FINAL} */", _FINAL)
        return None if statements == self.statements else replace(self, statements=statements)


def nexmark_queries() -> Sequence[NexmarkQuery]:
    """q0 to q22."""
    return [query for number in range(23) for query in read_queries(FOLDER / f"q{number}.sql")]


def read_queries(path: Path) -> Sequence[NexmarkQuery]:
    """Those of a file, apart by lines `-- next`."""
    return [_query(text) for text in path.read_text(encoding="utf-8").split(f"{_NEXT}\n")]


def _query(text: str) -> NexmarkQuery:
    """A comment that says what it is, the sources, the statements, and after `-- answer` the batch query."""
    title, sources, *rest = text.strip().splitlines()
    assert sources.startswith(_SOURCES), text
    at = rest.index(_ANSWER)
    statements = "\n".join(rest[:at]).strip()
    return NexmarkQuery(
        name=_MADE.findall(statements)[-1],
        title=title.removeprefix("-- "),
        sources=tuple(sources.removeprefix(_SOURCES).split()),
        statements=statements,
        answer="\n".join(rest[at + 1 :]).strip(),
    )
