"""The topic of a CREATE statement: its name, and how it keeps records; both as in ksqlDB. The planner uses this, and so
does code that checks whether a statement is allowed."""

from __future__ import annotations

from millstream.errors import InvalidProperty

from ...sql.ast import CreateAsSelect, CreateSource
from ..planning_settings import PlanningSettings
from .with_properties import SourceProperties


def topic_of_statement(statement: CreateSource | CreateAsSelect, settings: PlanningSettings) -> str:
    """The topic in WITH, else the source's own name. Only the topics of queries get the prefix."""
    named = statement.properties.get("KAFKA_TOPIC")
    if named is not None:
        return str(named)
    return (settings.topic_prefix if isinstance(statement, CreateAsSelect) else "") + statement.name


def topic_config(kind: str, properties: SourceProperties, *, windowed: bool) -> dict[str, str]:
    """Kafka's properties for the topic. Tables are compacted, and properties that are missing have the log's defaults.

    Raises `InvalidProperty` if a table without windows should delete records by their age.
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
