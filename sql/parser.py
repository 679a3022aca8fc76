"""Parses text to statements: the entry point of the parser. The grammar is `grammar.lark`; `syntax_errors.py` makes the
errors."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

from lark import Lark, Token

from millstream.errors import Span, SqlSyntaxError, StatementError

from .ast import Expression, Statement
from .automaton import ContextualLexer
from .build_statements import StatementRules
from .collector import collector_paused
from .identifiers import quote_identifier
from .nesting import DEPTH_MAX, check_nesting
from .parts import SOURCE, ParsedText
from .splitting import is_complete, split_statements, split_tokens
from .statement_parser import StatementParser, UnexpectedHere
from .syntax_errors import explain_unexpected
from .tokens import STATEMENT_TOKENS_MAX, TOKENS_MAX, check_text, printable, token_span, tokenize
from .types import SqlType
from .variables import substitute_variables
from .windows import with_window_rules

__all__ = [
    "is_complete", "parse", "parse_expression", "parse_one", "parse_type", "quote_identifier", "split_statements",
    "substitute_variables",
]  # fmt: skip

_BIGINT_DIGITS = 19  # as in 9223372036854775807


def parse(text: str, types: Mapping[str, SqlType] | None = None) -> list[Statement]:
    """The statements of the text, separated by `;`; the last one may have none.

    In: `types` are the custom types by name; an unknown type name becomes a NamedType. Raises: StatementError
    (SqlSyntaxError for most errors), with span and `text`.
    """
    return _run(text, "statement", types)


def parse_one(text: str, types: Mapping[str, SqlType] | None = None) -> Statement:
    """The one statement of the text.

    Raises: SqlSyntaxError, also if there is none or more than one.
    """
    statements = parse(text, types)
    if not statements:
        raise SqlSyntaxError("there is no statement", text=text)
    if len(statements) > 1:
        message = f"there are {len(statements)} statements; expected one"
        raise SqlSyntaxError(message, span=statements[1].span, text=text)
    return statements[0]


def parse_expression(text: str, types: Mapping[str, SqlType] | None = None) -> Expression:
    """The text as an expression."""
    return _single(text, "expression", types)


def parse_type(text: str, types: Mapping[str, SqlType] | None = None) -> SqlType:
    """The text as a type.

    >>> str(parse_type("map<varchar, array<decimal(4, 2)>>"))
    'MAP<STRING, ARRAY<DECIMAL(4, 2)>>'
    """
    return _single(text, "type", types).value


def grammar() -> str:
    """The whole grammar: `grammar.lark`, with the rules of the window types added."""
    return with_window_rules(Path(__file__).with_name("grammar.lark").read_text(encoding="utf-8"))


@cache
def lark() -> Lark:
    """The grammar's table and the rules' functions, created at first use: in 0.3 s of CPU time, or in 0.02 s if the
    table of this grammar is cached."""
    rules: Any = StatementRules()  # lark looks up methods by name only
    return Lark(
        grammar(),
        parser="lalr",
        lexer=ContextualLexer,
        start=["statement", "expression", "type"],
        transformer=rules,
        maybe_placeholders=False,
        cache=_table_file() or False,
    )


def _table_file() -> str | None:
    """The file of the cached table, next to Python's compiled modules: anybody who can write there can change the code,
    too. lark creates the table again if the file is missing, damaged, or of another grammar. None if Python writes no
    bytecode.
    """
    if sys.dont_write_bytecode:
        return None
    file = Path(cache_from_source(str(Path(__file__).with_name("grammar_table.py")))).with_suffix(".lark")
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
    return str(file)


@lru_cache(maxsize=1)
def _parser_over(tables: Lark) -> StatementParser:
    return StatementParser(tables)


def _single(text: str, start: str, types: Mapping[str, SqlType] | None) -> Any:
    results = _run(text, start, types)
    if len(results) != 1:
        raise SqlSyntaxError(f"expected one {start}", text=text)
    return results[0]


def _run(text: str, start: str, types: Mapping[str, SqlType] | None) -> list[Any]:
    with collector_paused(len(text)):
        return _results(text, start, types)


def _results(text: str, start: str, types: Mapping[str, SqlType] | None) -> list[Any]:
    token = SOURCE.set(ParsedText(text, types or {}))
    try:
        check_text(text)
        tokens = tokenize(text, limit=TOKENS_MAX + 1)
        if len(tokens) > TOKENS_MAX:
            raise SqlSyntaxError(f"more than {TOKENS_MAX} words and signs", span=token_span(tokens[TOKENS_MAX]))
        groups = split_tokens(tokens)
        for group in groups:
            _check_length(group)
        return [_parse_tokens(group, start, text) for group in groups]
    except StatementError as error:
        error.text = printable(text)
        raise
    finally:
        SOURCE.reset(token)


def _check_length(tokens: list[Token]) -> None:
    """Refuses a statement that would take seconds to plan before it is parsed; the rows of INSERT are data."""
    if len(tokens) > STATEMENT_TOKENS_MAX and tokens[0].type != "INSERT":
        raise SqlSyntaxError(
            f"a statement of more than {STATEMENT_TOKENS_MAX} words and signs",
            span=token_span(tokens[STATEMENT_TOKENS_MAX]),
            hint="Write a long list of values into a table with INSERT INTO, and join it.",
        )


def _parse_tokens(tokens: list[Token], start: str, text: str) -> Any:
    try:
        result = _parser_over(lark()).parse(tokens, start)
    except UnexpectedHere as error:
        end = token_span(tokens[-1]).end
        raise explain_unexpected(error.table, tokens, Span(end, min(end + 1, max(len(text), end)))) from None
    if len(tokens) > DEPTH_MAX or any(map(_may_overflow, tokens)):
        check_nesting(result)
    return result


def _may_overflow(token: Token) -> bool:
    return token.type == "FLOAT_LITERAL" or (token.type == "INTEGER_LITERAL" and len(token) >= _BIGINT_DIGITS)
