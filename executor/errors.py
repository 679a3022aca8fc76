"""What can go wrong while a query runs, or before it can."""

from __future__ import annotations

from millstream.errors import QueryError, ServerError


class UnknownQuery(QueryError):
    """No query of this id runs here."""

    code = "UNKNOWN_QUERY"


class QueryFailed(QueryError):
    """A query cannot go on; the cause is in the message."""

    code = "QUERY_FAILED"


class ForeignState(QueryError):
    """A query's changelog holds what is not of a query: its state cannot be known."""

    code = "FOREIGN_STATE"


class StateLost(QueryError):
    """A query's state cannot be rebuilt exactly, or is not that of its position."""

    code = "STATE_LOST"


class PositionLost(QueryError):
    """A query has read further than its source reaches now: records were lost that it has counted."""

    code = "POSITION_LOST"


class SparkUnavailable(ServerError):
    """No Java runtime, or no PySpark, or a cluster that cannot reach the log."""

    code = "SPARK_UNAVAILABLE"


class UnsafeFolder(ServerError):
    """A folder for files that are believed, to which other users of the host can write."""

    code = "UNSAFE_FOLDER"
