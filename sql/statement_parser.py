"""The parse of a statement: lark's LALR tables, driven by our own loop.

lark's loop looks up its steps by names that compare in Python, and takes each literal through eleven rules of one
symbol, one per level of precedence. Here names are plain strings, and such a chain is one step: its result depends only
on the two states on top of the stack and on the next token, so it is computed once and cached.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lark import Lark, Token
from lark.parse_tree_builder import ExpandSingleChild
from lark.parsers.lalr_analysis import Shift
from lark.parsers.lalr_parser_state import ParseConf

from .automaton import Automaton, token_for

Reduction = tuple[int, str, Callable[[list[Any]], Any], bool]
"""The number of symbols that a rule takes from the stack, the symbol that it produces, its function, and whether that
returns its single child unchanged."""

Step = tuple[int, Reduction | None]
"""The next state, or the rule to reduce by."""


class UnexpectedHere(Exception):
    """The grammar does not allow the token here. `table`: that of the start symbol."""

    def __init__(self, table: ParseConf[Any]) -> None:
        super().__init__()
        self.table = table


class StatementParser:
    """Parses tokens with the tables of `lark`; threads may share one."""

    def __init__(self, lark: Lark) -> None:
        machine: Any = lark.parser
        tables, callbacks = machine.parser.parser.parse_table, machine.parser.parser.callbacks
        self._starts = {start: ParseConf(tables, callbacks, start) for start in lark.options.start}
        self._steps: dict[int, dict[str, Step]] = {
            state: {str(name): _step(action, argument, callbacks) for name, (action, argument) in steps.items()}
            for state, steps in tables.states.items()
        }
        self._chains: dict[tuple[int, int, str], int] = {}

    def parse(self, tokens: Sequence[Token], start: str) -> Any:
        """The result of the rules for the tokens. Raises `UnexpectedHere`, and the errors of rules and tokens."""
        conf = self._starts[start]
        automaton = Automaton(conf)
        states, values = automaton.stack, list[Any]()
        steps, chains = self._steps, self._chains
        for position in range(len(tokens)):
            token = token_for(tokens, position, automaton)
            kind = token.type
            while True:
                top = states[-1]
                step = steps[top].get(kind)
                if step is None:
                    raise UnexpectedHere(conf)
                target, reduction = step
                if reduction is None:
                    states.append(target)
                    values.append(token)
                    break
                if reduction[3]:
                    chain = (states[-2], top, kind)
                    states[-1] = chains.get(chain) or self._chain(chain)
                else:
                    self._reduce(reduction, states, values)
        return self._finish(conf, states, values)

    def _reduce(self, reduction: Reduction, states: list[int], values: list[Any]) -> None:
        size, origin, make, _ = reduction
        children: list[Any] = []
        if size:
            children = values[-size:]
            del values[-size:], states[-size:]
        values.append(make(children))
        states.append(self._steps[states[-1]][origin][0])

    def _chain(self, chain: tuple[int, int, str]) -> int:
        """The state that replaces the top one after rules that only pass on their child. (It is never 0, which is the
        start state.)"""
        below, top, kind = chain
        while (step := self._steps[top].get(kind)) is not None and step[1] is not None and step[1][3]:
            top = self._steps[below][step[1][1]][0]
        self._chains[chain] = top
        return top

    def _finish(self, conf: ParseConf[Any], states: list[int], values: list[Any]) -> Any:
        while True:
            step = self._steps[states[-1]].get("$END")
            if step is None:
                raise UnexpectedHere(conf)
            assert step[1] is not None, "nothing follows the end"
            self._reduce(step[1], states, values)
            if states[-1] == conf.end_state:
                return values[-1]


def _step(action: Any, argument: Any, callbacks: Any) -> Step:
    if action is Shift:
        return argument, None
    make, size = callbacks[argument], len(argument.expansion)
    return -1, (size, str(argument.origin.name), make, size == 1 and isinstance(make, ExpandSingleChild))
