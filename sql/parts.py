"""Shared by the rules of the grammar: pieces with their position in the text, and the text that contains them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

from lark import Token
from sqlglot import exp

from millstream.errors import Span, SqlSyntaxError

from .ast import Node
from .identifiers import hidden_character, normalise_identifier
from .tokens import token_span
from .types import SqlType

ITEMS_MAX = 10_000

E = TypeVar("E", bound=exp.Expression)


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a statement that is not a node of the AST: a list, a duration, a type."""

    value: Any
    span: Span


@dataclass(frozen=True, slots=True)
class ParsedText:
    """The text being parsed, and the custom types that it may name."""

    text: str
    types: Mapping[str, SqlType]


SOURCE: ContextVar[ParsedText] = ContextVar("millstream_sql_source")
"""Set while a statement is parsed, because lark calls the rules' functions without arguments of ours."""


def statement_text(span: Span) -> str:
    return SOURCE.get().text[span.start : span.end]


def span_of_piece(piece: Token | Part | Node | exp.Expression) -> Span:
    if isinstance(piece, Token):
        return token_span(piece)
    if isinstance(piece, exp.Expression):
        return piece.meta["span"]
    assert piece.span is not None
    return piece.span


def span_of_all(children: Sequence[Any]) -> Span:
    """From the start of the first child to the end of the last one; missing children are None."""
    first = next(child for child in children if child is not None)
    last = next(child for child in reversed(children) if child is not None)
    return Span(span_of_piece(first).start, span_of_piece(last).end)


def at(node: E, span: Span) -> E:
    """Sets the node's position in the text, and returns the node."""
    node.meta["span"] = span
    return node


def items(children: Sequence[Any]) -> list[Any]:
    """The children that are neither tokens nor missing: the members of a list."""
    found = [child for child in children if child is not None and not isinstance(child, Token)]
    if len(found) > ITEMS_MAX:
        raise SqlSyntaxError(f"a list of more than {ITEMS_MAX} items", span=span_of_piece(found[ITEMS_MAX]))
    return found


def token_types(children: Sequence[Any]) -> Iterator[str]:
    return (child.type for child in children if isinstance(child, Token))


def has(children: Sequence[Any], token_type: str) -> bool:
    """Whether this keyword is among the children."""
    return token_type in token_types(children)


def string_value(token: Token) -> str:
    """The text that a string literal means."""
    return token[1:-1].replace("''", "'")


def checked_name(token: Token) -> str:
    """The normalised name of a NAME or QUOTED_NAME."""
    name = normalise_identifier(token)
    if not name:
        raise SqlSyntaxError("a name cannot be empty", span=token_span(token))
    if token.type == "QUOTED_NAME":
        hidden = hidden_character(name)
        if hidden is not None:
            message = f"a name cannot contain the character U+{ord(hidden):04X}"
            raise SqlSyntaxError(message, span=token_span(token), hint="It cannot be seen, so names could lie.")
    return name
