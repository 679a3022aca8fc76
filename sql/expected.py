"""The tokens that may come next in an unfinished statement, from the parser's own table: for completion."""

from __future__ import annotations

from functools import cache
from typing import Any

from lark.parsers.lalr_parser_state import ParseConf

from .automaton import KEYWORD_BEFORE, Automaton, is_keyword_type, resolve
from .parser import lark
from .splitting import split_tokens
from .tokens import tokenize


def expected_keywords(text: str) -> frozenset[str] | None:
    """The keywords that may follow the text, whose last statement is unfinished; None if the text is already invalid.

    >>> sorted(expected_keywords("SELECT a FROM s EMIT ")), expected_keywords("SELECT FROM FROM ")
    (['CHANGES', 'FINAL'], None)
    """
    tokens = tokenize(text)
    groups = split_tokens(tokens) if tokens and tokens[-1].type != "SEMICOLON" else []
    tokens = groups[-1] if groups else []
    automaton = Automaton(_table())
    for position, token in enumerate(tokens):
        if position == len(tokens) - 1 and token.upper() in KEYWORD_BEFORE and automaton.accepts(token.upper()):
            as_keyword = automaton.copy()  # it would be a keyword before one of these words
            as_keyword.advance(token.upper())
            found = as_keyword.expected() & KEYWORD_BEFORE[token.upper()]
            if found:
                return frozenset(filter(is_keyword_type, found))
        if not automaton.advance(resolve(tokens, position, automaton)):
            return None
    return frozenset(filter(is_keyword_type, automaton.expected()))


@cache
def all_keywords() -> frozenset[str]:
    """Every word that is a keyword in some context."""
    names = {str(name) for row in _table().parse_table.states.values() for name in row}
    return frozenset(name for name in names if name.isupper() and is_keyword_type(name))


@cache
def _table() -> ParseConf[Any]:
    parser: Any = lark().parser
    return ParseConf(parser.parser.parser.parse_table, {}, "statement")
