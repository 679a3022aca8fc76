"""TTL in WITH: which streams and tables can have one."""

from __future__ import annotations

from millstream.errors import InvalidProperty


def check_ttl(kind: str, ttl_ms: int | None) -> None:
    """Raises `InvalidProperty` for a stream."""
    if ttl_ms is not None and kind != "TABLE":
        raise InvalidProperty(
            "TTL is a property of tables: a stream's rows are not updated.",
            hint="How long a topic keeps a stream's records is its RETENTION_MS.",
        )
