"""Errors of running and starting queries."""

from __future__ import annotations

from millstream.errors import QueryError, ServerError


class UnknownQuery(QueryError):
    """No query with this id runs here."""

    code = "UNKNOWN_QUERY"


class QueryFailed(QueryError):
    """A query cannot continue; the message says why."""

    code = "QUERY_FAILED"


class TimestampFailed(QueryFailed):
    """A record has no usable timestamp, and the query's properties say that it then ends."""

    code = "TIMESTAMP_FAILED"


class ForeignState(QueryError):
    """A query's changelog holds records that no query wrote, so its state is unknown."""

    code = "FOREIGN_STATE"


class StateLost(QueryError):
    """A query's state cannot be rebuilt exactly, or does not match its position."""

    code = "STATE_LOST"


class PositionLost(QueryError):
    """A query's position is no longer valid: its source has lost records that the query read, or was replaced."""

    code = "POSITION_LOST"


class SparkUnavailable(ServerError):
    """No Java runtime, or no PySpark, or a cluster that cannot reach the log."""

    code = "SPARK_UNAVAILABLE"


class UnsafeFolder(ServerError):
    """Other users of the host can write to a folder whose files are trusted."""

    code = "UNSAFE_FOLDER"
