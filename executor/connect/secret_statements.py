"""Finds the values in the text of CREATE SECRET, even if the statement has a syntax error or another first word."""

from __future__ import annotations

import re
from typing import Final

from ...sql.settings.secret_values import replaced

_BETWEEN: Final = r"(?:\s|--[^\n]*\n|/\*.*?\*/)"
_CREATE: Final = re.compile(
    r"\b(?:CREATE|ALTER|SET)~+(?:OR~+REPLACE~+)?SECRET\b(?:~+IF~+NOT~+EXISTS\b)?~*(?:`[^`]*`|\"[^\"]*\"|[\w.@-]+)?".replace(
        "~", _BETWEEN
    ),
    re.IGNORECASE | re.DOTALL,
)
_LITERAL: Final = r"'[^']*(?:''[^']*)*'"
_PAIR: Final = rf"(?:{_LITERAL}|`[^`]*`|\"[^\"]*\"|\w+)\s*=\s*(?:{_LITERAL}|[\w.+-]+)"
_WHOLE: Final = re.compile(rf"\s*(?:WITH\s*)?\(\s*{_PAIR}(?:\s*,\s*{_PAIR})*\s*\)\s*(?=;|$)", re.IGNORECASE)
_WHAT_STAYS: Final = re.compile(r"[^\s;]")


def secret_spans(text: str) -> list[tuple[int, int]]:
    """Start and end of the part after the name in each CREATE SECRET of the text. If that has a syntax error, such as a
    missing quote, it is unknown where the value ends; then the part is the whole rest of the text."""
    found: list[tuple[int, int]] = []
    position = 0
    while (create := _CREATE.search(text, position)) is not None:
        whole = _WHOLE.match(text, create.end())
        position = len(text) if whole is None else whole.end()
        found.append((create.end(), position))
    return found


def stars_for(piece: str) -> str:
    """Stars with the length of the piece, and with its white space.

    >>> stars_for(" WITH ('password'='x')")
    ' **** ****************'
    """
    return _WHAT_STAYS.sub("*", piece)


def without_secret_values(text: str) -> str:
    """
    >>> without_secret_values("CREATE SECRET pg ('password'='hunter2');")
    'CREATE SECRET pg **********************;'
    """
    return replaced(text, ((start, end, stars_for(text[start:end])) for start, end in secret_spans(text)))
