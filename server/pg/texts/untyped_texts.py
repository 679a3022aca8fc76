"""Texts in quotes that are values of another type. PostgreSQL gives such a text the type of what it stands beside:
`n = '5'`, `ts > '2020-01-01 10:00:00+02'`, `INSERT INTO t (tags) VALUES ('{a,b}')`.

They are treated as parameters that the client has not declared."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from ....sql.printing import literal
from ....sql.types import STRING, SqlType
from ..pg_parameters import NO_VALUE
from ..pg_statements import PgKind, PgStatement
from ..pg_tokens import PgToken, words
from .typed_literals import is_empty_array, text_literal

_PERHAPS: Final = re.compile(
    r"\s*(?:[-+]?\.?\d.*|\\x.*|[{\[].*|t|true|f|false|y|yes|n|no|on|off|[-+]?infinity|nan)\s*",
    re.IGNORECASE | re.DOTALL,
)
_AS_OURS: Final = re.compile(r"\d{4}-\d\d-\d\d(?:T\d\d:\d\d(?::\d\d(?:\.\d{1,3})?)?)?|\d\d:\d\d:\d\d(?:\.\d{1,3})?")
_NO_VALUES: Final = ("INTERVAL", "ESCAPE", "TIMEOUT")  # words before a text that is a part of the syntax
_PARSED: Final = ("TO_TIMESTAMP", "TO_DATE")
_STATEMENTS: Final = ("SELECT", "WITH", "INSERT", "DELETE", "(")


@dataclass(frozen=True, slots=True)
class UntypedTexts:
    """`statement`: with parameters in place of the texts, whose numbers follow those of its own; `texts`: by their
    numbers."""

    statement: PgStatement
    texts: Mapping[int, PgToken]

    def literals(self, types: Mapping[int, SqlType]) -> dict[int, str]:
        written = {number: _written(token, types.get(number)) for number, token in self.texts.items()}
        if self.statement.kind is PgKind.ROWS:  # there it is the array of ANY, which is not evaluated
            written = {number: "ARRAY[]" if is_empty_array(text) else text for number, text in written.items()}
        return written


def untyped_texts(statement: PgStatement) -> UntypedTexts | None:
    """None if no text of the statement looks like a value of another type."""
    if not _has_values(statement):
        return None
    tokens = list(statement.tokens)
    texts: dict[int, PgToken] = {}
    for number, at in enumerate(_places(statement), statement.parameter_count + 1):
        texts[number] = tokens[at]
        tokens[at] = PgToken("parameter", f"${number}", tokens[at].start, tokens[at].end)
    return UntypedTexts(replace(statement, tokens=tokens), texts) if texts else None


def _has_values(statement: PgStatement) -> bool:
    """Whether it is a query, contains one, or changes rows."""
    if statement.kind not in (PgKind.ROWS, PgKind.OURS, PgKind.OUR_ROWS) or not statement.tokens:
        return False
    first, second = words(statement.tokens, 2)
    is_create = first == "CREATE" and second != "FUNCTION"
    if is_create or first == "EXPLAIN":
        return any(token.upper == "SELECT" for token in statement.tokens)
    return (first or statement.tokens[0].text) in _STATEMENTS


def _places(statement: PgStatement) -> Iterator[int]:
    before = ""
    for at, token in enumerate(statement.tokens):
        is_part = before in _NO_VALUES or "INTERVAL" in words(statement.tokens[at + 1 : at + 3], 2)[1:]
        is_part = is_part or words(statement.tokens[max(0, at - 2) : at], 1)[0] in _PARSED
        if token.kind == "string" and not is_part and _is_perhaps_a_value(token.value):
            yield at
        before = token.upper


def _is_perhaps_a_value(text: str) -> bool:
    return _PERHAPS.fullmatch(text) is not None and _AS_OURS.fullmatch(text) is None


def _written(token: PgToken, type_: SqlType | None) -> str:
    """What is no value of the type remains a text: the statement's error names it, as that of a CAST would."""
    text = literal(token.value)
    if type_ is None or type_ == STRING:
        return text
    try:
        return text_literal(token.value, type_)
    except NO_VALUE:
        return text
