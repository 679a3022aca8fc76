"""Finds the position where a text stops being a valid statement, by running its tokens through the parse table
alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lark import Token
from lark.parsers.lalr_parser_state import ParseConf

from .automaton import Automaton, resolve


@dataclass(frozen=True, slots=True)
class Failure:
    """The first token that the grammar refuses; `position` is `len(tokens)` if the statement ends too early.

    `kinds` are the resolved types of the tokens before it. `before` is the parser's state before this token, `earlier`
    its state before the previous token.
    """

    tokens: Sequence[Token]
    kinds: Sequence[str]
    position: int
    before: Automaton
    earlier: Automaton | None

    @property
    def token(self) -> Token | None:
        return self.tokens[self.position] if self.position < len(self.tokens) else None

    @property
    def kind(self) -> str:
        return "$END" if self.token is None else resolve(self.tokens, self.position, self.before)


def find_failure(table: ParseConf[int], tokens: Sequence[Token]) -> Failure | None:
    """Runs the tokens through the parse table, without building anything; None if the statement is valid."""
    kinds: list[str] = []
    automaton = Automaton(table)
    for position in range(len(tokens) + 1):
        kind = resolve(tokens, position, automaton) if position < len(tokens) else "$END"
        if not automaton.advance(kind):
            earlier = _replay(table, kinds[:-1]) if kinds else None
            return Failure(tokens, kinds, position, _replay(table, kinds), earlier)
        kinds.append(kind)
    return None


def _replay(table: ParseConf[int], kinds: Sequence[str]) -> Automaton:
    automaton = Automaton(table)
    for kind in kinds:
        automaton.advance(kind)
    return automaton
