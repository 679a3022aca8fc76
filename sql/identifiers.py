"""Names as users write them: reserved words, the name that a written identifier means, and quoting."""

from __future__ import annotations

import re
import unicodedata

RESERVED = frozenset(
    """
    ALL AND AS AT BETWEEN BY CASE CAST CREATE DECIMAL DELETE DESCRIBE DISTINCT DROP ELSE END EXISTS FALSE FROM FULL
    GROUP HAVING HOPPING IN INNER INSERT INTO IS JOIN LEFT LIKE LIMIT LIST NOT NULL ON OR OUTER PRINT RIGHT SELECT
    STREAM TABLE TERMINATE THEN TRUE TUMBLING UNSET VALUES WHEN WHERE WINDOW WITH WITHIN
    """.split()
)
"""Words that are never names unless they are quoted. ksqlDB reserves these and `RESERVED_BY_KSQLDB`."""

RESERVED_BY_KSQLDB = frozenset(
    """
    ADVANCE BEGINNING CATALOG CONNECTOR CONNECTORS DAYS EXPORT EXTENDED HOURS LOAD MATERIALIZED MILLISECOND
    MILLISECONDS MINUTES MONTHS NAMESPACE PROPERTIES QUERIES QUERY RENAME RETENTION RUN SAMPLE SCRIPT SECONDS SIZE
    STREAMS TO TOPIC TOPICS VIEW YEARS
    """.split()
)
"""Words that ksqlDB reserves and we do not; they are quoted in output, so that ksqlDB can parse it."""

_PLAIN = re.compile(r"[A-Z_][A-Z0-9_@]*")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff]")


def quote_identifier(name: str) -> str:
    """The name as SQL text: in backticks, unless it parses to itself without them.

    >>> quote_identifier("USER_ID"), quote_identifier("userId"), quote_identifier("GROUP")
    ('USER_ID', '`userId`', '`GROUP`')
    """
    if _PLAIN.fullmatch(name) and name not in RESERVED and name not in RESERVED_BY_KSQLDB:
        return name
    return "`" + name.replace("`", "``") + "`"


def quoted_for_duckdb(name: str) -> str:
    """The name as an identifier in DuckDB's SQL."""
    return '"' + name.replace('"', '""') + '"'


def normalise_identifier(written: str) -> str:
    """The name that a written identifier means: upper case, or the text between its quotes.

    Text between quotes is normalised to Unicode's form NFC, so that names that look the same are the same.
    """
    quote = written[0]
    if quote not in '`"':
        return written.upper()
    name = written[1:-1].replace(quote * 2, quote)
    return name if name.isascii() else unicodedata.normalize("NFC", name)


def hidden_character(name: str) -> str | None:
    """The first control, zero-width or direction-changing character of the name: with them, names can look like
    others."""
    match = _CONTROL.search(name)
    return match.group() if match else None
