"""Splits text into tokens. Knows quotes, comments and reserved words; the parser's contextual keywords are in
`automaton.py`.

It never fails: text that is not a token becomes a token of type BAD, so that the shell can split unfinished text;
`error_of` returns its error.
"""

from __future__ import annotations

import re
import unicodedata

from lark import Token

from millstream.errors import Span, SqlSyntaxError

from .foreign_names import FOREIGN_SIGNS
from .identifiers import RESERVED

TEXT_BYTES_MAX = 1 << 20
TOKENS_MAX = 100_000  # in a request
STATEMENT_TOKENS_MAX = 25_000  # in a statement other than INSERT; enough for the longest list

ROWS_STATEMENTS = frozenset({"SELECT", "WITH", "PRINT"})
"""The first words of statements that return rows."""

PUNCTUATION = {
    "(": "LPAR", ")": "RPAR", "[": "LBRACKET", "]": "RBRACKET", ",": "COMMA", ".": "DOT", "*": "STAR", "+": "PLUS",
    "-": "MINUS", "/": "SLASH", "%": "PERCENT", "||": "CONCAT", "=": "EQ", "<>": "NEQ", "!=": "NEQ", "<": "LT",
    "<=": "LTE", ">": "GT", ">=": "GTE", ":=": "ASSIGN", "->": "ARROW", "=>": "LAMBDA", ";": "SEMICOLON",
}  # fmt: skip

TOKEN = re.compile(
    r"""
      (?P<SKIP>              [ \t\r\n]++ | --[^\r\n]*+ | /\*(?s:.*?)\*/ )
    | (?P<WORD>              [A-Za-z_][A-Za-z0-9_@]*+ )
    | (?P<FLOAT_LITERAL>     (?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++) [eE][+-]?[0-9]++ (?![A-Za-z0-9_@]) )
    | (?P<DECIMAL_LITERAL>   [0-9]++\.[0-9]*+ | \.[0-9]++ )
    | (?P<INTEGER_LITERAL>   [0-9]++ (?![A-Za-z_@]) )
    | (?P<STRING_LITERAL>    '[^']*+(?:''[^']*+)*+' )
    | (?P<DOLLAR_LITERAL>    \$(?P<TAG>[A-Za-z_]\w*+|)\$ (?!\{[A-Za-z_]\w*\}) (?s:.*?) \$(?P=TAG)\$ )
    | (?P<QUOTED_NAME>       `[^`]*+(?:``[^`]*+)*+` | "[^"]*+(?:""[^"]*+)*+" )
    | (?P<PUNCTUATION>       <> | != | <= | >= | \|\| | := | -> | => | [()\[\],.*+\-%=<>;] | /(?!\*) )
    | (?P<VARIABLE>          \$\{[A-Za-z_][A-Za-z0-9_]*+\} )
    | (?P<UNTERMINATED>      (?: ['"`] | /\* | \$(?:[A-Za-z_]\w*+|)\$(?!\{) ) (?s:.*) )
    | (?P<DIGIT_NAME>        [0-9][A-Za-z0-9_@]++ )
    | (?P<STRANGE>           (?s:.) )
    """,
    re.VERBOSE,
)

_BAD = frozenset({"VARIABLE", "UNTERMINATED", "STRANGE"})
_UNSENDABLE = re.compile("[\x00\ud800-\udfff]")
_OPENED = {"'": "string", '"': "quoted name", "`": "quoted name", "/": "comment", "$": "text"}
_LOOKALIKES = str.maketrans("‘’‛′“”„″–—−；，（）\u00a0", "''''\"\"\"\"---;,() ")


