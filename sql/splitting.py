"""Text into statements, without parsing them: for the shell, which reads a line at a time."""

from __future__ import annotations

from lark import Token

from .tokens import token_span, tokenize


def split_statements(text: str) -> list[str]:
    """The statements of the text, as written and without `;`. An unfinished one at the end counts.

    >>> split_statements("SHOW STREAMS; SELECT ';' FROM s -- the last; one")
    ['SHOW STREAMS', "SELECT ';' FROM s"]
    """
    pieces: list[str] = []
    for group in split_tokens(tokenize(text)):
        pieces.append(text[token_span(group[0]).start : token_span(group[-1]).end])
    return pieces


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
