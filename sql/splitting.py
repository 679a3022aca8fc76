"""Splits text into statements, without parsing them: for the shell, which reads a line at a time."""

from __future__ import annotations

from lark import Token

from millstream.errors import Span

from .tokens import token_span, tokenize

_ASSERT = "ASSERT"


def split_statements(text: str) -> list[str]:
    """The statements of the text, as written and without `;`. An unfinished one at the end is included.

    >>> split_statements("SHOW STREAMS; SELECT ';' FROM s -- the last; one")
    ['SHOW STREAMS', "SELECT ';' FROM s"]
    """
    return [text[span.start : span.end] for span in statement_spans(text)]


def statement_spans(text: str) -> list[Span]:
    """The positions of the statements in the text, each without its `;`.

    >>> statement_spans("SHOW STREAMS; SHOW TABLES;")
    [Span(start=0, end=12), Span(start=14, end=25)]
    """
    return [token_span(group[0]).join(token_span(group[-1])) for group in split_tokens(tokenize(text))]


def is_complete(text: str) -> bool:
    """Whether the text ends with `;`, outside quotes and comments.

    >>> is_complete("SELECT 'a;"), is_complete("SHOW STREAMS; -- all")
    (False, True)
    """
    tokens = tokenize(text)
    return bool(tokens) and tokens[-1].type == "SEMICOLON"


def split_tokens(tokens: list[Token]) -> list[list[Token]]:
    """The tokens of each statement, without its `;`; empty statements are dropped."""
    groups: list[list[Token]] = [[]]
    for token in tokens:
        if token.type == "SEMICOLON":
            groups.append([])
        else:
            groups[-1].append(token)
    return [group for group in groups if group]


def waits_for_others(text: str) -> bool:
    """Whether a statement of the text may wait for the actions of others, without a limit.

    >>> waits_for_others("SHOW TOPICS; assert TOPIC t TIMEOUT 9 DAYS;"), waits_for_others("SELECT 'ASSERT' FROM s;")
    (True, False)
    """
    return _ASSERT in text.upper() and any(group[0].upper() == _ASSERT for group in split_tokens(tokenize(text)))
