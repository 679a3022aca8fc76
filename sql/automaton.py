"""lark's parse table as an automaton over token types: finds the possible next tokens, and contextual keywords.

A word such as KEY or EMIT is a keyword where the grammar accepts the keyword, and a name everywhere else. The table
alone cannot decide this, because a state of an LALR parser combines several contexts. So the automaton tries the word
on a copy of the parser's stack.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lark import Token
from lark.lexer import Lexer, LexerState
from lark.parsers.lalr_analysis import Shift
from lark.parsers.lalr_parser_state import ParseConf

from millstream.errors import SqlSyntaxError

from . import windows
from .identifiers import RESERVED
from .nesting import DEPTH_MAX, STACK_MAX
from .tokens import PUNCTUATION, error_of, token_span

_NO_KEYWORDS = frozenset(PUNCTUATION.values()) | {
    "NAME", "QUOTED_NAME", "STRING_LITERAL", "INTEGER_LITERAL", "DECIMAL_LITERAL", "FLOAT_LITERAL", "LAMBDA_LPAR",
    "DOLLAR_LITERAL",
    "$END",
}  # fmt: skip

_NAMES = frozenset({"NAME", "QUOTED_NAME"})
_STATEMENTS = frozenset(
    "ALTER ASSERT CREATE DEFINE DELETE DESCRIBE DROP EXPLAIN INSERT LIST PAUSE PRINT PROMOTE RESET RESNAPSHOT "
    "RESTART RESUME RUN SELECT SET SHOW TERMINATE UNDEFINE UNSET".split()
)

# If the parser accepts both the keyword and a name, the word is the keyword only before one of these.
KEYWORD_BEFORE: dict[str, frozenset[str]] = {
    **windows.KEYWORD_BEFORE,
    "EMIT": frozenset({"CHANGES", "FINAL"}),
    "PARTITION": frozenset({"BY"}),
    "IF": frozenset({"NOT", "EXISTS"}),
    "ARRAY": frozenset({"LBRACKET", "LT"}),
    "MAP": frozenset({"LPAR", "LT"}),
    "STRUCT": frozenset({"LPAR", "LT", "NEQ"}),
    "ESCAPE": frozenset({"STRING_LITERAL"}),
    "FUNCTION": _NAMES,
    "CONNECTOR": _NAMES,
    "MIRROR": _NAMES | {"IF"},
    "SECRET": _NAMES | {"IF"},
    "FILTER": frozenset({"LPAR"}),
    "OVER": frozenset({"LPAR"}),
    "UNION": frozenset({"ALL", "DISTINCT", "SELECT"}),
    "INTERVAL": frozenset({"STRING_LITERAL", "INTEGER_LITERAL"}),
    "EXTRACT": frozenset({"LPAR"}),
    "POSITION": frozenset({"LPAR"}),
    "SUBSTRING": frozenset({"LPAR"}),
    "ORDER": frozenset({"BY"}),
    "OFFSET": frozenset({"INTEGER_LITERAL"}),
    "STALL": _NAMES | {"STRING_LITERAL"},  # EXPLAIN stall explains a query with this name
}

# These words are a name only before one of these: an alias, because their clause would have an expression next.
_NAME_BEFORE: dict[str, frozenset[str]] = {
    "QUALIFY": frozenset({"EMIT", "PARTITION", "SEMICOLON", "RPAR", "COMMA"}),
}


def is_keyword_type(token_type: str) -> bool:
    return token_type not in _NO_KEYWORDS


def starts_statement(token_type: str) -> bool:
    return token_type in _STATEMENTS


class Automaton:
    """The parser's stack of states, driven by token types alone."""

    def __init__(self, table: ParseConf[Any], stack: list[Any] | None = None) -> None:
        self.table = table
        self.stack = [table.start_state] if stack is None else stack

    def copy(self) -> Automaton:
        return Automaton(self.table, self.stack[:])

    def advance(self, token_type: str) -> bool:
        """Takes a token; False if the grammar does not allow it (then the stack is unusable)."""
        stack, states = self.stack, self.table.states
        while True:
            step = states[stack[-1]].get(token_type)
            if step is None:
                return False
            action, argument = step
            if action is Shift:
                stack.append(argument)
                return True
            length = len(argument.expansion)
            if length:
                del stack[-length:]
            stack.append(states[stack[-1]][argument.origin.name][1])
            if token_type == "$END" and stack[-1] == self.table.end_state:
                return True

    def accepts(self, token_type: str) -> bool:
        """Whether this token may come next."""
        return token_type in self.table.states[self.stack[-1]] and self.copy().advance(token_type)

    def expected(self) -> set[str]:
        """Every token type that may come next."""
        return {name for name in self.table.states[self.stack[-1]] if name.isupper() and self.accepts(name)}


def resolve(tokens: Sequence[Token], position: int, automaton: Automaton) -> str:
    """The type of a token for the parser: a NAME may become a keyword."""
    token = tokens[position]
    if token.type != "NAME":
        return token.type
    word = token.upper()
    if word in RESERVED or word in _NO_KEYWORDS or not automaton.accepts(word):
        return "NAME"
    if not automaton.accepts("NAME"):
        return word
    following = tokens[position + 1] if position + 1 < len(tokens) else None
    if word in KEYWORD_BEFORE:
        seen = {following.type, following.upper()} if following is not None else set[str]()
        return word if seen & KEYWORD_BEFORE[word] else "NAME"
    if word in _NAME_BEFORE:
        seen = {following.type, following.upper()} if following is not None else {"SEMICOLON"}
        return "NAME" if seen & (_NAME_BEFORE[word] | RESERVED) else word
    if word in _STATEMENTS and following is None:
        return "NAME"  # EXPLAIN show: a name
    return word


def token_for(tokens: Sequence[Token], position: int, automaton: Automaton) -> Token:
    """The token for the parser: a NAME that is a keyword at its position becomes that keyword.

    Raises `SqlSyntaxError` for a BAD token, and if the text is nested too deeply.
    """
    token = tokens[position]
    if len(automaton.stack) > STACK_MAX:
        raise SqlSyntaxError(f"nested more than {DEPTH_MAX} levels deep", span=token_span(token))
    if token.type == "NAME":
        kind = resolve(tokens, position, automaton)
        if kind != "NAME":
            return Token(kind, token.value, token.start_pos, end_pos=token.end_pos)
    elif token.type == "BAD":
        raise error_of(token)
    return token


class ContextualLexer(Lexer):
    """Passes tokens to lark's parser; a NAME that is a keyword at its position gets the keyword's type."""

    __future_interface__ = 2

    def __init__(self, lexer_conf: Any) -> None:
        del lexer_conf  # every terminal is declared, none is a pattern

    def lex(self, lexer_state: LexerState, parser_state: Any) -> Iterator[Token]:
        tokens: Any = lexer_state.text
        automaton = Automaton(parser_state.parse_conf, parser_state.state_stack)  # the parser's own stack, not a copy
        for position in range(len(tokens)):
            yield token_for(tokens, position, automaton)
