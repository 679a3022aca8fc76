"""Tracks what a script has inserted since its last pull query, because that query should see the results."""

from __future__ import annotations

from collections.abc import Callable, Collection

from ..server.client import DataClient
from ..sql.identifiers import normalise_identifier
from ..sql.tokens import tokenize

WaitForInserted = Callable[[DataClient, Collection[str]], None]
"""Returns when the queries have processed the rows inserted into these streams and tables. Raises `MillstreamError` if
they do not do so in time."""


def inserted_into(statement: str) -> str | None:
    """The stream or table to which the statement adds rows, or from which it deletes them.

    >>> inserted_into("insert into clicks values (1);"), inserted_into("DELETE FROM `t` WHERE k = 1;")
    ('CLICKS', 't')
    >>> inserted_into("SHOW STREAMS;")
    """
    tokens = tokenize(statement, limit=3)
    if [token.type for token in tokens[:2]] not in (["INSERT", "INTO"], ["DELETE", "FROM"]) or len(tokens) < 3:
        return None
    return normalise_identifier(str(tokens[2]))


def is_pull_query(statement: str) -> bool:
    """Whether a statement that returns rows is a pull query.

    >>> is_pull_query("SELECT * FROM t;"), is_pull_query("SELECT * FROM t EMIT CHANGES;"), is_pull_query("PRINT x;")
    (True, False, False)
    """
    words = [str(token).upper() for token in tokenize(statement)]
    return "EMIT" not in words and words[:1] != ["PRINT"]
