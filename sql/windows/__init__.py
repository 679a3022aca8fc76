"""The window types of GROUP BY: syntax, meaning, description.

Each type is a module here, and one in `executor/windows/` if a row's time alone determines its windows. No other module
names a type: grammar, planner and server use `WINDOW_TYPES`.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Mapping
from types import MappingProxyType

from ..identifiers import RESERVED
from .window_type import Option, WindowType

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

WINDOW_TYPES: Mapping[str, WindowType] = MappingProxyType(
    {each.name: each() for each in sorted(WindowType.__subclasses__(), key=lambda each: each.name)}
)

KEYWORD_BEFORE: Mapping[str, frozenset[str]] = MappingProxyType(
    {name: frozenset({"LPAR"}) for name in WINDOW_TYPES if name not in RESERVED}
)
"""The types' names are keywords before a parenthesis, and names everywhere else; see `automaton.py`."""


def with_window_rules(grammar: str) -> str:
    """The grammar with the rules of the window types, and the keywords that only they have."""
    options = dict.fromkeys(option for each in WINDOW_TYPES.values() for option in each.options)
    words = dict.fromkeys([*WINDOW_TYPES, *(word for option in options for word in option.words.split())])
    known = {word for line in re.findall(r"^%declare (.*)$", grammar, re.MULTILINE) for word in line.split()}
    return "\n".join(
        [
            grammar,
            *(f"%declare {word}" for word in words if word not in known),
            f"window_kind: {' | '.join(WINDOW_TYPES)}",
            f"window_option: {' | '.join(option.rule for option in options)}",
        ]
    )


def find_option(words: str) -> Option:
    """The option with these words, of any type; without words, the option that is a bare duration."""
    return next(option for each in WINDOW_TYPES.values() for option in each.options if option.words == words)
