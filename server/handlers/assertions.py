"""ASSERT TOPIC: waits until a topic is there (or gone), for scripts that need it."""

from __future__ import annotations

import time

from millstream.errors import ServerError

from ...sql.ast import AssertTopic
from ..engine.entities import AssertedTopic, Entity
from ..engine.request import Request

TIMEOUT_MS = 1000
_PAUSE_S = 0.05
_KNOWN = ("PARTITIONS", "REPLICAS")


class AssertionFailed(ServerError):
    """What an ASSERT statement says is not so."""

    code = "ASSERTION_FAILED"


def assert_topic(statement: AssertTopic, request: Request) -> list[Entity]:
    """ASSERT [NOT EXISTS] TOPIC name [WITH (PARTITIONS=…)] [TIMEOUT …]. Raises `AssertionFailed`."""
    timeout_ms = TIMEOUT_MS if statement.timeout_ms is None else statement.timeout_ms
    deadline = time.monotonic() + timeout_ms / 1000
    while (problem := _problem(statement, request)) is not None:
        if time.monotonic() >= deadline:
            raise AssertionFailed(problem, span=statement.span)
        time.sleep(_PAUSE_S)
    return [AssertedTopic(statement_text=statement.text, topic_name=statement.topic, exists=statement.exists)]


def _problem(statement: AssertTopic, request: Request) -> str | None:
    topic = request.log.topics().get(statement.topic)
    if not statement.exists:
        return None if topic is None else f"Topic {statement.topic} exists"
    if topic is None:
        return f"Topic {statement.topic} does not exist"
    actual = {"PARTITIONS": topic.partition_count, "REPLICAS": 1}
    for name, wanted in statement.properties.items():
        if name not in _KNOWN:
            return f"Cannot assert unknown topic property: {name}"
        if str(actual[name]) != str(wanted):
            wrong = f"For config {name.lower()}, expected {wanted} got {actual[name]}"
            return f"Mismatched configuration for topic {statement.topic}: {wrong}"
    return None
