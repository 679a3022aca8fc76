"""`${name}` in statements. A value is inserted as data: it can neither end a string nor add words to a statement."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from lark import Token

from millstream.errors import Span, SqlSyntaxError, did_you_mean

from .tokens import TOKEN, tokenize

VARIABLE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VARIABLE = re.compile(r"(\$?)\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_CONSTANTS = frozenset({"TRUE", "FALSE", "NULL"})
_NAMES = frozenset({"NAME", "QUOTED_NAME"})
_NUMBERS = frozenset({"INTEGER_LITERAL", "DECIMAL_LITERAL", "FLOAT_LITERAL"})


def substitute_variables(text: str, variables: Mapping[str, str]) -> str:
    """The text with each `${name}` replaced by its value; `$${name}` becomes a literal `${name}`. Case does not matter.

    Inside quotes, quotes in the value are doubled. Outside, it must be a single value: a name (also `a.b`, `a->b`), a
    number, a string in its quotes, TRUE, FALSE or NULL. Values are not searched for variables again; comments stay
    unchanged.

    >>> substitute_variables("SELECT * FROM ${s} WHERE name = '${n}';", {"s": "users", "n": "O'Neil"})
    "SELECT * FROM users WHERE name = 'O''Neil';"

    Raises: SqlSyntaxError for a variable without a value, or a value that is not a single one; its span is in `text`.
    """
    by_name = {name.upper(): value for name, value in variables.items()}
    pieces: list[str] = []
    position = 0
    for start, end, quote in _places(text):
        pieces.append(text[position:start])
        pieces.append(_substitute(text, Span(start, end), quote, by_name))
        position = end
    return "".join([*pieces, text[position:]])


def define(variables: dict[str, str], name: str, value: str) -> None:
    """Sets a variable. Its name is kept as written, and replaces the same name in another case."""
    undefine(variables, name)
    variables[name] = value


def undefine(variables: dict[str, str], name: str) -> bool:
    """Ignores case; False if there is no such variable."""
    known = [each for each in variables if each.upper() == name.upper()]
    for each in known:
        del variables[each]
    return bool(known)


def _places(text: str) -> list[tuple[int, int, str]]:
    """The positions of variables: start, end, and the quote around them, or an empty text."""
    found: list[tuple[int, int, str]] = []
    for match in TOKEN.finditer(text):
        if match.lastgroup in ("STRING_LITERAL", "QUOTED_NAME", "UNTERMINATED") and match.group()[0] not in "/$":
            quote = match.group()[0]
            found += [
                (each.start(), each.end(), quote) for each in _VARIABLE.finditer(text, match.start(), match.end())
            ]
        elif match.lastgroup == "VARIABLE":
            escaped = match.start() > 0 and text[match.start() - 1] == "$"
            found.append((match.start() - escaped, match.end(), ""))
    return found


def _substitute(text: str, span: Span, quote: str, by_name: Mapping[str, str]) -> str:
    match = _VARIABLE.match(text, span.start)
    assert match is not None
    if match.group(1):
        return text[span.start + 1 : span.end]
    name = match.group(2)
    value = by_name.get(name.upper())
    if value is None:
        as_text = f" In a text that is to hold it as it is, write $${{{name}}}." if quote else ""
        hint = did_you_mean(name, by_name) or f"DEFINE {name} = '…'; gives it one.{as_text}"
        raise SqlSyntaxError(f'variable "{name}" has no value', span=span, text=text, hint=hint)
    if quote:
        return value.replace(quote, quote * 2)
    if not _is_single_value(value):
        message = f'the value of variable "{name}" is not a single value'
        hint = "Outside quotes a variable stands for one name, number, string, TRUE, FALSE or NULL."
        raise SqlSyntaxError(message, span=span, text=text, hint=hint)
    return value


def _is_single_value(value: str) -> bool:
    tokens = tokenize(value)
    if "".join(tokens) != value:
        return False  # spaces and comments are not part of a value
    if len(tokens) == 1:
        return tokens[0].type in _NAMES | _NUMBERS | _CONSTANTS | {"STRING_LITERAL"}
    if len(tokens) == 2:
        return tokens[0].type in ("MINUS", "PLUS") and tokens[1].type in _NUMBERS
    return _is_path(tokens)


def _is_path(tokens: list[Token]) -> bool:
    names, links = tokens[::2], tokens[1::2]
    return (
        len(names) == len(links) + 1
        and all(name.type in _NAMES for name in names)
        and all(link.type in ("DOT", "ARROW") for link in links)
    )
