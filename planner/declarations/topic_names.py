"""Which topic a CREATE statement is about. Whoever judges the statement asks here, as the planner does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...sql.ast import CreateAsSelect, CreateSource

PREFIX: Final = "ksql.output.topic.name.prefix"


def topic_of_statement(statement: CreateSource | CreateAsSelect, properties: Mapping[str, str]) -> str:
    """In: `properties`: of the session. A declared stream is on the topic of its own name where it names none; the
    prefix is for topics of queries only."""
    named = statement.properties.get("KAFKA_TOPIC")
    if named is not None and str(named):
        return str(named)
    return (properties.get(PREFIX, "") if isinstance(statement, CreateAsSelect) else "") + statement.name
