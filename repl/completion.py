"""What could be typed next: keywords, the names of streams, tables, columns, functions, topics, queries."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from lark import Token
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from ..sql.identifiers import RESERVED, RESERVED_BY_KSQLDB, normalise_identifier, quote_identifier
from ..sql.tokens import tokenize
from .commands import WORDS
from .names import LiveNames, Names

KEYWORDS: Final = tuple(
    sorted(
        RESERVED
        | (RESERVED_BY_KSQLDB - {"CATALOG", "EXPORT", "LOAD", "MATERIALIZED", "NAMESPACE", "RENAME", "VIEW"})
        | set(
            """AGGREGATE LANGUAGE RETURNS
            CURRENT DESC FILTER FOLLOWING NULLS ORDER OVER PRECEDING QUALIFY ROW ROWS TIMEZONE UNBOUNDED
            ADD ALTER ARRAY ASSERT BIGINT BOOLEAN BYTES CHANGES COLUMN DATE DAY DEFINE DOUBLE EMIT ESCAPE EXPLAIN
            FINAL FUNCTION FUNCTIONS GRACE HEADER HEADERS HOUR IF INT INTEGER INTERVAL KEY MAP MINUTE PARTITION
            PARTITIONS PAUSE PERIOD PRIMARY REPLACE RESUME SECOND SESSION SET SHOW SOURCE STRING STRUCT SYSTEM TABLES
            TIME TIMEOUT TIMESTAMP TYPE TYPES UNDEFINE VARCHAR VARIABLES ZONE""".split()
        )
    )
)
_WORD: Final = re.compile(r"[`']?[A-Za-z_][A-Za-z0-9_.@]*")
_SOURCES_AFTER: Final = frozenset({"FROM", "JOIN", "INTO", "DESCRIBE", "STREAM", "TABLE", "VALUES"})
_QUERIES_AFTER: Final = frozenset({"TERMINATE", "PAUSE", "RESUME"})
_PROPERTIES_AFTER: Final = frozenset({"SET", "UNSET"})


class StatementCompleter(Completer):
    """Knows the statement up to the cursor, and asks `names` for what is alive."""

    def __init__(self, names: LiveNames) -> None:
        self._names = names

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        before = document.text_before_cursor
        word = document.get_word_before_cursor(pattern=_WORD)
        if not word and not complete_event.completion_requested:
            return
        candidates = candidates_for(before[: len(before) - len(word)], document.text, self._names.get())
        if not word.islower():
            yield from (Completion(text, -len(word), display_meta=what) for text, what in matching(word, candidates))
            return
        for text, what in matching(word, candidates):  # as one types, so one is answered
            plain = what in ("keyword", "function", "command") or text.isupper()
            yield Completion(text.lower() if plain else text, -len(word), display_meta=what)


def candidates_for(before: str, whole: str, names: Names) -> list[tuple[str, str]]:
    """Texts and what they are, the likeliest kind first. In: `before`: the text up to the word that is being typed;
    `whole`: with what follows."""
    tokens = tokenize(before)
    last = str(tokens[-1]).upper() if tokens else ""
    sources = [(quote_identifier(name), "stream or table") for name in names.columns]
    keywords = [(word, "keyword") for word in KEYWORDS]
    if not tokens or tokens[-1].type == "SEMICOLON":
        return [*keywords, *((word, "command") for word in WORDS)]
    if last == "PRINT":
        return [(quote_identifier(name), "topic") for name in names.topics]
    if last in _QUERIES_AFTER:
        return [*((name, "query") for name in names.queries), ("ALL", "keyword")]
    if last in _PROPERTIES_AFTER or (tokens[-1].type == "BAD" and last.startswith("'")):
        return [(name if last.startswith("'") else f"'{name}'", "property") for name in names.properties]
    if last == "FUNCTION":
        return [(name, "function") for name in names.functions]
    if last in _SOURCES_AFTER:
        return [*sources, *keywords]
    columns = [(quote_identifier(name), "column") for name in _columns(tokenize(whole), names)]
    return [*columns, *keywords, *((name, "function") for name in names.functions), *sources]


def matching(word: str, candidates: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """The candidates that begin with the word, each once; case does not matter."""
    seen: set[str] = set()
    for text, what in candidates:
        if text.upper().lstrip("`'").startswith(word.upper().lstrip("`'")) and text not in seen:
            seen.add(text)
            yield text, what


def _columns(tokens: Sequence[Token], names: Names) -> list[str]:
    """Of the sources that the statement names, or of all."""
    mentioned = {normalise_identifier(str(token)) for token in tokens if token.type in ("NAME", "QUOTED_NAME")} & set(
        names.columns
    )
    found: dict[str, None] = {}
    for source in mentioned or names.columns:
        found.update(dict.fromkeys(names.columns[source]))
    return list(found)
