"""Why Spark cannot run here."""

from __future__ import annotations

from millstream.errors import ServerError


class SparkUnavailable(ServerError):
    """No Java runtime, or no PySpark, or a cluster that cannot reach the log."""

    code = "SPARK_UNAVAILABLE"
