"""Colours for the text being typed, from the tokens of the SQL language."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.lexers import Lexer
from prompt_toolkit.styles import Style

from ..sql.identifiers import RESERVED
from ..sql.tokens import TOKEN

STYLE: Final = Style.from_dict(
    {"keyword": "bold ansiblue", "string": "ansigreen", "number": "ansicyan", "comment": "ansibrightblack italic"}
)
_STYLES: Final = {
    "STRING_LITERAL": "class:string",
    "UNTERMINATED": "class:string",
    "FLOAT_LITERAL": "class:number",
    "DECIMAL_LITERAL": "class:number",
    "INTEGER_LITERAL": "class:number",
}


class StatementLexer(Lexer):
    """Splits each line into styled pieces; strings and comments may span lines. In: `keywords`: returns the current
    keywords."""

    def __init__(self, keywords: Callable[[], frozenset[str]]) -> None:
        self._keywords = keywords

    def lex_document(self, document: Document) -> Callable[[int], StyleAndTextTuples]:
        lines = styled_lines(document.text, self._keywords())
        return lambda number: lines[number] if number < len(lines) else []


def styled_lines(text: str, keywords: frozenset[str] = RESERVED) -> list[StyleAndTextTuples]:
    """Pieces of text with their styles, line by line."""
    lines: list[StyleAndTextTuples] = [[]]
    for match in TOKEN.finditer(text):
        style = _style(match.lastgroup or "", match.group(), keywords)
        first, *others = match.group().split("\n")
        lines[-1].append((style, first))
        for piece in others:
            lines.append([(style, piece)])
    return lines


def _style(kind: str, text: str, keywords: frozenset[str]) -> str:
    if kind == "WORD":
        return "class:keyword" if text.upper() in keywords else ""
    if kind == "SKIP" or text.startswith("/*"):
        return "class:comment" if text.startswith(("--", "/*")) else ""
    return _STYLES.get(kind, "")
