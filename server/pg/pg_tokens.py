"""Tokens of SQL text in PostgreSQL's dialect: enough to split statements, to classify them, and to translate them to
our dialect. Knows the quotes of both dialects."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["word", "name", "string", "number", "parameter", "sign"]

_TOKEN: Final = re.compile(
    r"""
      (?P<skip>      \s++ | --[^\r\n]*+ | /\*(?s:.*?)(?:\*/|\Z) )
    | (?P<escaped>   [eE]'(?s:[^'\\]|\\.|'')*+(?:'|\Z) )
    | (?P<word>      [^\W\d][\w@$]*+ )
    | (?P<name>      "[^"]*+(?:""[^"]*+)*+(?:"|\Z) | `[^`]*+(?:``[^`]*+)*+(?:`|\Z) )
    | (?P<string>    '[^']*+(?:''[^']*+)*+(?:'|\Z) )
    | (?P<dollar>    \$(?P<tag>(?:[^\W\d]\w*+)?)\$ (?s:.*?) (?:\$(?P=tag)\$|\Z) )
    | (?P<parameter> \$\d++ )
    | (?P<variable>  \$\{[^}]*+\} )
    | (?P<number>    (?:\d++(?:\.\d*+)?+|\.\d++)(?:[eE][+-]?\d++)?+ )
    | (?P<sign>      :: | -> | => | := | <> | != | <= | >= | \|\| | !~~?\*? | ~~?\*? | (?s:.) )
    """,
    re.VERBOSE,
)
_KINDS: Final[dict[str, Kind]] = {
    "word": "word", "name": "name", "string": "string", "escaped": "string", "dollar": "string", "number": "number",
    "parameter": "parameter", "variable": "sign", "sign": "sign",
}  # fmt: skip
_ESCAPE: Final = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{1,3})|(?s:(.)))|''")
_CONTROLS: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


@dataclass(frozen=True, slots=True)
class PgToken:
    """`text` as written, from `start` to `end` of the whole text."""

    kind: Kind
    text: str
    start: int
    end: int

    @property
    def upper(self) -> str:
        """A word in upper case; empty for other tokens, so that a quoted "SELECT" is not a keyword."""
        return self.text.upper() if self.kind == "word" else ""

    @property
    def named(self) -> str | None:
        """The name that a word or a quoted name means in PostgreSQL: lower case, unless it is quoted."""
        if self.kind == "word":
            return self.text.lower()
        return self.text[1:-1].replace(self.text[0] * 2, self.text[0]) if self.kind == "name" else None

    @property
    def value(self) -> str:
        """The content of a string."""
        if self.text[:1] in "eE":
            return _ESCAPE.sub(_unescaped, self.text[2:-1])
        if self.text[:1] == "$":
            size = self.text.find("$", 1) + 1
            return self.text[size:-size]
        return self.text[1:-1].replace("''", "'")


def pg_tokens(text: str) -> list[PgToken]:
    """The tokens. Never fails: an unfinished token extends to the end of the text.

    >>> [token.text for token in pg_tokens("SELECT a::int, E'\\\\'' -- no")]
    ['SELECT', 'a', '::', 'int', ',', "E'\\\\''"]
    """
    return [
        PgToken(_KINDS[kind], match[0], match.start(), match.end())
        for match in _TOKEN.finditer(text)
        if (kind := "dollar" if match.lastgroup == "tag" else match.lastgroup or "sign") != "skip"
    ]


def parted(tokens: Sequence[PgToken]) -> list[list[PgToken]]:
    """The tokens of each statement, without `;`."""
    groups: list[list[PgToken]] = [[]]
    for token in tokens:
        if token.text == ";":
            groups.append([])
        else:
            groups[-1].append(token)
    return [group for group in groups if group]


def words(tokens: Sequence[PgToken], count: int) -> list[str]:
    """The first words in upper case, always `count` of them; other tokens are empty texts."""
    found = [token.upper for token in tokens[:count]]
    return found + [""] * (count - len(found))


def _unescaped(found: re.Match[str]) -> str:
    hexadecimal = found[1] or found[2] or found[3]
    if hexadecimal:
        code = int(hexadecimal, 16)
        return chr(code) if 0 < code < 0x110000 and not 0xD800 <= code < 0xE000 else "\ufffd"
    if found[4]:
        return chr(int(found[4], 8) or 0xFFFD)
    return "'" if found[0] == "''" else _CONTROLS.get(found[5], found[5])


def partners(tokens: Sequence[PgToken]) -> dict[int, int]:
    """The opening bracket of each closing one."""
    found: dict[int, int] = {}
    opened: list[int] = []
    for at, token in enumerate(tokens):
        if token.kind != "sign":
            continue
        if token.text in "([" and len(token.text) == 1:
            opened.append(at)
        elif token.text in (")", "]") and opened:
            found[at] = opened.pop()
    return found
