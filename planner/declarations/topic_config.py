"""How the topic of a new stream or table keeps its records, as ksqlDB sets it up: tables are compacted."""

from __future__ import annotations

from millstream.errors import InvalidProperty

from .with_properties import SourceProperties


def topic_config(kind: str, properties: SourceProperties, *, windowed: bool) -> dict[str, str]:
    """Kafka's properties for the topic; what is not said has the log's default.

    Raises `InvalidProperty` where a table without windows is to forget records by their age.
    """
    table = kind == "TABLE"
    config: dict[str, str] = {}
    if table:
        config["cleanup.policy"] = "compact,delete" if windowed else "compact"
    if properties.cleanup_policy is not None:
        config["cleanup.policy"] = properties.cleanup_policy
    if properties.retention_ms is not None:
        if table and not windowed:
            raise InvalidProperty(
                "Invalid config variable in the WITH clause: RETENTION_MS. "
                "Non-windowed tables do not support retention.",
                hint="A table keeps the latest row of each key. TTL='7 DAYS' lets rows go that were not updated.",
            )
        config["retention.ms"] = str(properties.retention_ms)
    return config
