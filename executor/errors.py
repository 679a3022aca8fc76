"""What can go wrong while a query runs."""

from __future__ import annotations

from millstream.errors import QueryError


class UnknownQuery(QueryError):
    """No query of this id runs here."""

    code = "UNKNOWN_QUERY"


class QueryFailed(QueryError):
    """A query cannot go on; the cause is in the message."""

    code = "QUERY_FAILED"


class ForeignState(QueryError):
    """A query's changelog holds what is not of a query: its state cannot be known."""

    code = "FOREIGN_STATE"
