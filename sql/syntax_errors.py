"""The error for a token that the grammar does not allow: its position, what was expected, and what was probably meant.

Hints come from examples first (`syntax_hints.py`). Otherwise small repairs are tried on the parser's own table: a
keyword for a misspelled word, quotes, a comma. A repair counts if the statement can continue with it.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from lark import Token
from lark.parsers.lalr_parser_state import ParseConf

from millstream.errors import Span, SqlSyntaxError

from .automaton import Automaton, is_keyword_type, resolve, starts_statement
from .failure import Failure, find_failure
from .foreign_words import hint_for_foreign_word
from .identifiers import RESERVED, quote_identifier
from .syntax_hints import hint_by_example
from .tokens import PUNCTUATION, token_span

SIGNS = {kind: sign for sign, kind in PUNCTUATION.items()} | {"NEQ": "<>", "LAMBDA_LPAR": "("}

_EXPRESSION_STARTS = frozenset(
    "NAME QUOTED_NAME STRING_LITERAL INTEGER_LITERAL DECIMAL_LITERAL FLOAT_LITERAL LPAR LAMBDA_LPAR MINUS PLUS NOT "
    "CASE CAST ARRAY MAP STRUCT TRUE FALSE NULL".split()
)
_OPERATORS = frozenset(
    "PLUS MINUS STAR SLASH PERCENT CONCAT EQ NEQ LT LTE GT GTE AND OR NOT IN LIKE BETWEEN IS AT ARROW LBRACKET DOT "
    "LAMBDA LPAR STRING_LITERAL".split()
)
_KINDS = {
    "NAME": "a name",
    "QUOTED_NAME": "a name",
    "STRING_LITERAL": "a string",
    "DOLLAR_LITERAL": "a text in $$ … $$",
    "INTEGER_LITERAL": "a whole number",
    "DECIMAL_LITERAL": "a number",
    "FLOAT_LITERAL": "a number",
    "$END": "the end of the statement",
}
_SHOWN_MAX = 8
_KSQLDB_SHOWN_MAX = 3
_KSQLDB_VALUES = {
    "STRING_LITERAL": "STRING",
    "INTEGER_LITERAL": "INTEGER_VALUE",
    "DECIMAL_LITERAL": "DECIMAL_VALUE",
    "FLOAT_LITERAL": "FLOATING_POINT_VALUE",
}
_NEVER_MEANT_AS_NAME = frozenset("AS FALSE FROM HAVING NULL TRUE WHERE".split())


def explain_unexpected(table: ParseConf[int], tokens: Sequence[Token], end: Span) -> SqlSyntaxError:
    """The error for a statement that the parser refused.

    In: `end`: the span of an error at the end of the statement.
    """
    failure = find_failure(table, tokens)
    assert failure is not None
    foreign = hint_for_foreign_word(failure)
    misspelled = _misspelled(failure) if foreign is None else None
    if misspelled is not None:
        token, keyword = misspelled
        message = f'unexpected "{token}"; expected {keyword}'
        hint = f'Did you mean "{keyword}"?'
        return SqlSyntaxError(message, span=token_span(token), hint=hint, as_ksqldb=_as_ksqldb(failure))
    token = failure.token
    shown = "end of the statement" if token is None else _shown(token)
    message = f"unexpected {shown}; expected {_expected(failure.before.expected())}"
    hint = foreign or hint_by_example(failure) or _hint_by_repair(failure)
    span = end if token is None else token_span(token)
    return SqlSyntaxError(message, span=span, hint=hint, as_ksqldb=_as_ksqldb(failure))


def _shown(token: Token) -> str:
    text = token if len(token) <= 40 else token[:37] + "…"
    return str(text) if token[0] in "'\"`" else f'"{text}"'


def _expected(kinds: set[str]) -> str:
    """The token types as a list for people: an expression and a statement are one item each."""
    parts: list[str] = []
    if {"SELECT", "CREATE", "INSERT"} <= kinds:
        parts.append("a statement")
        kinds = {kind for kind in kinds if not starts_statement(kind)}
    if {"NAME", "LPAR", "CASE"} <= kinds:
        parts.append("an expression")
        kinds = kinds - _EXPRESSION_STARTS
    elif "PLUS" in kinds and "ARROW" in kinds:
        parts.append("an operator")
        kinds = kinds - _OPERATORS
    parts += sorted({_KINDS[kind] for kind in kinds & _KINDS.keys() if kind != "$END"})
    parts += sorted(f'"{SIGNS[kind]}"' for kind in kinds & SIGNS.keys())
    parts += sorted(kind for kind in kinds if is_keyword_type(kind))
    parts += [_KINDS["$END"]] if "$END" in kinds else []
    if len(parts) > _SHOWN_MAX:
        return ", ".join(parts[:_SHOWN_MAX]) + ", …"
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " or " + parts[-1]


def _as_ksqldb(failure: Failure) -> str | None:
    """The line under `Syntax Error` in ksqlDB: the missing sign, or the tokens that are possible here, if there are
    few."""
    if failure.token is None:
        return None
    if _goes_on(failure, ["RPAR"], skip=0):
        return f"missing ')' at '{failure.token}'"
    kinds = failure.before.expected()
    if not 0 < len(kinds) <= _KSQLDB_SHOWN_MAX or "NAME" in kinds:
        return None
    signs = sorted(f"'{SIGNS[kind]}'" for kind in kinds & SIGNS.keys())
    words = sorted(f"'{kind}'" for kind in kinds if is_keyword_type(kind))
    values = sorted(_KSQLDB_VALUES[kind] for kind in kinds & _KSQLDB_VALUES.keys())
    listed = ", ".join([*signs, *words, *values])
    return f"Expecting {{{listed}}}" if len(kinds) > 1 else f"Expecting {listed}"


# ------------------------------------------------------------------ repairs


def _hint_by_repair(failure: Failure) -> str | None:
    token, kind, before = failure.token, failure.kind, failure.before
    if token is None:
        return 'A "(" is not closed.' if before.accepts("RPAR") and "LPAR" in failure.kinds else None
    if kind in RESERVED - _NEVER_MEANT_AS_NAME and _goes_on(failure, ["NAME"], skip=1):
        return f'"{kind}" is a reserved word: as a name it stands in backticks, {quote_identifier(kind)}.'
    if kind in ("NAME", "QUOTED_NAME") and before.accepts("STRING_LITERAL") and not before.accepts("NAME"):
        text = token[1:-1] if kind == "QUOTED_NAME" else token
        return f"A string stands in single quotes: '{text}'."
    if starts_statement(token.upper()) and before.accepts("$END"):
        return 'End the statement before it with ";".'
    if _goes_on(failure, ["COMMA"], skip=0):
        return "Is a comma missing before it?"
    if _goes_on(failure, ["RPAR"], skip=0):
        return 'A "(" is not closed before it.'
    if _goes_on(failure, ["END"], skip=0):
        return "CASE ends with END."
    if kind == "RPAR" and before.accepts("$END"):
        return 'There is no "(" for it.'
    return None


def _misspelled(failure: Failure) -> tuple[Token, str] | None:
    """A word that is similar to a keyword that fits at its position: the unexpected word, or the one before it."""
    if failure.position and failure.kinds[-1] == "NAME" and failure.earlier is not None:
        keyword = _near_keyword(failure, failure.position - 1, failure.earlier)
        if keyword is not None:
            return failure.tokens[failure.position - 1], keyword
    if failure.kind == "NAME" and failure.token is not None:
        keyword = _near_keyword(failure, failure.position, failure.before)
        if keyword is not None:
            return failure.token, keyword
    return None


def _near_keyword(failure: Failure, position: int, automaton: Automaton) -> str | None:
    word = failure.tokens[position].upper()
    keywords = [kind for kind in automaton.expected() if is_keyword_type(kind)]
    for keyword in difflib.get_close_matches(word, keywords, n=3, cutoff=0.65):
        if keyword != word and len(word) > 2 and _follows(failure.tokens, position + 1, automaton, [keyword]):
            return keyword
    return None


def _goes_on(failure: Failure, inserted: list[str], skip: int) -> bool:
    """Whether the statement can continue if `inserted` replaces the next `skip` tokens."""
    return _follows(failure.tokens, failure.position + skip, failure.before, inserted)


def _follows(tokens: Sequence[Token], position: int, automaton: Automaton, inserted: list[str]) -> bool:
    trial = automaton.copy()
    if not all(trial.advance(kind) for kind in inserted):
        return False
    for following in range(position, min(position + 2, len(tokens))):
        if not trial.advance(resolve(tokens, following, trial)):
            return False
    return position < len(tokens) or trial.accepts("$END")
