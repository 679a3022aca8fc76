"""Java's date patterns as DuckDB's strftime formats, as far as both say exactly the same."""

from __future__ import annotations

import re
from functools import lru_cache

from ...types import DATE, TIME, SqlType

_TOKEN = re.compile(r"''|'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z'\[\]{}#]")
_DATE_PARTS = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "MMM": "%b", "MMMM": "%B", "EEE": "%a", "EEEE": "%A", "DDD": "%j"}
_TIME_PARTS = {"HH": "%H", "mm": "%M", "ss": "%S", "SSS": "%g", "hh": "%I", "a": "%p"}


@lru_cache(maxsize=1024)
def strftime_format(pattern: str, type_: SqlType) -> str | None:
    """The format for values of `type_`; None where strftime cannot say the pattern, or the type lacks a field of it.

    >>> from ...types import TIMESTAMP
    >>> strftime_format("yyyy-MM-dd'T'HH:mm:ss.SSS", TIMESTAMP)
    '%Y-%m-%dT%H:%M:%S.%g'
    """
    parts = {**({} if type_ == TIME else _DATE_PARTS), **({} if type_ == DATE else _TIME_PARTS)}
    out: list[str] = []
    at = 0
    while at < len(pattern):
        match = _TOKEN.match(pattern, at)
        if match is None:
            return None
        if match[2]:
            part = parts.get(match[0])
            if part is None:
                return None
            out.append(part)
        elif match[0] == "''":
            out.append("'")
        else:
            out.append((match[0] if match[1] is None else match[1].replace("''", "'")).replace("%", "%%"))
        at = match.end()
    return "".join(out) or None  # DuckDB refuses an empty format
