"""LIKE for patterns that DuckDB matches in exponential time: it tries each `%` at each position, so a few of them next
to a `_` take forever.

Simple constant patterns are left to DuckDB, which searches the parts between the `%` one after the other. Any other
pattern becomes an RE2 regular expression, which is linear in the text.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import re2
from sqlglot import exp

from .bounds import FUNCTION_SECONDS, BoundExceeded
from .udf import by_row

_PATTERN_MAX = 10_000


def is_simple(pattern: exp.Expression) -> bool:
    """Whether the pattern is written, and no character of it makes DuckDB go back."""
    written = pattern.unnest()
    if not (isinstance(written, exp.Literal) and written.is_string):
        return False
    text = written.this
    return len(text) <= _PATTERN_MAX and ("_" not in text or text.count("%") <= 1)


def matches_like(text: str, pattern: str, escape: str = "") -> bool:
    return _compiled(pattern, escape).fullmatch(text) is not None


MATCHES_LIKE = by_row(matches_like)


@lru_cache(maxsize=1024)
def _compiled(pattern: str, escape: str) -> Any:
    if len(pattern) > _PATTERN_MAX:
        message = f"a pattern of {len(pattern):,} characters takes too long to read; {_PATTERN_MAX:,} are the most"
        raise BoundExceeded(message, FUNCTION_SECONDS)
    parts: list[str] = []
    signs = iter(pattern)
    for sign in signs:
        if sign == escape:
            parts.append(re2.escape(next(signs)))
        else:
            parts.append({"%": ".*", "_": "."}.get(sign) or re2.escape(sign))
    return re2.compile("(?s)" + re.sub(r"(?:\.\*)+", ".*", "".join(parts)))