def tokenize(text: str, limit: int | None = None) -> list[Token]:
    """The tokens of the text with their offsets, without comments and spaces. Stops after `limit` tokens.

    A reserved word has its own type, every other word is a NAME. The `(` of a lambda's parameters is LAMBDA_LPAR.
    """
    tokens: list[Token] = []
    limit = len(text) if limit is None else limit
    for match in TOKEN.finditer(text, 1 if text.startswith("\ufeff") else 0):  # skips a byte order mark
        kind = match.lastgroup
        assert kind is not None
        value = match.group()
        if kind == "SKIP":
            continue
        if kind == "WORD":
            upper = value.upper()
            kind = upper if upper in RESERVED else "NAME"
        elif kind == "PUNCTUATION":
            kind = PUNCTUATION[value]
            if kind == "LAMBDA":
                _mark_lambda_parameters(tokens)
        elif kind == "DIGIT_NAME":
            kind = "NAME"
        elif kind in _BAD:
            kind = "BAD"
        tokens.append(Token(kind, value, match.start(), end_pos=match.end()))
        if len(tokens) == limit:
            break
    return tokens


def _mark_lambda_parameters(tokens: list[Token]) -> None:
    """Turns the `(` of `(x, y) =>` into LAMBDA_LPAR, because an LALR parser cannot look that far ahead."""
    position = len(tokens) - 1
    if position < 0 or tokens[position].type != "RPAR":
        return
    position -= 1
    while position >= 0 and tokens[position].type in ("NAME", "QUOTED_NAME", "COMMA"):
        position -= 1
    if position >= 0 and tokens[position].type == "LPAR":
        old = tokens[position]
        tokens[position] = Token("LAMBDA_LPAR", old.value, old.start_pos, end_pos=old.end_pos)


def token_span(token: Token) -> Span:
    assert token.start_pos is not None and token.end_pos is not None
    return Span(token.start_pos, token.end_pos)


def check_text(text: str) -> None:
    """Refuses text that the parser must not get: too long, with NUL or unpaired surrogates.

    Raises: SqlSyntaxError.
    """
    if len(text) > TEXT_BYTES_MAX:
        raise SqlSyntaxError(f"the text is longer than {TEXT_BYTES_MAX} bytes")
    nul = text.find("\0")
    if nul >= 0:
        raise SqlSyntaxError("the text contains a NUL character", span=Span(nul, nul + 1), text=text)
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        message = "the text contains half of a surrogate pair, which is no character"
        raise SqlSyntaxError(message, span=Span(error.start, error.start + 1)) from None
    if size > TEXT_BYTES_MAX:
        raise SqlSyntaxError(f"the text is longer than {TEXT_BYTES_MAX} bytes")


def printable(text: str) -> str:
    """The text with replacements for characters that cannot be sent or shown, at the same offsets: for errors about
    it."""
    return _UNSENDABLE.sub("\ufffd", text)


def error_of(token: Token) -> SqlSyntaxError:
    """The error for a BAD token."""
    value, span = str(token), token_span(token)
    if value.startswith("${"):
        name = value[2:-1]
        hint = "Variables are replaced where the property ksql.variable.substitution.enable is true."
        return SqlSyntaxError(f'variable "{name}" is not replaced', span=span, hint=hint)
    if value[0] in _OPENED and (len(value) > 1 or value[0] not in "/$"):
        return _unterminated(value, span)
    return _strange_character(value, span)


def _unterminated(value: str, span: Span) -> SqlSyntaxError:
    opened = {"/": "/*", "$": value[: value.find("$", 1) + 1]}.get(value[0], value[0])
    what, closing = _OPENED[value[0]], "*/" if value[0] == "/" else opened
    doubled = "" if value[0] in "/$" else f", and a quote inside it is written twice: {closing * 2}"
    message = f"the {what} that begins here has no end"
    return SqlSyntaxError(
        message, span=Span(span.start, span.start + len(opened)), hint=f"It ends with {closing}{doubled}."
    )


def _strange_character(value: str, span: Span) -> SqlSyntaxError:
    name = unicodedata.name(value, "no name")
    shown = f'"{value}"' if value.isprintable() and value.isascii() else f"U+{ord(value):04X} ({name.lower()})"
    plain = value.translate(_LOOKALIKES)
    hint = None
    if plain == " ":
        hint = "It looks like a space: write a plain one."
    elif plain != value:
        hint = f"It only looks like {plain}"
    elif value.isalpha():
        hint = "A name with other letters than A to Z stands in backticks."
    else:
        hint = FOREIGN_SIGNS.get(value)
    return SqlSyntaxError(f"unexpected character {shown}", span=span, hint=hint)
