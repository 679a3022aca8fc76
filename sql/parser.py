"""Text into statements: the door of the parser. The grammar is `grammar.lark`; `syntax_errors.py` makes the errors."""

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

_BIGINT_DIGITS = 19  # of 9223372036854775807


def parse(text: str, types: Mapping[str, SqlType] | None = None) -> list[Statement]:
    """The statements of the text, separated by `;`; the last one may go without.

    In: `types` are the custom types by name; a name that is not among them becomes a NamedType.
    Raises: StatementError (SqlSyntaxError for most mistakes), with span and `text`.
    """
    return _run(text, "statement", types)


def parse_one(text: str, types: Mapping[str, SqlType] | None = None) -> Statement:
    """The one statement of the text.

    Raises: SqlSyntaxError, also where there is none or more than one.
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
    """The whole grammar: what `grammar.lark` leaves to the types of windows is filled in."""
    return with_window_rules(Path(__file__).with_name("grammar.lark").read_text(encoding="utf-8"))


@cache
def lark() -> Lark:
    """The grammar's table and the rules' functions, made on first use: 0.3 s of computing, or 0.02 s where this
    grammar's table is kept."""
    rules: Any = StatementRules()  # lark only looks methods up by name
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
    """Where the table is kept, beside Python's compiled modules: who may write there could change the code as well.
    lark computes it anew where the file is missing, damaged, or of another grammar; None where Python keeps nothing.
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
    """A statement that would take seconds to plan is refused before it is read; the rows of INSERT are data."""
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
